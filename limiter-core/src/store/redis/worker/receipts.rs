//! Settlements of receipts: one script call settles the permits, and marks the receipt as used.

use std::rc::Rc;

use super::Worker;
use super::call::{Call, CallResult};
use super::multi_slot::MultiSlotCall;
use crate::request::once::{Once, ReceiptId};
use crate::request::settlement::{self, Settlement};
use crate::request::sharing::in_redis;
use crate::request::{CountedReply, StoreFailure};
use crate::store::redis::connection::topology::{CallError, SlotGroup};
use crate::store::redis::naming::{Naming, RedisKey};
use crate::{Error, ErrorKind};

impl Worker {
    /// Settles the permits of a receipt, unless it was used before. The script gives nothing back of permits that the server may
    /// have lost.
    ///
    /// The mirror gives nothing back: it may have no record of the permits, which another process has taken.
    pub(super) async fn settle_once(
        self: &Rc<Self>,
        call: &Call,
        settlement: &Settlement,
        once: Once,
        decision: MultiSlotCall<'_>,
        groups: Vec<SlotGroup>,
    ) -> CallResult {
        let (requests, keys) = (decision.requests, call.keys.as_slice());
        let mark = keys.first().and_then(|key| self.context.naming.receipt_key(key, once.id));
        let (Some(mark), [_]) = (mark, &groups[..]) else {
            return Err(StoreFailure { error: no_mark(), reservation: None });
        };
        let keys = keys.iter().cloned().chain([mark]).collect();
        let settled = match decision.call_script(&call.action, requests, keys).await {
            Ok(settled) => settled,
            // No node has both keys while their slot moves. The script did not run.
            Err(CallError::NeedsSplit(error)) => {
                let problem = "the slot of the receipt's key moves to another node: nothing was counted";
                return Err(self.failure(requests, Error::with_source(ErrorKind::NotServing, problem, error)));
            }
            Err(CallError::Failed(error)) => return Err(self.failure(requests, error)),
        };
        if settled.refusal().is_some() {
            return Ok(CountedReply::from_charge(settled, 0));
        }
        let charged = settlement::charged(&settlement.changes(requests, in_redis));
        Ok(self.local.settle_charge(&charged, settled))
    }
}

/// Checks that the counters of a receipt and its mark are in one slot.
///
/// # Errors
/// [`ErrorKind::Config`] if they are not.
pub(crate) fn check_mark(keys: &[RedisKey], naming: &Naming) -> Result<(), Error> {
    let Some(first) = keys.first() else { return Ok(()) };
    let is_in_one_slot = keys.iter().all(|key| key.slot == first.slot);
    if is_in_one_slot && naming.receipt_key(first, ReceiptId::default()).is_some() { Ok(()) } else { Err(no_mark()) }
}

fn no_mark() -> Error {
    let problem = "`receipt` must be of counters in one slot of the cluster, got one of a sorted set with a brace in its key, \
                   or beside another layout: call `settle` where it was made";
    Error::new(ErrorKind::Config, problem)
}
