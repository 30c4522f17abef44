//! Notices for a process that waits for slots, or has more than its share: the worker subscribes to the channel of the
//! process on the connection of its calls. A notice only wakes: the reply to a message grants.

use std::rc::Rc;

use redis::Value;
use tokio::task::spawn_local;

use super::Worker;
use crate::concurrency::message::SlotProcessId;
use crate::store::redis::connection::server_connection::ServerConnection;
use crate::store::redis::slot::slot_of_name;

/// The connection on which a process has subscribed, or tries to.
pub(super) struct SlotSubscription {
    process: SlotProcessId,
    connection: ServerConnection,
}

impl Worker {
    /// Subscribes to the channel of this process, unless it has on the connection of today. In a cluster each node
    /// passes the messages of all nodes on, so one connection is enough.
    pub(super) fn follow_notices(self: &Rc<Self>, process: SlotProcessId) {
        let (channel, known) = (self.context.naming.notice_channel(process), &self.context.slots);
        let slot = if self.topology.is_cluster() { slot_of_name(channel.as_bytes()) } else { 0 };
        let connection = self.topology.connected_owner_of(slot).and_then(|owner| owner.current());
        let mut subscription = self.slot_subscription.borrow_mut();
        let Some(connection) = connection else {
            // A process that waits asks often until it is connected again.
            known.set_subscribed(false);
            *subscription = None;
            return;
        };
        if subscription.as_ref().is_some_and(|last| last.process == process && last.connection.is_same(&connection)) {
            return;
        }
        known.set_subscribed(false);
        *subscription = Some(SlotSubscription { process, connection: connection.clone() });
        let worker = Rc::clone(self);
        spawn_local(async move {
            let receiver = Rc::clone(&worker.context.slots);
            let handler = Rc::new(move |notice: &[Value]| receiver.notified(notice));
            // One that may not publish cannot tell others of its kind.
            let is_subscribed = connection.subscribe(&channel, handler).await
                && connection.send(redis::cmd("PUBLISH").arg(&channel).arg("")).await.is_ok();
            let subscription = worker.slot_subscription.borrow();
            if subscription.as_ref().is_some_and(|last| last.connection.is_same(&connection)) {
                worker.context.slots.set_subscribed(is_subscribed);
            }
        });
    }
}
