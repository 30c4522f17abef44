//! The worker's part in slots: it looks at the slots of a key when that is due, and sends the messages of one hash slot
//! together.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use redis::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;
use tokio::time::timeout_at;

use super::Worker;
use super::call::Deadline;
use crate::clock::Moment;
use crate::concurrency::message::{SlotHolder, SlotProcessId};
use crate::concurrency::{Answer, DueMessage, SlotOutbox, SlotsOfKey};
use crate::store::redis::connection::managed::Attempt;
use crate::store::redis::endpoint::worker_stopped;
use crate::store::redis::naming::RedisKey;
use crate::store::redis::notifier::notify;
use crate::store::redis::script::slots::{SlotOperation, decode_messages, decode_peek, decode_reset};
use crate::sync::process::AtHome;
use crate::{Error, Key};

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

/// The most messages of one script call.
const MAX_MESSAGES: usize = 64;

/// The looks that are not due yet, by their instants. Their number keeps the order of equal ones.
type LaterLooks = BTreeMap<(Moment, u64), Arc<SlotsOfKey>>;

/// The next step of the worker about slots.
enum NextStep {
    /// `None` when all senders are dropped.
    Order(Option<SlotOrder>),
    Look,
}

/// Messages of one script call: those of one process about keys in one slot.
type SlotBatch = Vec<(Arc<SlotsOfKey>, RedisKey, DueMessage)>;

impl Worker {
    /// Looks at slots as ordered, until all senders are dropped.
    pub(super) async fn serve_slots(self: Rc<Self>, mut orders: mpsc::UnboundedReceiver<SlotOrder>) {
        let (mut later, mut number) = (LaterLooks::new(), 0);
        loop {
            let first = later.first_key_value().map(|((at, _), _)| *at);
            let mut order = match self.next_step(&mut orders, first).await {
                NextStep::Order(None) => return,
                NextStep::Order(order) => order,
                NextStep::Look => None,
            };
            while let Some(received) = order {
                match received {
                    SlotOrder::Look { slots, at } => {
                        number += 1;
                        later.insert((at, number), slots);
                    }
                    SlotOrder::Answer(question) => drop(spawn_local(Rc::clone(&self).answer(question))),
                }
                order = orders.try_recv().ok();
            }
            self.look_at_due(&mut later);
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

    /// Looks at the slots that are due, and sends their messages.
    fn look_at_due(self: &Rc<Self>, later: &mut LaterLooks) {
        let now = self.context.clock.now_with_suspend();
        let mut batches: BTreeMap<(SlotProcessId, u16), SlotBatch> = BTreeMap::new();
        while let Some(due) = later.first_entry().filter(|first| first.key().0 <= now) {
            let ((at, _), slots) = due.remove_entry();
            let (message, lost) = slots.look(at);
            report_lost(&slots, lost);
            if let Some(message) = message {
                let key = self.context.naming.slots_key(slots.key());
                self.context.slots.add(&key, &slots);
                let batch = batches.entry((message.process, key.slot)).or_default();
                batch.push((slots, key, message));
            }
        }
        for ((process, _), mut batch) in batches {
            self.follow_notices(process);
            while !batch.is_empty() {
                let rest = batch.split_off(batch.len().min(MAX_MESSAGES));
                drop(spawn_local(Rc::clone(self).send_messages(process, batch)));
                batch = rest;
            }
        }
    }

    async fn send_messages(self: Rc<Self>, process: SlotProcessId, batch: SlotBatch) {
        let messages = batch.iter().map(|(_, key, due)| (key.clone(), due.message)).collect();
        match self.call_slots(SlotOperation::Send { process, messages }).await {
            Ok(reply) => match decode_messages(&reply, batch.len()) {
                Ok(replies) => {
                    for ((slots, _, due), reply) in batch.iter().zip(&replies) {
                        report_lost(slots, slots.replied(due, reply).0);
                    }
                }
                Err(error) => fail_all(&batch, &error),
            },
            Err(error) => fail_all(&batch, &error),
        }
    }

    /// Answers a question about the slots of a key. Its caller may be gone.
    async fn answer(self: Rc<Self>, question: SlotQuestion) {
        let key_of = |key: &Key| self.context.naming.slots_key(key);
        match question {
            SlotQuestion::Peek(key, answer) => {
                let holders = self.call_slots(SlotOperation::Peek(key_of(&key))).await;
                let _ = answer.send(holders.and_then(|holders| decode_peek(&holders)));
            }
            SlotQuestion::Reset(key, answer) => {
                let done = self.call_slots(SlotOperation::Reset(key_of(&key))).await;
                let _ = answer.send(done.and_then(|done| decode_reset(&done)));
            }
        }
    }

    /// Calls the script of slots.
    async fn call_slots(&self, operation: SlotOperation) -> Result<Value, Error> {
        let command = operation.command(&self.context.naming.notice_channel_prefix());
        let deadline = Deadline::after(self.context.deadline);
        let (attempt, mut no_permit) = (Attempt::default(), None);
        match timeout_at(deadline.instant, self.topology.call(&command, &attempt, &mut no_permit)).await {
            Ok(reply) => Ok(reply?),
            Err(_) => {
                attempt.report_timeout();
                Err(deadline.no_reply_error())
            }
        }
    }
}

fn fail_all(batch: &SlotBatch, error: &Error) {
    batch.iter().for_each(|(slots, _, due)| slots.failed(due, error));
}

/// Reports that calls go on without their slots.
fn report_lost(slots: &Arc<SlotsOfKey>, lost: u32) {
    if lost > 0 {
        let slots = Arc::clone(slots);
        notify(move || slots.report_lost(lost));
    }
}
