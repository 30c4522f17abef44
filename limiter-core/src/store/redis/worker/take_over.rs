//! The worker's part of a direct call: it waits for the reply, within the deadline, and completes the call.

use std::rc::Rc;

use tokio::task::spawn_local;
use tokio::time::timeout_at;

use super::Worker;
use super::batch::SentBatch;
use super::call::Call;
use super::direct_call::DirectCall;
use super::pending_call::{BatchedCall, PendingCall};
use crate::request::StoreFailure;
use crate::store::redis::connection::script_call::ScriptCall;
use crate::{Error, ErrorKind};

impl Worker {
    /// Takes over a call that its caller has sent.
    pub(super) fn take_over(self: &Rc<Self>, call: Call, direct: DirectCall) {
        let DirectCall { gate, command, entry, version, reply } = direct;
        let Some(node) = self.topology.server_of_gate(&gate) else {
            self.reconciler.record_failures(call.requests().into_iter());
            let _ = call.reply_to.send(Err(StoreFailure { error: node_left(), reservation: None }));
            return;
        };
        node.take_back();
        let connection = node.current().filter(|current| current.is_of(&reply));
        let queue = self.queue_of(&node);
        let permit = queue.try_acquire();
        if let Some(permit) = &permit {
            permit.add_calls(1);
        }
        let slot = call.keys.first_slot();
        let call = PendingCall::new(call, Rc::downgrade(&node));
        let batch = SentBatch {
            slot,
            command,
            entries: vec![entry],
            calls: vec![BatchedCall { entry: 0, call: Rc::clone(&call) }],
            versions: vec![version],
            leases: None,
            polled: self.busy_poll.call_sent(),
        };
        let script_call = ScriptCall::new(&self.context, &self.topology, permit.map(Rc::new));
        // Before its deadline is watched: it was sent, and may be due.
        self.record_sent(&batch, &script_call);
        if let Some(connection) = &connection {
            script_call.attempt().sent_on(connection);
        }
        self.deadlines.watch(&call);
        let worker = Rc::clone(self);
        spawn_local(async move {
            let run = script_call.run_direct(&batch.command, node, connection, reply);
            let reply = timeout_at(call.deadline.instant, run).await;
            worker.complete(&queue, batch, &script_call, reply).await;
        });
    }
}

/// The error of a call to a node that has left the cluster before the worker received the call.
fn node_left() -> Error {
    Error::new(ErrorKind::Unavailable, "the node of the cluster is gone")
}
