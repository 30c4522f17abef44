//! The slots of one key that the store has granted to this process, and the messages about them.
//!
//! A message says absolutely what the process has and wants. At most one is on its way. The store keeps the slots of a
//! process until its entry ends there, and the process uses none after its own end, which is earlier:
//!
//! 1. The own end is counted from before the message was sent, by a clock that goes on during a suspension.
//! 2. Slots that go back are not used from before the message is sent.
//! 3. The store's count of slots that the process may reach before the reply sinks by no message.
//!
//! So calls with slots are never more than the limit, unless their process gets no message through for most of a slot
//! time. Their slots are then lost, and the calls go on.

use std::num::NonZeroU32;
use std::time::Duration;

use super::message::{MessageState, SlotMessage, SlotReply};
use crate::clock::Moment;

/// The slots that a process may use, and the times at which it talks to the store.
#[derive(Debug)]
pub(crate) struct SlotGrant {
    /// A number of whole [units](SLOT_TIME_UNIT).
    slot_time: Duration,
    /// The slots that may be used before `end`.
    allow: u32,
    end: Moment,
    /// The slots that the store keeps for this process.
    held: u32,
    in_flight: Option<SentMessage>,
    /// The instant before the last message with a reply was sent.
    renewed_at: Moment,
    /// No message is sent before, unless calls wait for its reply.
    retry_at: Moment,
    /// The instant of the next message of a process that waits.
    ask_at: Moment,
    /// The last instant at which a call began or ended.
    used_at: Moment,
    /// The most slots in use since the last renewal.
    peak: u32,
    /// The last instant at which a call was denied, and the one before.
    denied_at: [Moment; 2],
    /// The slots of each process that has or wants some.
    share: u32,
    /// A process that has less waits.
    others_wait: bool,
    /// Notices come when others wait.
    has_notices: bool,
    /// The last instant at which a call began or ended without a message.
    reused_at: Moment,
    /// The slots that no process had.
    free: u32,
    /// A message is due at once.
    pub(super) must_send: bool,
    /// The store has a mark of calls that wait here.
    has_mark: bool,
    /// The slots of running calls that are lost, or that the store never kept.
    lost: u32,
    /// The slots with which the first queued call of the last message can start.
    least: u32,
    /// The number of times that slots were lost.
    generation: u32,
    /// The instant until which the store may not know of calls of other processes.
    unsure_until: Moment,
    /// The number of instances that have a share each while the store fails.
    instances: NonZeroU32,
}

#[derive(Debug)]
struct SentMessage {
    number: u32,
    sent_at: Moment,
    /// Calls with lower ids are decided by its reply.
    covers: u64,
    want: u32,
    /// Calls wait for its slots.
    is_waiting: bool,
    /// Slots that go back with the next message.
    returned: u32,
}

/// The demand of a message.
pub(super) struct AskedSlots {
    /// Calls with lower ids are decided by its reply.
    pub(super) covers: u64,
    pub(super) want: u32,
}

/// The calls that a message is about.
pub(super) struct SlotDemand {
    pub(super) max: u16,
    pub(super) running: u32,
    /// The cost of the first queued call.
    pub(super) first: Option<u16>,
    /// The slots of all queued calls.
    pub(super) queued: u64,
    /// The slots of those that wait.
    pub(super) waiting: u64,
    /// The id of the next call.
    pub(super) covers: u64,
}

/// The time for which a freed slot is kept, for the next call.
const KEPT: Duration = Duration::from_millis(1);
/// The time for which the slots of a large limit are kept.
const KEPT_OF_LARGE: Duration = Duration::from_millis(100);
/// The time for which a slot is kept that came too late for a call.
const KEPT_FOR_DENIED: Duration = Duration::from_millis(20);
/// Above it a process keeps a reserve.
const SMALL: u16 = 64;
/// The part of the free slots that a reserve has.
const RESERVE: u32 = 16;
/// The time between two denials of calls that come often.
const OFTEN: Duration = Duration::from_millis(100);
/// The time between two messages of a process that waits and is told of free slots.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two messages of one that has no notices.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The unit of slot times in messages. The store must not count a shorter time than the process.
const SLOT_TIME_UNIT: Duration = Duration::from_millis(10);

impl SlotGrant {
    /// `failed_at` is the instant of the store's last failure.
    pub(crate) fn new(slot_time: Duration, failed_at: Moment) -> Self {
        let slot_time = SLOT_TIME_UNIT * u32::from(slot_time_units(slot_time));
        Self {
            slot_time,
            allow: 0,
            end: Moment::PAST,
            held: 0,
            in_flight: None,
            renewed_at: Moment::PAST,
            retry_at: Moment::PAST,
            ask_at: Moment::PAST,
            used_at: Moment::PAST,
            peak: 0,
            denied_at: [Moment::PAST; 2],
            share: u32::MAX,
            others_wait: false,
            has_notices: true,
            reused_at: Moment::PAST,
            free: 0,
            must_send: false,
            has_mark: false,
            lost: 0,
            least: 0,
            generation: 0,
            unsure_until: failed_at.after(slot_time),
            instances: NonZeroU32::MIN,
        }
    }

    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// Returns whether the store keeps more slots than run.
    pub(super) fn has_free(&self, running: u32) -> bool {
        self.held > running
    }

    pub(super) fn is_unused(&self) -> bool {
        self.held == 0 && self.in_flight.is_none() && !self.has_mark
    }

    /// Sets the number of instances that have a share each.
    pub(super) fn set_instances(&mut self, instances: NonZeroU32) {
        self.instances = instances;
    }

    /// The slots of this process while the store fails: its share, at least one.
    pub(super) fn standby_share(&self, max: u16) -> u32 {
        (u32::from(max) / self.instances).max(1)
    }

    /// Notes that the store has failed, or has lost data: processes may run calls that it does not know.
    pub(super) fn store_failed(&mut self, now: Moment, running: u32) {
        self.unsure_until = now.after(self.slot_time);
        self.must_send |= running > 0 || self.held > 0;
    }

    /// Looks at once whether slots have come free, or others wait.
    pub(crate) fn woken(&mut self) {
        self.must_send = true;
    }

    /// Returns whether so many slots may be in use. For a slot time after a failure of the store, which may not know of
    /// calls that others run, this process's share is a limit of calls by shares too.
    pub(super) fn allows(&self, now: Moment, max: u16, running: u32, is_by_share: bool) -> bool {
        let is_within_share = || !is_by_share || running <= self.standby_share(max);
        running <= self.allow && now < self.end && (now >= self.unsure_until || is_within_share())
    }

    /// Notes the start of a call, and returns the generation of its slots.
    pub(super) fn used(&mut self, now: Moment, running: u32) -> u32 {
        (self.used_at, self.reused_at) = (now, now);
        self.peak = self.peak.max(running);
        self.generation
    }

    /// Notes the start of a call for which the store keeps no slots, and returns their generation: there is nothing to
    /// lose.
    pub(super) fn used_without_slots(&mut self, now: Moment, cost: u16) -> u32 {
        self.used_at = now;
        self.lost += u32::from(cost);
        self.generation.wrapping_sub(1)
    }

    pub(super) fn denied(&mut self, now: Moment) {
        self.denied_at = [now, self.denied_at[0]];
    }

    /// Notes the end of a call. Its slots go back if others have less than their share.
    pub(super) fn freed(&mut self, now: Moment, cost: u32, generation: u32, running: u32) {
        (self.used_at, self.reused_at) = (now, now);
        if generation != self.generation {
            self.lost = self.lost.saturating_sub(cost);
        }
        let idle = self.allow.saturating_sub(running);
        if self.others_wait && self.allow > self.share {
            let returned = idle.min(cost).min(self.allow - self.share);
            self.allow -= returned;
            self.must_send |= returned > 0;
            if let Some(sent) = &mut self.in_flight {
                sent.returned += returned;
            }
        }
    }

    /// Asks again for the first queued call, which cannot start: it needs fewer slots than the store was asked for, or the
    /// free ones here are too few for it, and others could use them.
    pub(super) fn cannot_start(&mut self, running: u32, cost: u16) {
        let needed = running.saturating_add(cost.into());
        self.must_send |= needed < self.least || running < self.allow && self.allow < needed;
    }

    /// Loses the slots of running calls if they have ended. Returns those that are lost for the first time.
    pub(super) fn lose_if_over(&mut self, now: Moment, running: u32) -> u32 {
        if now < self.end {
            return 0;
        }
        self.allow = 0;
        if running == 0 {
            self.held = 0;
        }
        let lost = running.saturating_sub(self.lost);
        if lost > 0 {
            self.lost = running;
            self.generation = self.generation.wrapping_add(1);
        }
        lost
    }

    /// Returns whether a slot that comes too late is of use: calls come often, and do not wait.
    fn is_denied_often(&self, now: Moment) -> bool {
        now < self.denied_at[1].after(OFTEN)
    }

    /// The instant from which free slots go back.
    fn kept_until(&self, max: u16) -> Moment {
        let time = match max {
            ..=SMALL if self.is_denied_often(self.used_at) => KEPT_FOR_DENIED,
            ..=SMALL => KEPT,
            _ => KEPT_OF_LARGE,
        };
        if self.others_wait { Moment::PAST } else { self.used_at.after(time) }
    }

    /// The instant of the next renewal. A process that has no notices learns only from replies that others wait, so it
    /// renews slots often that its own calls use one after the other.
    fn renewal_at(&self) -> Moment {
        let is_polled = !self.has_notices && self.reused_at > self.renewed_at;
        self.renewed_at.after(if is_polled { POLL_INTERVAL.min(self.slot_time / 3) } else { self.slot_time / 3 })
    }

    /// The instant of the next message; none while one is on its way.
    fn due_at(&self, max: u16, running: u32, is_queued: bool) -> Moment {
        if self.in_flight.is_some() {
            return Moment::NEVER;
        }
        if self.must_send && is_queued {
            return Moment::PAST;
        }
        // A mark without a call would keep slots from others.
        let must_send = self.must_send || self.has_mark && !is_queued;
        let mut due = if must_send { Moment::PAST } else { Moment::NEVER };
        if running > 0 || self.held > 0 {
            due = due.min(self.renewal_at());
        }
        if is_queued {
            due = due.min(self.ask_at);
        } else if self.allow.max(self.held) > running {
            due = due.min(self.kept_until(max));
        }
        due.max(self.retry_at)
    }

    pub(super) fn is_due(&self, now: Moment, max: u16, running: u32, is_queued: bool) -> bool {
        self.due_at(max, running, is_queued) <= now
    }

    /// The instant of the next message, or of the end of running calls' slots.
    pub(super) fn next_look(&self, max: u16, running: u32, is_queued: bool) -> Moment {
        let end = if running > self.lost { self.end } else { Moment::NEVER };
        self.due_at(max, running, is_queued).min(end)
    }

    /// Makes the message for the store. Slots that go back must not be used from now on.
    pub(super) fn message(&mut self, now: Moment, number: u32, demand: &SlotDemand) -> SlotMessage {
        let &SlotDemand { max, running, first, queued, waiting, covers } = demand;
        let queued = u32::try_from(queued).unwrap_or(u32::MAX).min(max.into());
        let (want, waiting) = match first {
            None if now < self.kept_until(max) => (running.max(self.allow.min(self.peak)), 0),
            None => (running, 0),
            Some(_) => {
                let reserve = if max > SMALL && !self.others_wait { self.free / RESERVE } else { 0 };
                let is_mark = waiting == 0 && self.is_denied_often(now);
                (running.saturating_add(queued).saturating_add(reserve), if is_mark { queued.into() } else { waiting })
            }
        };
        // Too few for the first queued call, which others could use.
        self.allow = self.allow.min(if first.is_some() { running } else { want });
        self.least = first.map_or(0, |cost| running.saturating_add(cost.into()));
        let asks_again = first.is_some() && self.ask_at <= now;
        self.must_send = false;
        if now >= self.renewal_at() {
            self.peak = running;
        }
        let is_waiting = demand.waiting > 0;
        self.has_mark |= is_waiting;
        self.in_flight = Some(SentMessage { number, sent_at: now, covers, want, is_waiting, returned: 0 });
        let slots = |slots: u32| u16::try_from(slots).unwrap_or(u16::MAX);
        SlotMessage {
            number,
            run: slots(running),
            hold: slots(running.max(self.allow)),
            want: slots(want),
            least: first.map_or(0, |cost| slots(running.saturating_add(cost.into()))),
            waiting: u16::try_from(waiting).unwrap_or(u16::MAX).min(max),
            max,
            slot_time: slot_time_units(self.slot_time),
            asks_again,
        }
    }

    /// Uses a reply to the message that is on its way. Returns what the message asked for; `None` for another message,
    /// whose reply means nothing.
    pub(super) fn replied(
        &mut self,
        now: Moment,
        number: u32,
        max: u16,
        running: u32,
        reply: &SlotReply,
        has_notices: bool,
    ) -> Option<AskedSlots> {
        let sent = self.in_flight.take_if(|sent| sent.number == number)?;
        let SentMessage { sent_at, covers, want, is_waiting, returned, .. } = sent;
        let asked = AskedSlots { covers, want };
        self.renewed_at = sent_at;
        if reply.state == MessageState::Stale {
            (self.allow, self.held, self.must_send, self.has_mark) = (0, 0, true, false);
            return Some(asked);
        }
        if reply.state == MessageState::Damaged {
            self.store_failed(now, running);
        }
        let slack = Duration::from_millis(1) + self.slot_time / 1000;
        self.end = sent_at.after(self.slot_time.saturating_sub(slack));
        if self.held < reply.granted.into() {
            self.peak = self.peak.max(reply.granted.into());
        }
        self.held = reply.granted.into();
        self.has_mark = is_waiting && self.held < want;
        self.allow = u32::from(reply.allow).saturating_sub(returned);
        self.must_send |= returned > 0;
        self.share = reply.share.into();
        (self.others_wait, self.has_notices) = (reply.others_wait, has_notices);
        self.free = u32::from(max).saturating_sub(reply.in_use);
        self.used_at = now;
        let first_end = reply.first_end.map_or(Moment::NEVER, |end| now.after(end + Duration::from_millis(1)));
        let interval = if has_notices { ASK_INTERVAL.min(self.slot_time / 3) } else { POLL_INTERVAL };
        self.ask_at = now.after(interval).min(first_end);
        Some(asked)
    }

    /// Uses the failure of a message. The next one is sent after the time `retry`, unless calls wait for its reply.
    /// Returns whether it was the one on its way.
    pub(super) fn failed(&mut self, now: Moment, number: u32, running: u32, retry: Duration) -> bool {
        let Some(sent) = self.in_flight.take_if(|sent| sent.number == number) else { return false };
        self.store_failed(now, running);
        // The store may have granted what it wanted. A mark ends by itself.
        self.must_send |= sent.want > 0;
        self.has_mark &= self.must_send;
        self.retry_at = now.after(retry.min(self.slot_time / 6));
        true
    }
}

fn slot_time_units(slot_time: Duration) -> u16 {
    u16::try_from(slot_time.as_millis() / SLOT_TIME_UNIT.as_millis()).unwrap_or(u16::MAX)
}
