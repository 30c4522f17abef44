//! Batches: calls that are sent to a server in one script call.
//!
//! Identical calls, with the same counter, limit and cost, are one entry. They are granted in order, as many as fit. So
//! a key that many callers use at once costs the server one decision.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::iter;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use redis::Value;
use tokio::task::{spawn_local, yield_now};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::busy_poll::PolledCall;
use super::pending_call::{BatchQueue, BatchedCall, PendingCall};
use super::{BatchTerms, HeldCall, ReleasedCalls, Worker};
use crate::local::sent::batch::{SentBatch, WaitingCall, by_entry};
use crate::request::StoreFailure;
use crate::run::{join_all, run_contained};
use crate::store::redis::connection::in_flight_batches::{InFlightPermit, MAX_BATCH_CALLS};
use crate::store::redis::connection::managed::Attempt;
use crate::store::redis::connection::server_connection::ServerConnection;
use crate::store::redis::connection::topology::CallError;
use crate::store::redis::naming::RedisKey;
use crate::store::redis::packed::KnownPlace;
use crate::store::redis::script::block_arguments::CountedBlock;
use crate::store::redis::script::command::{BatchEntry, Command};
use crate::store::redis::script::reply::BatchReply;
use crate::store::redis::worker::call::{Call, DirectCall};
use crate::sync::Seed;
use crate::{Algorithm, Error, ErrorKind, Layout};

/// Entries of one slot and one place, with their calls.
#[derive(Default)]
struct Batch {
    place: KnownPlace,
    /// The key of each entry.
    keys: Vec<RedisKey>,
    entries: Vec<BatchEntry>,
    /// The calls in the order of arrival.
    calls: Vec<BatchedCall>,
    /// The server has refused it together with the keys of blocks, so it goes without them.
    is_without_blocks: bool,
    /// The index of the first call of each kind, by the hash of its counter, limit and cost.
    first_calls: HashMap<u64, usize, Seed>,
}

/// A batch that was sent, with its command.
struct SentCommand<'a> {
    command: Command,
    sent: SentBatch<'a, PendingCall>,
    terms: Option<BatchTerms>,
    polled: PolledCall,
    attempt: Rc<Attempt>,
    /// Its permit, while it is in flight to the server of the queue.
    permit: Option<Rc<InFlightPermit>>,
}

impl Worker {
    /// Sends the calls of a queue in batches, as far as permits are free.
    pub(super) fn send_batches(self: &Rc<Self>, queue: &Rc<BatchQueue>) {
        while let Some(permit) = queue.next_permit() {
            let batches = self.assemble(queue);
            permit.add_calls(batches.iter().map(|batch| batch.calls.len()).sum());
            // It is written now: the replies to earlier batches may be distributed first otherwise.
            if spawn_started(Rc::clone(self).send(Rc::clone(queue), Rc::new(permit), batches)) {
                // It has failed at once, as all others may. Other tasks run before the next one.
                if !queue.is_empty() {
                    queue.wake();
                }
                return;
            }
        }
    }

    /// Sends the next batches of a queue whenever a permit is released for which calls wait. Never returns.
    pub(super) async fn send_on_release(self: Rc<Self>, queue: Rc<BatchQueue>) {
        loop {
            queue.permit_released().await;
            self.send_batches(&queue);
            yield_now().await;
        }
    }

    /// Assembles batches, one for each slot and place. Calls that need no script call get their replies here.
    fn assemble(self: &Rc<Self>, queue: &Rc<BatchQueue>) -> Vec<Batch> {
        let mut batches: Vec<Batch> = Vec::new();
        let (mut entries, mut index, most_entries, now) = (0, 0, queue.most_entries(), Instant::now());
        for _ in 0..MAX_BATCH_CALLS {
            if entries == most_entries {
                break;
            }
            let Some(call) = queue.pop() else { break };
            // The call of a dropped caller is not sent, and has not failed.
            if !call.is_awaited() {
                continue;
            }
            if now >= call.deadline.instant {
                self.deadlines.fail(iter::once(&*call));
                continue;
            }
            if self.keeper.reply_or_hold(queue, &call, |renewal| self.renew(renewal)) {
                continue;
            }
            if queue.is_too_late(&call, now) {
                self.deadlines.fail(iter::once(&*call));
                continue;
            }
            let Some(call) = self.local.reserve(call) else { continue };
            // Calls of one key often follow each other, and the place takes a digest.
            if !batches.get(index).is_some_and(|batch| batch.has_last_count_of(&call)) {
                let (key, place) = (call.key(), KnownPlace::of(&call.key().name, call.request().limit.packed()));
                let is_of_call = |batch: &Batch| (batch.keys[0].slot, batch.place) == (key.slot, place);
                index = batches.iter().position(is_of_call).unwrap_or_else(|| {
                    batches.push(Batch { place, ..Batch::default() });
                    batches.len() - 1
                });
            }
            entries += batches[index].add(call);
        }
        batches
    }

    /// Sends the batches of one permit, which is released after the last of them.
    async fn send(self: Rc<Self>, queue: Rc<BatchQueue>, permit: Rc<InFlightPermit>, mut batches: Vec<Batch>) {
        let Some(last) = batches.pop() else { return };
        if batches.is_empty() {
            return self.send_batch(&queue, last, Some(permit)).await;
        }
        let batches = batches.into_iter().chain([last]);
        let sent: Vec<_> = batches.map(|batch| self.send_batch(&queue, batch, Some(Rc::clone(&permit)))).collect();
        // Each of them has its own share now.
        drop(permit);
        join_all(sent.into_iter()).await;
    }

    async fn send_batch(self: &Rc<Self>, queue: &Rc<BatchQueue>, batch: Batch, permit: Option<Rc<InFlightPermit>>) {
        let Batch { keys, mut entries, calls, is_without_blocks, .. } = batch;
        let Some(latest) = calls.iter().map(|call| call.deadline.instant).max() else { return };
        let sent = self.local.begin_batch(calls);
        let attempt = Rc::<Attempt>::default();
        sent.calls().iter().for_each(|call| call.set_sent(&attempt));
        self.batch_sizes.push(sent.calls().len());
        let terms = self.keeper.terms(&mut entries, sent.calls());
        let blocks = if is_without_blocks { Vec::new() } else { blocks_of(sent.calls(), &entries) };
        let command = Command::batch(keys, entries).with_blocks(blocks.into_iter(), true);
        let polled = self.busy_poll.call_sent();
        let mut batch = SentCommand { command, sent, terms, polled, attempt, permit };
        let reply = timeout_at(latest, self.topology.call(&batch.command, &batch.attempt, &mut batch.permit)).await;
        self.complete(queue, batch, reply).await;
    }

    /// Completes the calls of a batch with the reply to it.
    async fn complete(
        self: &Rc<Self>,
        queue: &Rc<BatchQueue>,
        batch: SentCommand<'_>,
        reply: Result<Result<Value, CallError>, Elapsed>,
    ) {
        let SentCommand { command, sent, terms, polled, attempt, mut permit } = batch;
        drop(polled);
        // Without its permit it went to another server, or has waited for one.
        let (sent_at, has_waiting_calls) = (permit.as_ref().and_then(|_| attempt.sent_at()), !queue.is_empty());
        if matches!(reply, Ok(Ok(_))) && has_waiting_calls {
            // The next batch is sent before these replies are distributed, so the server need not wait for it.
            permit.take();
            self.send_batches(queue);
        }
        let reply = reply.map(|reply| Ok(command.decode_batch(reply?)?));
        let mut grants = self.keeper.granted(terms, reply.as_ref().ok());
        queue.count_batch(sent.calls().len());
        // Before the callers have their replies: the next call may come at once. Calls that wait for this batch are sent
        // below, and the reply to them lends the connection.
        if grants.released.is_empty() {
            queue.lend_if_idle();
        }
        let deadline = sent.calls()[0].deadline;
        match reply {
            Err(_) => {
                if let Some(permit) = &permit {
                    permit.report_missed_reply();
                }
                queue.record_reply(deadline, sent_at, None, has_waiting_calls);
                sent.fail(|call| self.deadlines.timeout(call));
            }
            Ok(Ok(BatchReply { entries: replies, .. })) => {
                if let Some(replied_at) = attempt.replied_at() {
                    queue.record_reply(deadline, sent_at, Some(replied_at), has_waiting_calls);
                }
                let mut replies = replies.into_iter();
                sent.settle_all(|entry| match replies.next() {
                    Some(Ok(reply)) => {
                        let effects = grants.take_effects(entry.index());
                        entry.settle(&reply, effects);
                    }
                    Some(Err(error)) => {
                        attempt.report_error(&error);
                        entry.fail(&error);
                    }
                    // A reply to each entry was decoded.
                    None => drop(entry),
                });
            }
            Ok(Err(CallError::NeedsSplit(_))) => {
                drop(permit);
                self.send_released(grants.released);
                return self.send_individually(queue, command, sent.into_refused()).await;
            }
            Ok(Err(CallError::Failed(error))) => sent.fail(|_| error.clone()),
        }
        // After the failure is recorded: the standby limiter reserves their permits then.
        self.send_released(grants.released);
    }

    /// Puts calls of one slot, which waited for the script call of another one, back into their queue in front of all
    /// others, and sends them.
    pub(super) fn send_released(self: &Rc<Self>, released: ReleasedCalls) {
        let released = released.take();
        let Some(HeldCall { queue, call }) = released.first() else { return };
        // The server may have left the cluster meanwhile.
        let owner = self.topology.connected_owner_of(call.keys().first_slot());
        let queue = owner.map_or_else(|| Rc::clone(queue), |connection| self.queue_of(&connection));
        released.iter().rev().for_each(|held| queue.push_front(Rc::clone(&held.call)));
        self.send_batches(&queue);
    }

    /// Sends each entry by itself, after the server refused the batch. None of it has been applied.
    async fn send_individually(
        self: &Rc<Self>,
        queue: &Rc<BatchQueue>,
        Command { keys, body }: Command,
        calls: Vec<BatchedCall>,
    ) {
        let entries = body.into_entries();
        let mut calls = calls.into_iter().peekable();
        let batch = |(index, (key, entry)): (usize, (RedisKey, BatchEntry))| {
            let mut calls: Vec<_> = iter::from_fn(|| calls.next_if(|call| call.entry == index)).collect();
            calls.iter_mut().for_each(|call| call.entry = 0);
            Batch { keys: vec![key], entries: vec![entry], calls, is_without_blocks: true, ..Batch::default() }
        };
        let batches = keys.into_iter().zip(entries).enumerate().map(batch);
        join_all(batches.map(|batch| self.send_batch(queue, batch, None))).await;
    }
}

/// The blocks of the entries of a batch, with the numbers of their calls. Charges have none.
fn blocks_of(calls: &[BatchedCall], entries: &[BatchEntry]) -> Vec<CountedBlock> {
    let of_entry = |calls: &[BatchedCall]| {
        let (index, block) = (calls[0].entry, calls[0].request().block?);
        let entry = entries.get(index).filter(|entry| !entry.is_charge)?;
        Some(CountedBlock { index, calls: entry.calls, layout: Layout::Compact, block })
    };
    by_entry(calls).filter_map(of_entry).collect()
}

impl Batch {
    /// Adds a call. Returns the number of entries that this adds: 0 or 1.
    fn add(&mut self, mut call: BatchedCall) -> usize {
        let request = call.request();
        let identical = self.find_identical(&call);
        if let Some(entry) = identical {
            self.entries[entry].calls += 1;
        } else {
            self.keys.push(call.key().clone());
            self.entries.push(BatchEntry::of_call(&call.action, &request));
        }
        call.entry = identical.unwrap_or(self.entries.len() - 1);
        self.calls.push(call);
        usize::from(identical.is_none())
    }

    /// Returns whether a call is about the same count as the last one.
    fn has_last_count_of(&self, call: &PendingCall) -> bool {
        let packed = |call: &PendingCall| call.request().limit.packed();
        self.calls.last().is_some_and(|last| last.key().name == call.key().name && packed(last) == packed(call))
    }

    /// The entry of identical calls.
    fn find_identical(&mut self, call: &PendingCall) -> Option<usize> {
        let request = call.request();
        // Calls that do not wait find a leaky bucket's queue empty only once: one entry grants one of them.
        if request.limit.algorithm() == Algorithm::LeakyBucket {
            return None;
        }
        let hash = self.first_calls.hasher().hash_one((call.counter(), request.limit, request.cost, call.is_charge()));
        let first = self.calls.get(*self.first_calls.entry(hash).or_insert(self.calls.len()))?;
        let is_identical = first.request() == request && first.action.shares_entry_with(&call.action);
        is_identical.then_some(first.entry)
    }
}

// Tasks of a thread that begin at once.

/// Runs a task up to its first wait, and the rest of it as another task of this thread.
///
/// A task that is only spawned begins after all tasks that are ready. A panic ends the task alone, as in any other.
/// It must be called inside of a `LocalSet`. Returns true if the task has ended.
pub(crate) fn spawn_started(task: impl Future<Output = ()> + 'static) -> bool {
    let mut task = Box::pin(task);
    // The second poll, by the `LocalSet`, always comes, and registers the right waker.
    let mut context = Context::from_waker(Waker::noop());
    let mut progress = Poll::Pending;
    if !run_contained(|| progress = task.as_mut().poll(&mut context)) {
        run_contained(|| drop(task));
        return true;
    }
    if progress.is_pending() {
        drop(spawn_local(task));
    }
    progress.is_ready()
}

// The worker's part of a direct call: it waits for the reply, within the deadline, and completes the call.

impl Worker {
    /// Takes over a call that its caller has sent.
    pub(super) fn take_over(self: &Rc<Self>, call: Call, direct: DirectCall) {
        let DirectCall { gate, command, sent, reply } = direct;
        let fail = |call: Call, error| {
            let _ = call.reply_to.send(Err(StoreFailure { error, reservation: None }));
        };
        let Some(node) = self.topology.server_of_gate(&gate) else {
            // Its drop records the failure.
            drop(sent);
            return fail(call, node_left());
        };
        let current = node.current();
        let loan = current.as_ref().and_then(ServerConnection::write_loan);
        if let Some(loan) = loan {
            loan.take_back();
        }
        // Only a panic of its caller takes it away, and has recorded the failure.
        let Some(sent) = sent else { return fail(call, reply_lost()) };
        let is_current = loan.is_some_and(|loan| loan.is_of(&reply));
        let connection = current.filter(|_| is_current);
        let queue = self.queue_of(&node);
        let permit = queue.try_acquire();
        if let Some(permit) = &permit {
            permit.add_calls(1);
        }
        let call = PendingCall::new(call, Rc::downgrade(&node));
        // Before its deadline is watched: it was sent, and may be due.
        let attempt = Rc::<Attempt>::default();
        if let Some(connection) = &connection {
            attempt.sent_on(connection, Instant::now());
        }
        call.set_sent(&attempt);
        self.batch_sizes.push(1);
        let (polled, permit) = (self.busy_poll.call_sent(), permit.map(Rc::new));
        self.deadlines.watch(&call);
        let worker = Rc::clone(self);
        spawn_local(async move {
            let deadline = call.deadline;
            let Some(sent) = sent.take_over(&worker.local, call) else { return };
            let mut batch = SentCommand { command, sent, terms: None, polled, attempt, permit };
            let SentCommand { command, attempt, permit, .. } = &mut batch;
            let received = worker.topology.receive_direct((node, connection), reply, command, attempt, permit);
            let reply = timeout_at(deadline.instant, received).await;
            worker.complete(&queue, batch, reply).await;
        });
    }
}

/// The error of a call whose reply its caller has read, and not completed.
fn reply_lost() -> Error {
    Error::new(ErrorKind::Unavailable, "the reply to the call is lost: its caller has panicked")
}

/// The error of a call to a node that has left the cluster before the worker received the call.
fn node_left() -> Error {
    Error::new(ErrorKind::Unavailable, "the node of the cluster is gone")
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::task::{LocalSet, yield_now};

    use super::*;

    #[tokio::test]
    async fn a_task_begins_at_once_and_goes_on_later() {
        let steps: Rc<RefCell<Vec<&str>>> = Rc::default();
        let task = |first, second| {
            let steps = Rc::clone(&steps);
            async move {
                steps.borrow_mut().push(first);
                yield_now().await;
                steps.borrow_mut().push(second);
            }
        };
        let expected = ["started", "caller", "spawned", "continued", "ended"];
        LocalSet::new()
            .run_until(async {
                spawn_local(task("spawned", "ended"));
                assert!(!spawn_started(task("started", "continued")));
                steps.borrow_mut().push("caller");
                while steps.borrow().len() < expected.len() {
                    yield_now().await;
                }
            })
            .await;
        assert_eq!(*steps.borrow(), expected);
    }

    #[tokio::test]
    async fn a_panic_before_the_first_wait_ends_the_task_alone() {
        let has_ended =
            LocalSet::new().run_until(async { spawn_started(async { panic!("the task's own fault") }) }).await;
        assert!(has_ended);
    }

    #[tokio::test]
    async fn a_task_without_a_wait_ends_at_once() {
        assert!(LocalSet::new().run_until(async { spawn_started(async {}) }).await);
    }
}
