//! The slots of one key in one process: the calls that run, those that wait, and what the store has granted.
//!
//! It reads no clock and sends nothing, so a simulation can drive it.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use super::grant::{SlotDemand, SlotGrant};
use super::hold_times::HoldTimes;
use super::message::{MessageState, SlotMessage, SlotReply};
use crate::clock::Moment;

/// The calls of one key. `C` tells a queued call its outcome.
#[derive(Debug)]
pub(crate) struct KeySlots<C> {
    /// The limit of the latest call.
    max: u16,
    /// The slots of the calls that run.
    running: u32,
    queue: VecDeque<QueuedCall<C>>,
    next_id: u64,
    pub(super) hold_times: HoldTimes,
    /// Present if other processes share the slots.
    grant: Option<Box<SlotGrant>>,
}

#[derive(Debug)]
struct QueuedCall<C> {
    /// Grows with each call of the key.
    id: u64,
    cost: u16,
    /// It waits for a slot. Another call waits for a reply of the store alone.
    waits: bool,
    call: C,
}

/// The outcome of a queued call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotOutcome {
    Started(SlotStart),
    /// No slot is free for a call that does not wait.
    Denied,
    /// The store has failed.
    Failed,
}

/// The start of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotStart {
    pub(crate) at: Moment,
    pub(crate) cost: u16,
    /// The slots that started with it may be lost together.
    pub(crate) generation: u32,
}

/// Calls with their outcomes, which are told while the slots are not locked.
pub(crate) type Outcomes<C> = Vec<(C, SlotOutcome)>;

/// The result of a look at the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotStep {
    pub(crate) message: Option<SlotMessage>,
    /// The slots of running calls that have been lost just now.
    pub(crate) lost: u32,
}

impl<C> KeySlots<C> {
    pub(crate) fn new(grant: Option<SlotGrant>) -> Self {
        let grant = grant.map(Box::new);
        Self { max: 0, running: 0, queue: VecDeque::new(), next_id: 0, hold_times: HoldTimes::default(), grant }
    }

    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// The slots that waiting calls need.
    pub(crate) fn waiting(&self) -> u64 {
        self.queue.iter().filter(|queued| queued.waits).map(|queued| u64::from(queued.cost)).sum()
    }

    /// The time until a call could start behind those that wait: an estimate.
    pub(crate) fn retry_after(&self) -> Duration {
        self.hold_times.estimate(self.waiting(), self.max)
    }

    /// The slots that are free, as far as this process knows.
    pub(crate) fn free(&self) -> u32 {
        let free_here = u32::from(self.max).saturating_sub(self.running);
        self.grant.as_ref().map_or(free_here, |grant| grant.free().min(free_here))
    }

    pub(crate) fn grant_mut(&mut self) -> Option<&mut SlotGrant> {
        self.grant.as_deref_mut()
    }

    /// Returns whether nothing would be lost with this value.
    pub(crate) fn is_unused(&self) -> bool {
        self.running == 0 && self.queue.is_empty() && self.grant.as_ref().is_none_or(|grant| grant.is_unused())
    }

    /// Starts a call if it need not wait.
    pub(crate) fn enter(&mut self, now: Moment, max: u16, cost: u16) -> Option<SlotStart> {
        self.max = max;
        (self.queue.is_empty() && self.may_start(now, cost)).then(|| self.start(now, cost))
    }

    /// Starts a call that the store could not decide, within this process's share.
    pub(crate) fn enter_by_share(&mut self, now: Moment, cost: u16) -> Option<SlotStart> {
        let share = self.grant.as_ref().and_then(|grant| grant.standby_share(self.max))?;
        (self.running + u32::from(cost) <= share).then(|| self.enter_unlimited(now, cost))
    }

    /// Starts a call that the store could not decide, whatever runs. The store keeps no slots for it, and learns of it
    /// by the next message.
    pub(crate) fn enter_unlimited(&mut self, now: Moment, cost: u16) -> SlotStart {
        self.running += u32::from(cost);
        let generation = self.grant.as_mut().map_or(0, |grant| grant.used_without_slots(now, cost));
        SlotStart { at: now, cost, generation }
    }

    /// Queues a call behind all others, and returns its id. A call that does not wait for a slot is denied by the next
    /// reply to a message that is sent later.
    pub(crate) fn queue(&mut self, cost: u16, waits: bool, call: C) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        if let Some(grant) = &mut self.grant
            && (self.queue.is_empty() || !waits)
        {
            grant.woken();
        }
        self.queue.push_back(QueuedCall { id, cost, waits, call });
        id
    }

    /// Removes a call that waits no longer.
    pub(crate) fn cancel(&mut self, now: Moment, id: u64, outcomes: &mut Outcomes<C>) {
        let place = self.queue.iter().position(|queued| queued.id == id);
        drop(place.and_then(|place| self.queue.remove(place)));
        self.serve(now, outcomes);
    }

    /// Ends a call.
    pub(crate) fn leave(&mut self, now: Moment, start: SlotStart, outcomes: &mut Outcomes<C>) {
        let cost = u32::from(start.cost);
        self.running = self.running.saturating_sub(cost);
        self.hold_times.add(start.at, now);
        if let Some(grant) = &mut self.grant {
            grant.freed(now, cost, start.generation, self.running);
        }
        self.serve(now, outcomes);
    }

    /// The instant of the next look at the slots, unless something happens before.
    pub(crate) fn next_look(&self) -> Moment {
        let Some(grant) = &self.grant else { return Moment::NEVER };
        grant.next_look(self.max, self.running, !self.queue.is_empty())
    }

    /// Makes the message that is due, under a number that no other one has.
    pub(crate) fn look(&mut self, now: Moment, next_number: impl FnOnce() -> u32) -> SlotStep {
        let (max, running, covers) = (self.max, self.running, self.next_id);
        let first = self.queue.front().map(|first| first.cost);
        let Some(grant) = &mut self.grant else { return SlotStep { message: None, lost: 0 } };
        let lost = grant.lose_if_over(now, running);
        if !grant.is_due(now, max, running, first.is_some()) {
            return SlotStep { message: None, lost };
        }
        let demand = SlotDemand { max, running, first, queued: self.queued(), waiting: self.waiting(), covers };
        let message = self.grant.as_mut().map(|grant| grant.message(now, next_number(), &demand));
        SlotStep { message, lost }
    }

    /// Uses a reply. `has_notices` tells whether the store tells processes that wait of free slots. Returns the slots
    /// of running calls that have been lost, and whether another process has this process's id.
    pub(crate) fn replied(
        &mut self,
        now: Moment,
        number: u32,
        reply: &SlotReply,
        has_notices: bool,
        outcomes: &mut Outcomes<C>,
    ) -> (u32, bool) {
        let Some(grant) = &mut self.grant else { return (0, false) };
        let Some(asked) = grant.replied(now, number, self.max, reply, has_notices) else { return (0, false) };
        let lost = grant.lose_if_over(now, self.running);
        if reply.state == MessageState::Stale {
            return (lost, true);
        }
        self.serve(now, outcomes);
        self.deny_covered(now, asked.covers, outcomes);
        let wants_more = u64::from(self.running) + self.queued().min(self.max.into()) > asked.want.into();
        if let Some(grant) = &mut self.grant {
            grant.must_send |= wants_more && !self.queue.is_empty();
        }
        (lost, false)
    }

    /// Uses the failure of a message: no queued call waits for a store that fails.
    pub(crate) fn failed(&mut self, now: Moment, number: u32, outcomes: &mut Outcomes<C>) {
        if self.grant.as_mut().is_some_and(|grant| grant.failed(now, number)) {
            outcomes.extend(self.queue.drain(..).map(|queued| (queued.call, SlotOutcome::Failed)));
        }
    }

    fn may_start(&self, now: Moment, cost: u16) -> bool {
        let after = self.running + u32::from(cost);
        after <= u32::from(self.max) && self.grant.as_ref().is_none_or(|grant| grant.allows(now, self.max, after))
    }

    fn start(&mut self, now: Moment, cost: u16) -> SlotStart {
        self.running += u32::from(cost);
        let generation = self.grant.as_mut().map_or(0, |grant| grant.used(now));
        SlotStart { at: now, cost, generation }
    }

    /// Starts the first queued calls, as far as there are slots.
    fn serve(&mut self, now: Moment, outcomes: &mut Outcomes<C>) {
        while let Some(first) = self.queue.front().map(|first| first.cost).filter(|cost| self.may_start(now, *cost)) {
            let start = self.start(now, first);
            outcomes.extend(self.queue.pop_front().map(|queued| (queued.call, SlotOutcome::Started(start))));
        }
    }

    /// Denies the calls that the message of a reply has asked for.
    fn deny_covered(&mut self, now: Moment, covers: u64, outcomes: &mut Outcomes<C>) {
        if self.queue.iter().all(|queued| queued.waits) {
            return;
        }
        let is_denied = |queued: &QueuedCall<C>| !queued.waits && queued.id < covers;
        let (denied, kept) = mem::take(&mut self.queue).into_iter().partition::<VecDeque<_>, _>(is_denied);
        self.queue = kept;
        let has_asks = self.queue.iter().any(|queued| !queued.waits);
        if let Some(grant) = &mut self.grant {
            grant.must_send |= has_asks;
            if !denied.is_empty() {
                grant.denied(now);
            }
        }
        outcomes.extend(denied.into_iter().map(|queued| (queued.call, SlotOutcome::Denied)));
    }

    fn queued(&self) -> u64 {
        self.queue.iter().map(|queued| u64::from(queued.cost)).sum()
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;

    /// A mark without a call would keep slots from others.
    #[test]
    fn a_process_whose_last_call_waits_no_longer_leaves_the_line() {
        let (now, mut outcomes) = (Moment::PAST.after(Duration::from_secs(1)), Outcomes::new());
        let mut slots = KeySlots::new(Some(SlotGrant::new(Duration::from_secs(10), None)));
        assert!(slots.enter(now, 1, 1).is_none());
        let id = slots.queue(1, true, ());
        let message = slots.look(now, || 1).message.expect("a call waits");
        assert_eq!((message.want, message.waiting), (1, 1));
        let reply = SlotReply {
            state: MessageState::Fresh,
            granted: 0,
            allow: 0,
            share: 0,
            others_wait: false,
            in_use: 1,
            others_waiting: 0,
            first_end: None,
        };
        slots.replied(now, 1, &reply, true, &mut outcomes);
        assert!(slots.look(now, || 2).message.is_none() && !slots.is_unused());
        slots.cancel(now, id, &mut outcomes);
        let message = slots.look(now, || 3).message.expect("the mark is of no use");
        assert_eq!((message.want, message.waiting), (0, 0));
        slots.replied(now, 3, &reply, true, &mut outcomes);
        assert!(slots.is_unused() && slots.next_look() == Moment::NEVER && outcomes.is_empty());
    }
}
