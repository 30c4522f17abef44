//! The slots of one key under their lock, the calls that hold some, and those in their queue.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::oneshot;

use super::grant::SlotGrant;
use super::key_slots::{KeySlots, Outcomes, SlotOutcome, SlotStart};
use super::message::{MessageState, SlotHolder, SlotMessage, SlotProcessId, SlotReply};
use super::options::{LostSlots, SlotOptions};
use super::slot_queue::SlotClaim;
use crate::clock::{Clock, Moment};
use crate::instances::Instances;
use crate::sync::process::Process;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::{Error, ErrorKind, Key, Limit, metrics};

/// The part that all keys of a limiter have in common.
pub(super) struct SlotTerms {
    process: Process,
    clock: Clock,
    store: Option<SharedSlots>,
}

/// The way to a store that several processes share.
pub(crate) struct SharedSlots {
    pub(crate) outbox: Box<dyn SlotOutbox>,
    pub(crate) options: SlotOptions,
    /// Reports have their key, as this function shows it.
    pub(crate) shown_key: Option<ShownKey>,
    /// The instances that have a share each while the store fails.
    pub(crate) instances: Instances,
    id: Mutex<SlotProcessId>,
    /// The number of the next message.
    next_number: AtomicU32,
    /// The last failure of the store, in microseconds of the clock.
    failed_at: AtomicU64,
    /// A key without a place for this process was reported.
    has_reported_full: AtomicBool,
}

/// Returns a key as users see it.
pub(crate) type ShownKey = Box<dyn Fn(&Key) -> String + Send + Sync>;

/// Sends the messages of a process to its store.
pub(crate) trait SlotOutbox: Send + Sync {
    /// Looks at the slots of a key at an instant, and sends the message that is due.
    fn look_at(&self, slots: &Arc<SlotsOfKey>, at: Moment);

    /// Returns whether processes that wait are told of free slots.
    fn has_notices(&self) -> bool;

    /// Reads who has slots of a key, or waits for some.
    fn peek(&self, key: &Key) -> Answer<Vec<SlotHolder>>;

    /// Forgets who waits for slots of a key. Slots in use stay.
    fn reset(&self, key: &Key) -> Answer<()>;
}

/// The answer of a store.
pub(crate) type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + Sync>>;

/// The slots of one key, with the lock that all of its calls use.
pub(crate) struct SlotsOfKey {
    key: Key,
    terms: Arc<SlotTerms>,
    state: Mutex<LockedSlots>,
}

struct LockedSlots {
    slots: CallSlots,
    /// The instant of the look that was ordered last.
    look_at: Moment,
}

type CallSlots = KeySlots<oneshot::Sender<QueuedOutcome>>;
type CallOutcomes = Outcomes<oneshot::Sender<QueuedOutcome>>;

/// The outcome that a queued call gets.
pub(crate) enum QueuedOutcome {
    Entered(HeldSlot),
    Denied,
    /// The store has failed.
    Failed(Error),
}

/// Slots that a call holds. Dropped, they are free.
#[must_use = "the slots are free when this is dropped"]
pub(crate) struct HeldSlot {
    slots: Arc<SlotsOfKey>,
    start: SlotStart,
    /// The metric has it.
    is_counted: bool,
}

/// A call in the queue of its key.
pub(crate) struct QueuedSlot {
    slots: Arc<SlotsOfKey>,
    id: u64,
    outcome: oneshot::Receiver<QueuedOutcome>,
    is_done: bool,
}

impl SharedSlots {
    pub(crate) fn new(
        outbox: Box<dyn SlotOutbox>,
        options: SlotOptions,
        shown_key: Option<ShownKey>,
        instances: Instances,
    ) -> Self {
        Self {
            outbox,
            options,
            shown_key,
            instances,
            id: Mutex::new(new_id()),
            next_number: AtomicU32::new(1),
            failed_at: AtomicU64::new(0),
            has_reported_full: AtomicBool::new(false),
        }
    }

    fn id(&self) -> SlotProcessId {
        *lock(&self.id)
    }

    /// Draws a new id, unless this one is replaced already: another process has it, as on a machine that was cloned.
    fn replace_id(&self, old: SlotProcessId) {
        let mut id = lock(&self.id);
        if *id == old {
            *id = new_id();
        }
    }

    /// The slots of a key that this process has not used yet.
    fn new_grant(&self) -> SlotGrant {
        let failed_at = Moment::PAST.after(Duration::from_micros(self.failed_at.load(Ordering::Relaxed)));
        SlotGrant::new(self.options.slot_time, failed_at)
    }

    /// The instances that have a share each of the slots of a key.
    fn instances_of(&self, key: &Key) -> NonZeroU32 {
        if self.instances.is_one() {
            return NonZeroU32::MIN;
        }
        // The number of slots does not matter.
        Limit::concurrent(1).map_or(NonZeroU32::MIN, |limit| self.instances.sharing(key, &limit))
    }

    fn note_failure(&self, now: Moment) {
        self.failed_at.fetch_max(now.micros(), Ordering::Relaxed);
    }

    fn next_number(&self) -> u32 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }
}

impl SlotTerms {
    pub(super) fn new(clock: Clock, store: Option<SharedSlots>) -> Self {
        Self { process: Process::current(), clock, store }
    }

    /// The way to the store; `None` if this process decides alone.
    pub(super) fn outbox(&self) -> Option<&dyn SlotOutbox> {
        self.store.as_ref().map(|store| &*store.outbox)
    }

    fn now(&self) -> Moment {
        match &self.store {
            Some(_) => self.clock.now_with_suspend(),
            None => self.clock.now(),
        }
    }
}

/// A random id of a process. The keys of each hasher are other random numbers, but those of a child of `fork`.
fn new_id() -> SlotProcessId {
    RandomState::new().hash_one(process::id()).to_be_bytes()
}

/// The state of the slots of a key, as this process knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotOutlook {
    pub(crate) free: u32,
    pub(crate) running: u32,
    /// An estimate.
    pub(crate) retry_after: Duration,
}

/// A message that is due.
#[derive(Debug)]
pub(crate) struct DueMessage {
    pub(crate) process: SlotProcessId,
    pub(crate) message: SlotMessage,
}

impl SlotsOfKey {
    pub(super) fn new(key: Key, terms: Arc<SlotTerms>) -> Self {
        let grant = terms.store.as_ref().map(SharedSlots::new_grant);
        let state = LockedSlots { slots: KeySlots::new(grant), look_at: Moment::NEVER };
        Self { key, terms, state: Mutex::new(state) }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn is_unused(&self) -> bool {
        lock(&self.state).slots.is_unused()
    }

    /// Returns whether the store keeps slots for this process of which no call runs.
    pub(crate) fn has_free(&self) -> bool {
        lock(&self.state).slots.has_free()
    }

    /// Starts a call if it need not wait.
    pub(crate) fn enter(self: &Arc<Self>, max: u16, claim: SlotClaim) -> Option<HeldSlot> {
        self.start(|slots, now, outcomes| slots.enter(now, max, claim, outcomes))
    }

    /// Starts a call that the store could not decide, within this process's share.
    pub(crate) fn enter_by_share(self: &Arc<Self>, cost: u16) -> Option<HeldSlot> {
        self.start(|slots, now, _| slots.enter_by_share(now, cost))
    }

    /// Starts a call that the store could not decide, whatever runs.
    pub(crate) fn enter_unlimited(self: &Arc<Self>, cost: u16) -> Option<HeldSlot> {
        self.start(|slots, now, _| Some(slots.enter_unlimited(now, cost)))
    }

    fn start(
        self: &Arc<Self>,
        start: impl FnOnce(&mut CallSlots, Moment, &mut CallOutcomes) -> Option<SlotStart>,
    ) -> Option<HeldSlot> {
        self.change(None, start).map(|start| HeldSlot::new(self, start).counted())
    }

    /// Queues a call that [`enter`](Self::enter) has not started. `None` if there is no one to ask: it does not wait,
    /// and either this process decides alone, or others wait here.
    pub(crate) fn queue(self: &Arc<Self>, claim: SlotClaim, waits: bool) -> Option<QueuedSlot> {
        let now = self.terms.now();
        let mut state = lock(&self.state);
        if !waits && (self.terms.store.is_none() || state.slots.waiting() > 0) {
            return None;
        }
        let (sender, outcome) = oneshot::channel();
        let id = state.slots.queue(claim, waits, sender);
        self.order_look(now, state);
        Some(QueuedSlot { slots: Arc::clone(self), id, outcome, is_done: false })
    }

    /// Returns what this process knows of the slots.
    pub(crate) fn outlook(&self) -> SlotOutlook {
        let slots = &lock(&self.state).slots;
        SlotOutlook { free: slots.free(), running: slots.running(), retry_after: slots.retry_after() }
    }

    /// Changes the slots, orders the next look, and tells queued calls their outcomes.
    fn change<T>(
        self: &Arc<Self>,
        error: Option<&Error>,
        change: impl FnOnce(&mut CallSlots, Moment, &mut CallOutcomes) -> T,
    ) -> T {
        let now = self.terms.now();
        let (mut state, mut outcomes) = (lock(&self.state), Vec::new());
        if let Some(store) = &self.terms.store {
            // Before each change: it may find out that the store has failed, and start calls by shares.
            state.slots.set_instances(store.instances_of(&self.key));
        }
        let changed = change(&mut state.slots, now, &mut outcomes);
        self.order_look(now, state);
        for (call, outcome) in outcomes {
            // The slots of a call that is gone are free again with its outcome.
            drop(call.send(match outcome {
                SlotOutcome::Denied => QueuedOutcome::Denied,
                SlotOutcome::Failed => QueuedOutcome::Failed(error.cloned().unwrap_or_else(no_store)),
                SlotOutcome::Started(start) => QueuedOutcome::Entered(HeldSlot::new(self, start)),
            }));
        }
        changed
    }

    /// Orders the next look, unless an earlier one is ordered.
    fn order_look(self: &Arc<Self>, now: Moment, mut state: MutexGuard<'_, LockedSlots>) {
        let Some(store) = &self.terms.store else { return };
        let at = state.slots.next_look().max(now);
        if at < state.look_at {
            state.look_at = at;
            drop(state);
            store.outbox.look_at(self, at);
        }
    }
}

// The side of the store.

impl SlotsOfKey {
    /// Notes that the ordered look has come: a later change orders another one. Returns whether calls wait for it.
    pub(crate) fn begin_look(&self) -> bool {
        let mut state = lock(&self.state);
        state.look_at = Moment::NEVER;
        state.slots.has_queue()
    }

    /// Looks at the slots. Returns the message that is due, and the slots of running calls that are lost just now.
    pub(crate) fn look(self: &Arc<Self>) -> (Option<DueMessage>, u32) {
        let Some(store) = &self.terms.store else { return (None, 0) };
        let (process, now) = (store.id(), self.terms.now());
        let mut state = lock(&self.state);
        state.look_at = Moment::NEVER;
        let step = state.slots.look(now, || store.next_number());
        self.order_look(now, state);
        (step.message.map(|message| DueMessage { process, message }), step.lost)
    }

    /// Uses the reply to a message. Returns the slots of running calls that are lost just now, and whether the store has
    /// no place for this process.
    pub(crate) fn replied(self: &Arc<Self>, sent: &DueMessage, reply: &SlotReply) -> (u32, bool) {
        let (number, store) = (sent.message.number, self.terms.store.as_ref());
        let has_notices = store.is_some_and(|store| store.outbox.has_notices());
        let replied =
            |slots: &mut CallSlots, now, outcomes: &mut _| slots.replied(now, number, reply, has_notices, outcomes);
        let (lost, state) = self.change(None, replied);
        if let (Some(store), Some(MessageState::Stale)) = (store, state) {
            store.replace_id(sent.process);
        }
        (lost, state == Some(MessageState::Full))
    }

    /// Uses the failure of a message. The next one is sent after the time `retry`, unless calls wait for it.
    pub(crate) fn failed(self: &Arc<Self>, sent: &DueMessage, error: &Error, retry: Duration) {
        let number = sent.message.number;
        self.note_failure();
        self.change(Some(error), |slots, now, outcomes| slots.failed(now, number, retry, outcomes));
    }

    /// Reports lost slots of running calls, on a thread that may run code of the program.
    pub(crate) fn report_lost(&self, slots: u32) {
        if let Some(store) = &self.terms.store {
            let key = store.shown_key.as_ref().map(|shown| shown(&self.key));
            store.options.report(&LostSlots::new(slots, key));
        }
    }

    /// Notes that the store has failed or has lost data, whether a message of this key was on its way or not.
    pub(crate) fn store_failed(self: &Arc<Self>) {
        self.note_failure();
        self.change(None, |slots, now, _| slots.store_failed(now));
    }

    fn note_failure(&self) {
        if let Some(store) = &self.terms.store {
            store.note_failure(self.terms.now());
        }
    }

    /// Returns whether this is the first time that the store has no place for this process.
    pub(crate) fn is_first_full(&self) -> bool {
        self.terms.store.as_ref().is_some_and(|store| !store.has_reported_full.swap(true, Ordering::Relaxed))
    }

    /// Asks the store at once: it may have free slots, or others may wait for those of this process.
    pub(crate) fn wake(self: &Arc<Self>) {
        self.change(None, |slots, _, _| slots.woken());
    }
}

/// The error of a call whose store is gone.
#[cold]
fn no_store() -> Error {
    Error::new(ErrorKind::Unavailable, "the store of the slots is gone: the limiter was dropped")
}

impl HeldSlot {
    fn new(slots: &Arc<SlotsOfKey>, start: SlotStart) -> Self {
        Self { slots: Arc::clone(slots), start, is_counted: false }
    }

    pub(crate) fn started_at(&self) -> Moment {
        self.start.at
    }

    /// The slots that were free after its start, as far as this process knew.
    pub(crate) fn free_after(&self) -> u32 {
        self.start.free
    }

    /// Counts it as held, on a thread of its caller: a recorder of metrics is code of the program.
    fn counted(mut self) -> Self {
        metrics::slots_held(self.start.cost.into());
        self.is_counted = true;
        self
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        let Self { slots, start, is_counted } = self;
        if slots.terms.process.is_this() {
            if *is_counted {
                metrics::slots_held(-i32::from(start.cost));
            }
            slots.change(None, |slots, now, outcomes| slots.leave(now, *start, outcomes));
        }
    }
}

impl Future for QueuedSlot {
    type Output = QueuedOutcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<QueuedOutcome> {
        if let Err(error) = self.slots.terms.process.check() {
            return Poll::Ready(QueuedOutcome::Failed(error));
        }
        let outcome = ready!(Pin::new(&mut self.outcome).poll(context));
        self.is_done = true;
        Poll::Ready(match outcome {
            Ok(QueuedOutcome::Entered(slot)) => QueuedOutcome::Entered(slot.counted()),
            Ok(outcome) => outcome,
            // A call whose outcome is lost has no slot.
            Err(_) => QueuedOutcome::Failed(no_store()),
        })
    }
}

impl Drop for QueuedSlot {
    fn drop(&mut self) {
        if !self.is_done && self.slots.terms.process.is_this() {
            let id = self.id;
            self.slots.change(None, |slots, now, outcomes| slots.cancel(now, id, outcomes));
        }
    }
}

/// The key is not shown: it may be personal data.
impl fmt::Debug for HeldSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldSlot").field("cost", &self.start.cost).finish_non_exhaustive()
    }
}

/// The key is not shown: it may be personal data.
impl fmt::Debug for SlotsOfKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotsOfKey").finish_non_exhaustive()
    }
}
