//! Refunds, and the return of unused permits.

use super::super::event::{BatchCall, Event};
use super::super::process::{PermitSource, SimulatedReceipt};
use super::{Simulation, small};
use crate::Limit;
use crate::request::Request;
use crate::store::redis::script::command::{BatchEntry, ReturnedPermits};
use crate::store::redis::script::fuzz::pick;

impl Simulation<'_> {
    /// Refunds a part of the permits of one receipt.
    pub(super) fn refund(&mut self, number: usize) {
        let process = &mut self.processes[number];
        if process.receipts.is_empty() {
            return;
        }
        let index = pick(&mut self.random, process.receipts.len());
        let SimulatedReceipt { key, admission, permits, limit, stamped_at, taken_from } =
            process.receipts.swap_remove(index);
        let permits = small(self.random.between(1, permits.into()));
        self.counts.refunds += 1;
        match taken_from {
            PermitSource::Lease(id) => {
                let request = Request::new(&self.keys[key], limit, permits);
                if process.leases.put_back(&request, id) {
                    self.judges[key].refund(admission, permits);
                } else {
                    let wait = self.return_delay();
                    self.add_return(wait, key, limit, ReturnedPermits { permits, id }, Some((admission, permits)));
                }
            }
            PermitSource::StoreAtEndOf(id) => {
                let wait = self.return_delay();
                self.add_return(wait, key, limit, ReturnedPermits { permits, id }, Some((admission, permits)));
            }
            PermitSource::Store(stamp) => {
                let wait = self.return_delay();
                self.add(wait, Event::Refund { key, admission, permits, stamp, stamped_at, limit });
            }
        }
    }

    /// Returns unused permits in a call of their own, which may be lost.
    pub(super) fn return_permits(&mut self, key: usize, limit: Limit, returned: Option<ReturnedPermits>) {
        if let Some(returned) = returned
            && self.random.below(25) > 0
        {
            let wait = self.return_delay();
            self.add_return(wait, key, limit, returned, None);
        }
    }

    pub(super) fn add_return(
        &mut self,
        wait: u64,
        key: usize,
        limit: Limit,
        returned: ReturnedPermits,
        refunded: Option<(usize, u32)>,
    ) {
        let lease = Some(self.terms(0, Some(returned)));
        let entry = BatchEntry { limit, cost: 0, calls: 1, is_charge: false, lease };
        self.add(wait, Event::Batch(BatchCall { key, sender: None, entry, refunded }));
    }

    /// Returns whether a receipt of the store from before a reset may match permits that were taken after it: it has no
    /// mark, as `docs/algorithms.md` states.
    pub(super) fn may_match_later_permits(&self, key: usize, admission: usize, stamp: u64) -> bool {
        let is_before_new_log = !self.scenario.has_steps && stamp.div_ceil(1_000) < self.reset_at_millis[key];
        self.judges[key].has_forgotten(admission) && !is_before_new_log
    }

    /// Returns the time until unused permits reach the store. They are sent late if the process stands still.
    fn return_delay(&mut self) -> u64 {
        if self.random.below(2) == 0 { self.random.below(self.window) } else { self.delay() }
    }
}
