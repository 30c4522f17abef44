//! The worker's part in slots: it looks at the slots of a key when that is due, and sends the messages of one hash slot
//! together.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use redis::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;
use tokio::time::timeout_at;

use super::Worker;
use super::call::Deadline;
use super::look_queue::{DueLook, LookQueue, MAX_BATCH_MESSAGES, SlotPermit};
use super::slot_looks::LookPlace;
use crate::clock::Moment;
use crate::concurrency::message::{SlotHolder, SlotProcessId};
use crate::concurrency::{Answer, DueMessage, SlotOutbox, SlotsOfKey};
use crate::run::{join_all, run_contained};
use crate::store::redis::connection::managed::Attempt;
use crate::store::redis::connection::topology::CallError;
use crate::store::redis::endpoint::worker_stopped;
use crate::store::redis::naming::RedisKey;
use crate::store::redis::notifier::{notify, notify_always};
use crate::store::redis::script::slots::{SlotOperation, decode_messages, decode_peek, decode_reset};
use crate::sync::process::AtHome;
use crate::sync::{Mutex, lock};
use crate::{Error, Key, TARGET, metrics};

/// An order to the worker.
pub(crate) enum SlotOrder {
    /// Looks at the slots of a key at an instant of the clock that goes on during a suspension.
    Look {
        slots: Arc<SlotsOfKey>,
        at: Moment,
    },
    Answer(SlotQuestion),
}

/// A question about the slots of a key.
pub(crate) enum SlotQuestion {
    Peek(Key, oneshot::Sender<Result<Vec<SlotHolder>, Error>>),
    Reset(Key, oneshot::Sender<Result<(), Error>>),
}

/// The way of orders to the worker.
#[derive(Clone, Debug)]
pub(crate) struct SlotSender {
    pub(crate) orders: mpsc::UnboundedSender<SlotOrder>,
    pub(crate) has_notices: Arc<AtomicBool>,
}

impl SlotSender {
    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> SlotQuestion,
    ) -> Answer<T> {
        let (sender, answer) = oneshot::channel();
        // Without a worker there is no answer.
        let _ = self.orders.send(SlotOrder::Answer(question(sender)));
        let answer = AtHome::new(Box::pin(answer));
        Box::pin(async { answer.await?.unwrap_or_else(|_| Err(worker_stopped())) })
    }
}

impl SlotOutbox for SlotSender {
    fn look_at(&self, slots: &Arc<SlotsOfKey>, at: Moment) {
        // Without a worker the slots end by themselves.
        let _ = self.orders.send(SlotOrder::Look { slots: Arc::clone(slots), at });
    }

    fn has_notices(&self) -> bool {
        self.has_notices.load(Ordering::Relaxed)
    }

    fn peek(&self, key: &Key) -> Answer<Vec<SlotHolder>> {
        self.ask(|answer| SlotQuestion::Peek(key.clone(), answer))
    }

    fn reset(&self, key: &Key) -> Answer<()> {
        self.ask(|answer| SlotQuestion::Reset(key.clone(), answer))
    }
}

/// The next step of the worker about slots.
enum NextStep {
    /// `None` when all senders are dropped.
    Order(Option<SlotOrder>),
    Look,
}

/// A message, with the slots that it is about.
struct SlotEntry {
    slots: Arc<SlotsOfKey>,
    key: RedisKey,
    message: DueMessage,
}

impl Worker {
    /// Looks at slots as ordered, until all senders are dropped.
    pub(super) async fn serve_slots(self: Rc<Self>, mut orders: mpsc::UnboundedReceiver<SlotOrder>) {
        loop {
            let first = self.slot_looks.borrow().first();
            let mut order = match self.next_step(&mut orders, first).await {
                NextStep::Order(None) => return,
                NextStep::Order(order) => order,
                NextStep::Look => None,
            };
            while let Some(received) = order {
                match received {
                    SlotOrder::Look { slots, at } => self.order_look(slots, at),
                    SlotOrder::Answer(question) => drop(spawn_local(Rc::clone(&self).answer(question))),
                }
                order = orders.try_recv().ok();
            }
            self.look_at_due();
        }
    }

    async fn next_step(&self, orders: &mut mpsc::UnboundedReceiver<SlotOrder>, first: Option<Moment>) -> NextStep {
        let Some(first) = first else { return NextStep::Order(orders.recv().await) };
        let clock = &self.context.clock;
        let mut sleep = pin!(clock.sleep(clock.now_with_suspend().until(first)));
        poll_fn(|context| match orders.poll_recv(context) {
            Poll::Ready(order) => Poll::Ready(NextStep::Order(order)),
            Poll::Pending => sleep.as_mut().poll(context).map(|_| NextStep::Look),
        })
        .await
    }

    fn order_look(&self, slots: Arc<SlotsOfKey>, at: Moment) {
        let is_due = self.slot_looks.borrow_mut().order(Arc::clone(&slots), at);
        if is_due && slots.begin_look() {
            self.queue_look(slots, LookPlace::Awaited);
        }
    }

    /// Looks at the slots that are due, as far as their servers are free.
    fn look_at_due(self: &Rc<Self>) {
        let now = self.context.clock.now_with_suspend();
        loop {
            let due = self.slot_looks.borrow_mut().take_due(now);
            let Some(slots) = due else { break };
            let place = if slots.begin_look() { LookPlace::Awaited } else { LookPlace::Due };
            self.queue_look(slots, place);
        }
        let queues = self.slot_queues.borrow().clone();
        queues.iter().for_each(|queue| self.send_due(queue));
    }

    /// Adds a look to the queue of its server, or to that of all servers that are not connected.
    fn queue_look(&self, slots: Arc<SlotsOfKey>, place: LookPlace) {
        self.slot_looks.borrow_mut().set_place(&slots, place);
        let key = self.context.naming.slots_key(slots.key());
        let owner = self.topology.connected_owner_of(key.slot);
        let connection = owner.map_or_else(Weak::new, |owner| Rc::downgrade(&owner));
        let mut queues = self.slot_queues.borrow_mut();
        let queue = queues.iter().find(|queue| queue.is_of(&connection)).map(Rc::clone).unwrap_or_else(|| {
            queues.retain(|queue| !queue.is_unused());
            let queue = Rc::new(LookQueue::new(connection, self.topology.is_cluster()));
            queues.push(Rc::clone(&queue));
            queue
        });
        let look = DueLook { slots, key };
        match place {
            LookPlace::Awaited => queue.push_awaited(look, Deadline::after(self.context.deadline)),
            _ => queue.push(look),
        }
    }

    /// Looks at the slots of a queue, and sends their messages, as many as may be in flight.
    fn send_due(self: &Rc<Self>, queue: &Rc<LookQueue>) {
        let mut batches: BTreeMap<(SlotProcessId, u16), Vec<SlotEntry>> = BTreeMap::new();
        let mut room = queue.room();
        loop {
            let next = queue.next(&mut self.slot_looks.borrow_mut(), room > 0);
            let Some((DueLook { slots, key }, missed)) = next else { break };
            let (message, lost) = slots.look();
            self.slot_losses.add(&slots, lost);
            match (message, missed) {
                (None, _) => self.context.slots.remove_unused(&key, &slots),
                (Some(message), Some(deadline)) => {
                    slots.failed(&message, &deadline.not_sent_error(), queue.retry_pause());
                    self.context.slots.remove_unused(&key, &slots);
                }
                (Some(message), None) => {
                    self.context.slots.add(&key, &slots);
                    room -= 1;
                    let batch = batches.entry((message.process, key.slot)).or_default();
                    batch.push(SlotEntry { slots, key, message });
                }
            }
        }
        for ((process, _), mut batch) in batches {
            self.follow_notices(process);
            while !batch.is_empty() {
                let rest = batch.split_off(batch.len().min(MAX_BATCH_MESSAGES));
                let permit = queue.send(batch.len());
                drop(spawn_local(Rc::clone(self).send_messages(process, batch, permit)));
                batch = rest;
            }
        }
    }

    /// Sends messages of one process about keys in one slot, and then those that were due meanwhile.
    async fn send_messages(self: Rc<Self>, process: SlotProcessId, batch: Vec<SlotEntry>, permit: SlotPermit) {
        // A message must not take the time of those that renew the slots after it.
        let most = batch.iter().map(|entry| entry.message.message.slot_time() / 6).min();
        let deadline = Deadline::after(self.context.deadline.min(most.unwrap_or(Duration::MAX)));
        match self.call_messages(process, &batch, deadline).await {
            Err(CallError::NeedsSplit(_)) => {
                let each = batch.chunks(1).map(async |entry| {
                    let reply = self.call_messages(process, entry, deadline).await;
                    self.use_reply(entry, reply, &permit);
                });
                join_all(each).await;
            }
            reply => self.use_reply(&batch, reply, &permit),
        }
        let queue = Rc::clone(&permit.queue);
        drop(permit);
        self.send_due(&queue);
    }

    async fn call_messages(
        &self,
        process: SlotProcessId,
        batch: &[SlotEntry],
        deadline: Deadline,
    ) -> Result<Value, CallError> {
        let messages = batch.iter().map(|entry| (entry.key.clone(), entry.message.message)).collect();
        self.call_slots(SlotOperation::Send { process, messages }, deadline).await
    }

    /// Uses the reply to messages, or their failure.
    fn use_reply(&self, batch: &[SlotEntry], reply: Result<Value, CallError>, permit: &SlotPermit) {
        let reply = reply.map_err(Error::from);
        match reply.and_then(|reply| decode_messages(&reply, batch.len())) {
            Ok(replies) => {
                permit.replied();
                for (SlotEntry { slots, message, .. }, reply) in batch.iter().zip(&replies) {
                    let (lost, is_full) = slots.replied(message, reply);
                    self.slot_losses.add(slots, lost);
                    if is_full && slots.is_first_full() {
                        notify(warn_of_full_key);
                    }
                }
            }
            Err(error) => {
                permit.failed();
                // They are sent together again.
                let pause = permit.queue.retry_pause();
                for SlotEntry { slots, message, .. } in batch {
                    slots.failed(message, &error, pause);
                }
            }
        }
        batch.iter().for_each(|entry| self.context.slots.remove_unused(&entry.key, &entry.slots));
    }

    /// Answers a question about the slots of a key. Its caller may be gone.
    async fn answer(self: Rc<Self>, question: SlotQuestion) {
        let key_of = |key: &Key| self.context.naming.slots_key(key);
        let deadline = Deadline::after(self.context.deadline);
        match question {
            SlotQuestion::Peek(key, answer) => {
                let holders = self.call_slots(SlotOperation::Peek(key_of(&key)), deadline).await;
                let _ = answer.send(holders.map_err(Error::from).and_then(|holders| decode_peek(&holders)));
            }
            SlotQuestion::Reset(key, answer) => {
                let done = self.call_slots(SlotOperation::Reset(key_of(&key)), deadline).await;
                let _ = answer.send(done.map_err(Error::from).and_then(|done| decode_reset(&done)));
            }
        }
    }

    /// Calls the script of slots.
    async fn call_slots(&self, operation: SlotOperation, deadline: Deadline) -> Result<Value, CallError> {
        let command = operation.command(&self.context.naming.notice_channel_prefix());
        let (attempt, mut no_permit) = (Attempt::default(), None);
        let reply = timeout_at(deadline.instant, self.topology.call(&command, &attempt, &mut no_permit)).await;
        reply.unwrap_or_else(|_| {
            attempt.report_timeout();
            Err(deadline.no_reply_error().into())
        })
    }
}

fn warn_of_full_key() {
    tracing::warn!(
        target: TARGET,
        "a limit of calls at once has no place for this process: 1024 others have slots of the key, or wait for some"
    );
}

/// The lost slots of running calls that the notifier is to report.
#[derive(Clone, Default)]
pub(super) struct SlotLosses(Arc<Mutex<Vec<SlotLoss>>>);

/// The slots of a key that calls have lost.
type SlotLoss = (Arc<SlotsOfKey>, u32);

impl SlotLosses {
    /// Reports that calls go on without so many of their slots.
    fn add(&self, slots: &Arc<SlotsOfKey>, lost: u32) {
        if lost == 0 {
            return;
        }
        let mut losses = lock(&self.0);
        losses.push((Arc::clone(slots), lost));
        // The callback of the first one reports all.
        if losses.len() == 1 {
            let all = self.clone();
            notify_always(move || all.report());
        }
    }

    fn report(&self) {
        let losses = mem::take(&mut *lock(&self.0));
        // Before an observer, which may block.
        losses.iter().for_each(|(_, lost)| metrics::slots_lost(*lost));
        for (slots, lost) in losses {
            run_contained(|| slots.report_lost(lost));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;
    use crate::concurrency::{SharedSlots, SlotOptions, SlotTable};
    use crate::instances::Instances;

    /// Longer than any test takes.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_observer_that_blocks_misses_no_loss() {
        const KEYS: u32 = 1000;
        let ((started, starts), (release, released)) = (channel(), channel::<()>());
        let (heard, losses) = channel();
        let (released, mut options) = (Mutex::new(released), SlotOptions::default());
        options.add_observer(move |lost| {
            let _ = started.send(());
            let _ = lock(&released).recv();
            heard.send(lost.slots()).expect("the test waits");
        });
        let sender = SlotSender { orders: mpsc::unbounded_channel().0, has_notices: Arc::default() };
        let table =
            SlotTable::new(Clock::System, Some(SharedSlots::new(Box::new(sender), options, None, Instances::set(1))));
        let reports = SlotLosses::default();
        for number in 0..KEYS {
            reports.add(&table.slots_of(&Key::new("k:").part(number)), number);
            if number == 1 {
                starts.recv_timeout(LONG).expect("it is called");
            }
        }
        drop(release);
        let all: Vec<_> = (1..KEYS).map(|_| losses.recv_timeout(LONG).expect("a loss")).collect();
        assert_eq!(all, (1..KEYS).collect::<Vec<_>>());
    }
}
