//! Direct calls: a caller writes the command of a lone call itself, and polls for the reply. The worker does the rest.
//!
//! So a lone call to a server on the same machine needs no other thread. Behind a network the server is at work while
//! the worker's thread wakes up.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::Value;

use super::call::Call;
use super::direct_call::DirectCall;
use super::reconcile::{Reconciler, SentTake};
use crate::local::LocalState;
use crate::metrics::BatchSizes;
use crate::request::{CountedReply, SlottedRequests};
use crate::store::redis::connection::gate_table::GateTable;
use crate::store::redis::naming::Naming;
use crate::store::redis::script::command::{BatchEntry, Commands, KeyNames};

/// Sends calls on their callers' threads.
#[derive(Debug)]
pub(crate) struct DirectSender {
    gates: Arc<GateTable>,
    naming: Arc<Naming>,
    commands: Commands,
    local: LocalState,
    reconciler: Reconciler,
    batch_sizes: BatchSizes,
    /// The calls for whose replies callers have polled.
    polled_calls: AtomicU32,
}

/// The calls for whose replies callers poll before one yields to its runtime. Tasks of the same thread make their calls
/// then. If there are any, the calls are sent in batches.
const CALLS_PER_TURN: u32 = 16;

impl DirectSender {
    pub(crate) fn new(
        gates: Arc<GateTable>,
        naming: Arc<Naming>,
        commands: Commands,
        local: LocalState,
        batch_sizes: BatchSizes,
    ) -> Self {
        let reconciler = Reconciler::new(local.clone());
        Self { gates, naming, commands, local, reconciler, batch_sizes, polled_calls: AtomicU32::new(0) }
    }

    /// Sends a call, if it can be batched, takes no permits of a lease, its server's connection is idle and the store
    /// decides alone. It does not wait.
    pub(crate) fn send(&self, call: &mut Call) {
        if call.can_be_batched() && !call.takes_leases() {
            call.direct = self.try_send(call);
        }
    }

    fn try_send(&self, call: &Call) -> Option<Box<DirectCall>> {
        let (keys, request) = (&call.keys, call.requests[0].as_request());
        let gate = self.gates.gate_if(keys.first_slot(), |gate| gate.direct_writer.is_free())?;
        let mut names = KeyNames::default();
        names.push_with(|text| keys.write_name(&request, &self.naming, text));
        let entry = BatchEntry::of_call(&request);
        let command = self.commands.batch(names, &[entry]);
        let mut version = None;
        let reply = gate.direct_writer.write(|digest| {
            // The worker takes the write half back before it records that this server has failed.
            let requests = SlottedRequests { requests: slice::from_ref(&request), slots: keys.slots() };
            if self.local.standby.is_consulted(requests) {
                return None;
            }
            version = self.local.denials.version(&request);
            Some(command.with_digest(digest))
        })?;
        Some(Box::new(DirectCall { gate, command, entry, version, reply }))
    }

    /// Counts a call whose caller polls for the reply. Returns whether the caller has to yield to other tasks first.
    pub(super) fn is_turn_of_others(&self) -> bool {
        self.polled_calls.fetch_add(1, Ordering::Relaxed) % CALLS_PER_TURN == CALLS_PER_TURN - 1
    }

    /// Completes a call with the value of its reply, on its caller's thread. Returns `None` if the worker has to: the
    /// value is an error, or no reply to the call.
    pub(super) fn complete(
        &self,
        direct: &DirectCall,
        requests: SlottedRequests<'_>,
        value: Value,
    ) -> Option<CountedReply> {
        let entry = direct.command.decode_batch(value).ok()?.entries.pop()?.ok()?;
        let take = SentTake { requests, max_wait: Duration::ZERO, reservation: None, version: direct.version };
        self.batch_sizes.push(1);
        Some(self.reconciler.complete_take(&take, entry.reply_for_call(0, direct.entry.cost)))
    }
}
