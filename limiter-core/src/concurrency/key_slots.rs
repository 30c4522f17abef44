//! The slots of one key in one process: the calls that run, those that wait, and what the store has granted.
//!
//! It reads no clock and sends nothing, so a simulation can drive it.

use std::num::NonZeroU32;
use std::time::Duration;

use super::grant::{SlotDemand, SlotGrant};
use super::hold_times::HoldTimes;
use super::message::{MessageState, SlotMessage, SlotReply};
use super::slot_queue::{SlotClaim, SlotQueue};
use crate::clock::Moment;

/// The calls of one key. `C` tells a queued call its outcome.
#[derive(Debug)]
pub(crate) struct KeySlots<C> {
    /// The limit of the latest call.
    max: u16,
    /// The slots of the calls that run.
    running: u32,
    queue: SlotQueue<C>,
    pub(super) hold_times: HoldTimes,
    /// Present if other processes share the slots.
    grant: Option<Box<SlotGrant>>,
}

/// The outcome of a queued call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotOutcome {
    Started(SlotStart),
    /// No slot is free for a call that does not wait, or the limit has become less than the cost.
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
    /// The slots that were free after it, as far as this process knew.
    pub(crate) free: u32,
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
        Self { max: 0, running: 0, queue: SlotQueue::new(), hold_times: HoldTimes::default(), grant }
    }

    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// Returns whether calls wait for a slot, or for a reply.
    pub(crate) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The slots that waiting calls need.
    pub(crate) fn waiting(&self) -> u64 {
        self.queue.waiting()
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

    /// Returns whether nothing would be lost with this value.
    pub(crate) fn is_unused(&self) -> bool {
        self.running == 0 && self.queue.is_empty() && self.grant.as_ref().is_none_or(|grant| grant.is_unused())
    }

    /// Returns whether the store keeps slots for this process of which no call runs.
    pub(crate) fn has_free(&self) -> bool {
        self.grant.as_ref().is_some_and(|grant| grant.has_free(self.running))
    }

    /// Starts a call if it need not wait.
    pub(crate) fn enter(
        &mut self,
        now: Moment,
        max: u16,
        claim: SlotClaim,
        outcomes: &mut Outcomes<C>,
    ) -> Option<SlotStart> {
        if max < self.max && !self.queue.is_empty() {
            // Those could never start, and no call behind them.
            let too_large = self.queue.remove_where(|queued| queued.claim.cost > max);
            outcomes.extend(too_large.into_iter().map(|call| (call, SlotOutcome::Denied)));
        }
        self.max = max;
        (self.queue.is_empty() && self.may_start(now, claim)).then(|| self.start(now, claim.cost))
    }

    /// Sets the number of instances that have a share each while the store fails.
    pub(crate) fn set_instances(&mut self, instances: NonZeroU32) {
        if let Some(grant) = &mut self.grant {
            grant.set_instances(instances);
        }
    }

    /// Starts a call that the store could not decide, within this process's share.
    pub(crate) fn enter_by_share(&mut self, now: Moment, cost: u16) -> Option<SlotStart> {
        let share = self.grant.as_ref()?.standby_share(self.max);
        (self.running + u32::from(cost) <= share).then(|| self.enter_unlimited(now, cost))
    }

    /// Starts a call that the store could not decide, whatever runs. The store keeps no slots for it, and learns of it
    /// by the next message.
    pub(crate) fn enter_unlimited(&mut self, now: Moment, cost: u16) -> SlotStart {
        self.running += u32::from(cost);
        let generation = self.grant.as_mut().map_or(0, |grant| grant.used_without_slots(now, cost));
        SlotStart { at: now, cost, generation, free: self.free() }
    }

    /// Queues a call behind all others, and returns its id. A call that does not wait for a slot is denied by the next
    /// reply to a message that is sent later.
    pub(crate) fn queue(&mut self, claim: SlotClaim, waits: bool, call: C) -> u64 {
        if let Some(grant) = &mut self.grant
            && (self.queue.is_empty() || !waits)
        {
            grant.woken();
        }
        self.queue.push(claim, waits, call)
    }

    /// Removes a call that waits no longer.
    pub(crate) fn cancel(&mut self, now: Moment, id: u64, outcomes: &mut Outcomes<C>) {
        self.queue.remove(id);
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
        let (max, running, covers) = (self.max, self.running, self.queue.next_id());
        let first = self.queue.first().map(|first| first.cost);
        let Some(grant) = &mut self.grant else { return SlotStep { message: None, lost: 0 } };
        let lost = grant.lose_if_over(now, running);
        if !grant.is_due(now, max, running, first.is_some()) {
            return SlotStep { message: None, lost };
        }
        let (queued, waiting) = (self.queue.slots(), self.queue.waiting());
        let demand = SlotDemand { max, running, first, queued, waiting, covers };
        SlotStep { message: Some(grant.message(now, next_number(), &demand)), lost }
    }

    /// Uses a reply. `has_notices` tells whether the store tells processes that wait of free slots. Returns the slots
    /// of running calls that have been lost, and how the store has treated the message that was on its way.
    pub(crate) fn replied(
        &mut self,
        now: Moment,
        number: u32,
        reply: &SlotReply,
        has_notices: bool,
        outcomes: &mut Outcomes<C>,
    ) -> (u32, Option<MessageState>) {
        let Some(grant) = &mut self.grant else { return (0, None) };
        let Some(asked) = grant.replied(now, number, self.max, self.running, reply, has_notices) else {
            return (0, None);
        };
        let lost = grant.lose_if_over(now, self.running);
        if reply.state != MessageState::Stale {
            self.serve(now, outcomes);
            self.deny_covered(now, asked.covers, outcomes);
            let wants_more = u64::from(self.running) + self.queue.slots().min(self.max.into()) > asked.want.into();
            if let Some(grant) = &mut self.grant {
                grant.must_send |= wants_more && !self.queue.is_empty();
            }
        }
        (lost, Some(reply.state))
    }

    /// Looks at once whether slots have come free, or others wait.
    pub(crate) fn woken(&mut self) {
        if let Some(grant) = &mut self.grant {
            grant.woken();
        }
    }

    /// Notes that the store has failed, or has lost data.
    pub(crate) fn store_failed(&mut self, now: Moment) {
        if let Some(grant) = &mut self.grant {
            grant.store_failed(now, self.running);
        }
    }

    /// Uses the failure of a message: no queued call waits for a store that fails.
    pub(crate) fn failed(&mut self, now: Moment, number: u32, retry: Duration, outcomes: &mut Outcomes<C>) {
        if self.grant.as_mut().is_some_and(|grant| grant.failed(now, number, self.running, retry)) {
            outcomes.extend(self.queue.remove_where(|_| true).into_iter().map(|call| (call, SlotOutcome::Failed)));
        }
    }

    fn may_start(&self, now: Moment, claim: SlotClaim) -> bool {
        let after = self.running + u32::from(claim.cost);
        let is_granted = |grant: &SlotGrant| grant.allows(now, self.max, after, claim.is_by_share);
        after <= u32::from(self.max) && self.grant.as_ref().is_none_or(|grant| is_granted(grant))
    }

    fn start(&mut self, now: Moment, cost: u16) -> SlotStart {
        self.running += u32::from(cost);
        let generation = self.grant.as_mut().map_or(0, |grant| grant.used(now, self.running));
        SlotStart { at: now, cost, generation, free: self.free() }
    }

    /// Starts the first queued calls, as far as there are slots.
    fn serve(&mut self, now: Moment, outcomes: &mut Outcomes<C>) {
        while let Some(first) = self.queue.first().filter(|first| self.may_start(now, *first)) {
            let start = self.start(now, first.cost);
            outcomes.extend(self.queue.pop().map(|call| (call, SlotOutcome::Started(start))));
        }
        if let (Some(first), Some(grant)) = (self.queue.first(), &mut self.grant) {
            grant.cannot_start(self.running, first.cost);
        }
    }

    /// Denies the calls that the message of a reply has asked for.
    fn deny_covered(&mut self, now: Moment, covers: u64, outcomes: &mut Outcomes<C>) {
        if !self.queue.has_asking() {
            return;
        }
        let denied = self.queue.remove_where(|queued| !queued.waits && queued.id < covers);
        if let Some(grant) = &mut self.grant {
            grant.must_send |= self.queue.has_asking();
            if !denied.is_empty() {
                grant.denied(now);
            }
        }
        outcomes.extend(denied.into_iter().map(|call| (call, SlotOutcome::Denied)));
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {

    use super::*;

    const RETRY: Duration = Duration::from_millis(100);

    /// A mark without a call would keep slots from others.
    #[test]
    fn a_process_whose_last_call_waits_no_longer_leaves_the_line() {
        let (now, mut outcomes) = (Moment::PAST.after(Duration::from_secs(1)), Outcomes::new());
        let (mut slots, claim) = (new_slots(), SlotClaim { cost: 1, is_by_share: false });
        assert!(slots.enter(now, 1, claim, &mut outcomes).is_none());
        let id = slots.queue(claim, true, ());
        let message = slots.look(now, || 1).message.expect("a call waits");
        assert_eq!((message.want, message.waiting), (1, 1));
        let reply = reply(0, 1);
        slots.replied(now, 1, &reply, true, &mut outcomes);
        assert!(slots.look(now, || 2).message.is_none() && !slots.is_unused());
        slots.cancel(now, id, &mut outcomes);
        let message = slots.look(now, || 3).message.expect("the mark is of no use");
        assert_eq!((message.want, message.waiting), (0, 0));
        slots.replied(now, 3, &reply, true, &mut outcomes);
        assert!(slots.is_unused() && slots.next_look() == Moment::NEVER && outcomes.is_empty());
    }

    /// A key that nobody uses any more would send messages as long as the store fails.
    #[test]
    fn a_process_without_calls_asks_a_store_that_fails_once_more() {
        let (mut now, mut outcomes) = (Moment::PAST.after(Duration::from_secs(1)), Outcomes::new());
        let (mut slots, claim) = (new_slots(), SlotClaim { cost: 1, is_by_share: false });
        slots.queue(claim, false, ());
        slots.look(now, || 1).message.expect("a call asks");
        slots.failed(now, 1, RETRY, &mut outcomes);
        assert_eq!(outcomes, [((), SlotOutcome::Failed)]);
        now = slots.next_look();
        let message = slots.look(now, || 2).message.expect("the store may keep a slot for it");
        assert_eq!((message.want, message.waiting), (0, 0));
        slots.failed(now, 2, RETRY, &mut outcomes);
        assert!(slots.is_unused() && slots.next_look() == Moment::NEVER);
    }

    #[test]
    fn slots_beyond_the_recent_peak_go_back_with_a_renewal() {
        let (mut now, mut outcomes) = (Moment::PAST.after(Duration::from_secs(1)), Outcomes::<()>::new());
        let (mut slots, claim) = (new_slots(), SlotClaim { cost: 1, is_by_share: false });
        let burst = SlotClaim { cost: 50, ..claim };
        assert!(slots.enter(now, 50, burst, &mut outcomes).is_none());
        slots.queue(burst, true, ());
        slots.look(now, || 1).message.expect("a call waits");
        slots.replied(now, 1, &reply(50, 50), true, &mut outcomes);
        let [((), SlotOutcome::Started(burst))] = outcomes[..] else { panic!("50 slots: {outcomes:?}") };
        slots.leave(now, burst, &mut outcomes);
        let (mut number, mut wants) = (1, Vec::new());
        for _ in 0..10_000 {
            now = now.after(Duration::from_micros(900));
            if let Some(message) = slots.look(now, || number + 1).message {
                number += 1;
                wants.push(message.want);
                slots.replied(now, number, &reply(message.want, message.want.into()), true, &mut outcomes);
            }
            let start = slots.enter(now, 50, claim, &mut outcomes).expect("a slot");
            slots.leave(now, start, &mut outcomes);
        }
        // The peak of the first third of a slot time is that of the burst.
        assert_eq!(wants, [50, 1]);
    }

    /// The store was asked for the slots of running calls too, or for those of a call that waits no longer.
    #[test]
    fn a_first_call_that_needs_fewer_slots_asks_at_once() {
        let (now, mut outcomes) = (Moment::PAST.after(Duration::from_secs(1)), Outcomes::new());
        let (mut slots, claim) = (new_slots(), SlotClaim { cost: 1, is_by_share: false });
        slots.enter(now, 4, claim, &mut outcomes);
        slots.queue(claim, true, "one");
        slots.look(now, || 1).message.expect("a call waits");
        slots.replied(now, 1, &reply(1, 1), true, &mut outcomes);
        let Some((_, SlotOutcome::Started(one))) = outcomes.pop() else { panic!("a slot") };
        let all = slots.queue(SlotClaim { cost: 4, ..claim }, true, "all");
        slots.queue(SlotClaim { cost: 2, ..claim }, true, "two");
        assert_eq!(slots.look(now, || 2).message.expect("a call waits").least, 5);
        slots.replied(now, 2, &reply(1, 1), true, &mut outcomes);
        assert!(slots.look(now, || 3).message.is_none(), "nothing has changed");
        slots.leave(now, one, &mut outcomes);
        assert_eq!(slots.look(now, || 3).message.expect("all four may be free").least, 4);
        slots.replied(now, 3, &reply(0, 1), true, &mut outcomes);
        slots.cancel(now, all, &mut outcomes);
        assert_eq!(slots.look(now, || 4).message.expect("two may be free").least, 2);
        slots.replied(now, 4, &reply(0, 3), true, &mut outcomes);
        assert!(slots.look(now, || 5).message.is_none() && outcomes.is_empty(), "it asks once");
    }

    #[test]
    fn a_lowered_limit_denies_calls_that_could_never_start() {
        let (now, mut outcomes) = (Moment::PAST.after(Duration::from_secs(1)), Outcomes::new());
        let (mut slots, claim) = (KeySlots::new(None), SlotClaim { cost: 1, is_by_share: false });
        let held = slots.enter(now, 10, SlotClaim { cost: 3, ..claim }, &mut outcomes).expect("free");
        slots.queue(SlotClaim { cost: 8, ..claim }, true, "large");
        slots.queue(SlotClaim { cost: 2, ..claim }, true, "small");
        assert!(slots.enter(now, 5, claim, &mut outcomes).is_none());
        assert_eq!(outcomes, [("large", SlotOutcome::Denied)]);
        slots.leave(now, held, &mut outcomes);
        assert!(matches!(outcomes[..], [_, ("small", SlotOutcome::Started(_))]), "{outcomes:?}");
    }

    fn new_slots<C>() -> KeySlots<C> {
        KeySlots::new(Some(SlotGrant::new(Duration::from_secs(10), Moment::PAST)))
    }

    fn reply(granted: u16, in_use: u32) -> SlotReply {
        SlotReply {
            state: MessageState::Fresh,
            granted,
            allow: granted,
            share: 0,
            others_wait: false,
            in_use,
            others_waiting: 0,
            first_end: None,
        }
    }
}
