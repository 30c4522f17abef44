//! Random schedules of leases, which the batch script and a naive list of permits must decide alike.

use std::time::Duration;

use limiter_testkit::{Random, full_or};

use crate::clock::{Clock, ManualClock};
use crate::local::leases::LeaseId;
use crate::request::{RefundInfo, Request};
use crate::store::redis::script::action::Action;
use crate::store::redis::script::command::{BatchEntry, LeaseTerms, ReturnedPermits};
use crate::store::redis::script::fuzz::loaded_scripts::LoadedScripts;
use crate::store::redis::script::fuzz::pick;
use crate::store::redis::script::reply::LeaseReply;
use crate::{Key, Limit};

/// Runs of the permits of one key, without an upper bound of their number.
#[derive(Default)]
struct Permits {
    /// Stamps in milliseconds, and the permits of each.
    runs: Vec<(u64, u64)>,
    base: u64,
    mark: Option<u32>,
}

/// The time of one script call, in milliseconds.
#[derive(Clone, Copy)]
struct Time {
    floor: u64,
    ceil: u64,
    window: u64,
}

impl Time {
    fn lease(self) -> u64 {
        (self.window / 64).min(50)
    }
}

impl Permits {
    fn ahead(&self, time: Time) -> u64 {
        self.mark.map_or(0, |_| time.lease())
    }

    /// The runs that count.
    fn live(&self, time: Time) -> Vec<(u64, u64)> {
        let (Time { floor, ceil, window }, ahead) = (time, self.ahead(time));
        let newest = self.runs.last().map_or(0, |run| run.0);
        let now = floor.max(newest.saturating_sub(1 + ahead));
        if newest > ceil + window + ahead {
            return Vec::new();
        }
        self.runs.iter().copied().filter(|run| run.0 + window > now).collect()
    }

    fn used(&self, time: Time) -> u64 {
        self.live(time).iter().map(|run| run.1).sum()
    }

    /// The stamp of the run after whose expiry one permit is free.
    fn stamp_before_next(&self, time: Time, max: u32) -> u64 {
        let mut used = self.used(time);
        let fits = |(stamp, permits): (u64, u64)| {
            used -= permits;
            (used < max.into()).then_some(stamp)
        };
        self.live(time).into_iter().find_map(fits).expect("the limit is used up")
    }

    fn take(&mut self, time: Time, permits: u64, new_mark: Option<u32>) {
        self.runs = self.live(time);
        if self.runs.is_empty() {
            *self = Self { base: time.ceil, ..Self::default() };
        }
        self.mark = self.mark.or(new_mark);
        let newest = self.runs.last().map_or(0, |run| run.0);
        let stamp = newest.max(time.ceil + new_mark.map_or(0, |_| time.lease()));
        match self.runs.last_mut().filter(|run| run.0 == stamp) {
            Some(run) => run.1 += permits,
            None => self.runs.push((stamp, permits)),
        }
    }

    /// Removes permits: from the first run that is not before the stamp, and the rest from the oldest ones.
    fn remove(&mut self, time: Time, permits: u64, stamp: u64) {
        let live = self.live(time);
        let newest = live.last().map_or(0, |run| run.0);
        let now = time.floor.max(newest);
        if live.is_empty() || !(self.base..=newest).contains(&stamp) || stamp + time.window <= now {
            return;
        }
        let has_expired = live.len() < self.runs.len();
        self.runs = live;
        let own = self.runs.iter().position(|run| run.0 >= stamp).expect("the newest run is not before it");
        let from_run = permits.min(self.runs[own].1);
        self.runs[own].1 -= from_run;
        if has_expired || (self.runs[own].1 == 0 && own + 1 == self.runs.len()) {
            self.base = self.base.max((now + 1).saturating_sub(time.window)).min(self.runs[0].0.max(self.base));
        }
        let mut rest = permits - from_run;
        for run in &mut self.runs {
            let removed = rest.min(run.1);
            (run.1, rest) = (run.1 - removed, rest - removed);
        }
        self.runs.retain(|run| run.1 > 0);
    }

    fn give_back(&mut self, time: Time, ReturnedPermits { permits, id }: ReturnedPermits) {
        if self.mark == Some(id.mark) {
            self.remove(time, permits.into(), id.end);
        }
    }

    fn forget(&mut self, time: Time) {
        let mark = self.mark.map(|mark| mark.wrapping_add(1));
        let kept: Vec<_> = self.live(time).into_iter().filter(|run| mark.is_some() && run.0 >= time.floor).collect();
        *self = Self { base: kept.first().map_or(0, |run| run.0), mark, runs: kept };
    }
}

/// The time of the next call.
fn time(clock: &ManualClock, window: u64) -> Time {
    let now = Clock::Manual(clock.clone()).now();
    Time { floor: now.floor_millis(), ceil: now.ceil_millis(), window }
}

/// Random calls, charges, leases, returns, refunds, resets and steps of the clock. The script and the list agree in each reply.
#[test]
fn the_script_leases_as_a_naive_list_does() {
    let rounds = full_or(60_000, 6_000);
    let script = LoadedScripts::new();
    let mut random = Random::new(7);
    let (mut leases, mut returns, mut resets, mut ahead, mut exhausted) = (0, 0, 0, 0, 0);
    let (mut charges, mut uncounted) = (0, 0);
    for round in 0..rounds {
        let window = [100, 640, 5_000][pick(&mut random, 3)];
        // Leases of nearly used up limits are of a quarter of what is left, or of a cell's part of a large limit.
        let max = [random.between(40, 400), random.between(1_000, 8_000)][pick(&mut random, 2)];
        let max = u32::try_from(max).expect("small");
        let limit = Limit::new(max, Duration::from_millis(window)).expect("a limit");
        let (mut permits, key) = (Permits::default(), Key::new("a"));
        let mut granted: Vec<ReturnedPermits> = Vec::new();
        let mut receipts: Vec<(u64, u32)> = Vec::new();
        script.delete_keys();
        for step in 0..random.between(4, 14) {
            let longest = window * [20, 200, 1_100][pick(&mut random, 3)];
            let by = Duration::from_micros(random.below(longest));
            if random.below(8) == 0 {
                script.clock.rewind(by);
            } else {
                script.clock.advance(by);
            }
            let time = time(&script.clock, window);
            let what = format!("round {round}, step {step}");
            match random.below(12) {
                0 => {
                    script.decide(&Action::Reset, Request::new(&key, limit, 0));
                    permits.forget(time);
                    resets += 1;
                }
                1 | 2 if !receipts.is_empty() => {
                    let (stamp, cost) = receipts.swap_remove(pick(&mut random, receipts.len()));
                    script.decide(
                        &Action::Refund(Box::new(RefundInfo::from_store(stamp))),
                        Request::new(&key, limit, cost),
                    );
                    permits.remove(time, cost.into(), stamp.div_ceil(1000));
                }
                3 => {
                    let cost = match random.below(24) {
                        0 => u64::from(u32::MAX) - random.below(60),
                        1..=3 => u64::from(max) / 2,
                        _ => random.below(20),
                    };
                    let cost = u32::try_from(cost).expect("at most the most");
                    let (entry, _) = script.batch(BatchEntry { limit, cost, calls: 1, is_charge: true, lease: None });
                    let counted = u64::from(cost).min(u64::from(u32::MAX) - permits.used(time));
                    if counted > 0 {
                        permits.take(time, counted, None);
                    }
                    let (used, max) = (permits.used(time), u64::from(max));
                    let charge = entry.charge().expect("a charge");
                    let numbers = [charge.uncounted, charge.remaining, charge.overdrawn].map(u64::from);
                    let expected = [u64::from(cost) - counted, max.saturating_sub(used), used.saturating_sub(max)];
                    assert_eq!(numbers, expected, "not counted, left and beyond the limit: {what}");
                    charges += 1;
                    uncounted += u32::from(charge.uncounted > 0);
                }
                _ => {
                    let wanted = if random.below(2) == 0 { 0 } else { u32::try_from(random.below(60)).expect("small") };
                    let returned = (random.below(3) == 0 && !granted.is_empty()).then(|| {
                        returns += 1;
                        granted.swap_remove(pick(&mut random, granted.len()))
                    });
                    let new_mark = u32::try_from(random.any() >> 32).expect("32 bits");
                    let (cost, calls) = if random.below(4) == 0 {
                        let left = u64::from(max).saturating_sub(permits.used(time));
                        (left.saturating_sub(random.below(60)), 1)
                    } else {
                        (random.below(4), random.between(1, 5))
                    };
                    let [cost, calls] = [cost, calls].map(|number| u32::try_from(number).expect("small"));
                    let lease = Some(LeaseTerms { wanted, new_mark, returned });
                    let (entry, reply) = script.batch(BatchEntry { limit, cost, calls, is_charge: false, lease });

                    returned.into_iter().for_each(|returned| permits.give_back(time, returned));
                    let left = u64::from(max).saturating_sub(permits.used(time));
                    let fitting = u32::try_from(left).expect("small").min(cost * calls).checked_div(cost);
                    let expected = fitting.unwrap_or(calls);
                    let mut leased = if expected == calls {
                        let left = left - u64::from(expected * cost);
                        left.min(wanted.into()).min((left / 4).max(u64::from(max) / 128))
                    } else {
                        0
                    };
                    if leased < u64::from(cost).max(8) {
                        leased = 0;
                    }
                    let taken = u64::from(expected * cost) + leased;
                    if taken > 0 {
                        permits.take(time, taken, (leased > 0).then_some(new_mark));
                    }
                    let newest = permits.live(time).last().map_or(0, |run| run.0);
                    let id = permits.mark.filter(|_| newest > time.ceil).map(|mark| LeaseId { mark, end: newest });
                    assert_eq!(entry.granted, expected, "calls granted: {what}");
                    assert_eq!(
                        u64::from(entry.remaining),
                        u64::from(max).saturating_sub(permits.used(time)),
                        "permits left: {what}"
                    );
                    assert_eq!(
                        reply,
                        LeaseReply { permits: u32::try_from(leased).expect("small"), id },
                        "the lease: {what}"
                    );
                    if entry.remaining == 0 && expected == calls && id.is_some() {
                        let freeing = (permits.stamp_before_next(time, max) + window) * 1_000;
                        let now = Clock::Manual(script.clock.clone()).now().micros();
                        let retry_after = Duration::from_micros(freeing.saturating_sub(now));
                        assert_eq!(entry.retry_after, Some(retry_after), "the next permit: {what}");
                        exhausted += 1;
                    }
                    ahead += u32::from(id.is_some());
                    if let Some(id) = id.filter(|_| leased > 0) {
                        leases += 1;
                        let unused = u32::try_from(random.between(1, leased)).expect("small");
                        granted.push(ReturnedPermits { permits: unused, id });
                    }
                    if expected > 0 && cost > 0 {
                        let micros = Clock::Manual(script.clock.clone()).now().micros();
                        receipts
                            .push((micros, u32::try_from(random.between(1, (expected * cost).into())).expect("small")));
                    }
                }
            }
        }
    }
    println!("{leases} leases, {returns} returned, {resets} resets, {ahead} with a stamp ahead of the clock");
    println!("{exhausted} limits used up, {charges} charges, {uncounted} in part");
    assert!(uncounted > rounds / 1_000, "charges of full counters");
    assert!([leases, returns, resets, exhausted, charges].iter().all(|count| *count > rounds / 10), "of each kind");
}

/// A fault: permits of a call expired, others took their place, and the clock stepped back by a little. The stamp of the
/// latter permits was read as that of a lease, which is ahead of the clock. So it did not prove that the former ones had
/// expired, and their refund removed permits of others.
#[test]
fn expired_permits_of_a_log_with_leases_are_not_returned_after_a_step_back() {
    let scripts = LoadedScripts::new();
    assert_eq!(permits_after_late_returns(&scripts), [0, 0]);
    // The permits of both returns, by the former comparison.
    let former = LoadedScripts::with_replaced("max(now_floor, log.newest)", "max(now_floor, log.newest - log.ahead)");
    assert_eq!(permits_after_late_returns(&former), [6, 14]);
}

/// Takes 6 permits and leases 8, and returns them after their expiry and a step back. Returns the permits left after each
/// return.
fn permits_after_late_returns(scripts: &LoadedScripts) -> [u32; 2] {
    let (limit, key) = (Limit::new(46, Duration::from_millis(300)).expect("a limit"), Key::new("a"));
    let call = |cost, calls, wanted, returned| {
        scripts.batch(BatchEntry {
            limit,
            cost,
            calls,
            is_charge: false,
            lease: Some(LeaseTerms { wanted, new_mark: 7, returned }),
        })
    };
    // The lease of another process, so that the log has leases.
    call(0, 1, 8, None);
    scripts.clock.advance(Duration::from_millis(10));
    let lease = call(0, 1, 8, None).1;
    scripts.clock.advance(Duration::from_millis(4));
    // The stamp of these permits is the end of the lease.
    let receipt = call(6, 1, 0, None).0.stamp;
    // Permits that still count later, so that the log goes on.
    scripts.clock.advance(Duration::from_millis(150));
    call(2, 1, 0, None);
    scripts.clock.advance(Duration::from_millis(150));
    assert_eq!(call(1, 46, 0, None).0.granted, 44, "all earlier permits have expired");
    scripts.clock.rewind(Duration::from_millis(20));
    scripts.decide(&Action::Refund(Box::new(RefundInfo::from_store(receipt))), Request::new(&key, limit, 6));
    let after_refund = call(0, 1, 0, None).0.remaining;
    let after_return = call(0, 1, 0, lease.id.map(|id| ReturnedPermits { permits: lease.permits, id })).0.remaining;
    [after_refund, after_return]
}

/// A lease ends, its log is reset, and the clock steps back. So the next log has permits from the time of that lease. The
/// mark shows that they are not those of the lease.
#[test]
fn permits_of_a_lease_are_not_returned_to_a_later_log() {
    assert_eq!(permits_after_return_to_later_log(&LoadedScripts::new()), 0);
    let without_mark = LoadedScripts::with_replaced("log.mark == mark and remove(", "remove(");
    assert_eq!(permits_after_return_to_later_log(&without_mark), 8);
}

/// Returns the permits left after the return of 8 permits to a full log.
fn permits_after_return_to_later_log(scripts: &LoadedScripts) -> u32 {
    let (limit, key) = (Limit::new(46, Duration::from_millis(300)).expect("a limit"), Key::new("a"));
    let call = |calls, cost, new_mark, wanted, returned| {
        scripts.batch(BatchEntry {
            limit,
            cost,
            calls,
            is_charge: false,
            lease: Some(LeaseTerms { wanted, new_mark, returned }),
        })
    };
    let lease = call(1, 0, 7, 8, None).1;
    assert_eq!(lease.permits, 8);
    scripts.clock.advance(Duration::from_millis(10));
    scripts.decide(&Action::Reset, Request::new(&key, limit, 0));
    scripts.clock.rewind(Duration::from_millis(10));
    assert_eq!(call(30, 1, 9, 0, None).0.granted, 30);
    scripts.clock.advance(Duration::from_millis(5));
    assert_eq!(call(16, 1, 9, 0, None).0.granted, 16);
    call(1, 0, 9, 0, lease.id.map(|id| ReturnedPermits { permits: lease.permits, id })).0.remaining
}
