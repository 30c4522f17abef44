//! References for the two buckets. They replay the whole history for every call.

use super::{Charged, Verdict, counted_part};

/// The reference for a token bucket: at most `burst` permits are missing at any time.
///
/// Time is in whole microseconds, and the window must be the same for every call. When time steps back before the last
/// call that took permits, it counts as that call's time, if that is at most one window ahead. If it is further ahead,
/// the history is void.
///
/// `max` and `burst` may change. Missing permits flow back at the `max` of the current call. They are all back no later
/// than at the `max` of the last call that took permits.
#[derive(Debug, Clone, Default)]
pub struct TokenBucketOracle {
    history: History,
}

/// The reference for a leaky bucket: a queue that admits one permit every `window / max`, and holds up to `burst`
/// waiting permits.
///
/// Time and changes of the limit are handled as in the [`TokenBucketOracle`].
#[derive(Debug, Clone, Default)]
pub struct LeakyBucketOracle {
    history: History,
}

/// The rate at which permits flow back: `max` per window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate {
    window: u128,
    max: u128,
}

#[derive(Debug, Clone, Default)]
struct History(Vec<Event>);

#[derive(Debug, Clone, Copy)]
struct Event {
    at: u64,
    rate: Rate,
    change: Change,
}

#[derive(Debug, Clone, Copy)]
enum Change {
    /// Permits were taken.
    Took(u32),
    /// This many permits, times the window, were refunded.
    Refunded(u128),
}

impl Rate {
    fn new(window_us: u64, max: u32) -> Self {
        Self { window: window_us.into(), max: max.into() }
    }
}

impl TokenBucketOracle {
    /// Creates an oracle without a history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides a call, and records the permits of an allowed one.
    pub fn check(&mut self, now_us: u64, window_us: u64, (max, burst): (u32, u32), cost: u32) -> Verdict {
        let rate = Rate::new(window_us, max);
        // All amounts are multiplied by the window, so that nothing is divided.
        let room = |missing: u128| u128::from(burst) * rate.window >= missing + u128::from(cost) * rate.window;
        let fits = |at| cost == 0 || room(self.history.missing(at, rate));
        let retry_after = first_wait(now_us, (cost <= burst).then_some(fits));
        if retry_after == Some(0) {
            self.history.take(now_us, cost, rate);
        }
        let missing = self.history.missing(now_us, rate);
        let whole = (u128::from(burst) * rate.window).saturating_sub(missing) / rate.window;
        Verdict {
            allowed: retry_after == Some(0),
            remaining: u32::try_from(whole).expect("at most `burst`"),
            retry_after,
            reset_after: self.history.empty_after(now_us, rate),
        }
    }

    /// Takes permits whether they fit or not: as many as are missing `2 * burst` at most.
    pub fn charge(&mut self, now_us: u64, window_us: u64, (max, burst): (u32, u32), cost: u32) -> Charged {
        self.history.charge(now_us, Rate::new(window_us, max), (burst.into(), burst), cost)
    }

    /// Refunds a call made at `stamp_us`, except for permits that have flowed back since.
    pub fn refund(&mut self, now_us: u64, window_us: u64, max: u32, (stamp_us, cost): (u64, u32)) {
        let rate = Rate::new(window_us, max);
        let Some(now) = self.history.instant(now_us, rate) else { return };
        let since = self.history.0.first().map_or(0, |event| event.at);
        if since <= stamp_us && stamp_us <= now {
            let flowed = u128::from(now - stamp_us) * rate.max;
            self.history.refund(now, rate, (u128::from(cost) * rate.window).saturating_sub(flowed));
        }
    }
}

impl LeakyBucketOracle {
    /// Creates an oracle without a history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides a call that may wait up to `max_wait_us`, and reserves its turn if that comes in time. Also returns its
    /// wait.
    pub fn check(
        &mut self,
        now_us: u64,
        window_us: u64,
        (max, burst): (u32, u32),
        (cost, max_wait_us): (u32, u64),
    ) -> (Verdict, u64) {
        let rate = Rate::new(window_us, max);
        let free = |at| cost == 0 || self.history.missing(at, rate) == 0;
        let wait_for_turn = first_wait(now_us, (cost <= burst).then_some(free));
        let missing = self.history.missing(now_us, rate);
        let has_room = missing + u128::from(cost) * rate.window <= (u128::from(burst) + 1) * rate.window;
        let allowed = wait_for_turn.is_some_and(|wait| wait == 0 || (wait <= max_wait_us && has_room));
        if allowed {
            self.history.take(now_us, cost, rate);
        }
        let verdict = Verdict {
            allowed,
            remaining: if self.history.missing(now_us, rate) == 0 { burst } else { 0 },
            retry_after: if allowed { Some(0) } else { wait_for_turn },
            reset_after: self.history.empty_after(now_us, rate),
        };
        (verdict, wait_for_turn.filter(|_| allowed).unwrap_or(0))
    }

    /// Takes the turns of permits whether they fit or not: as many as make `2 * burst + 1` with those before at most.
    pub fn charge(&mut self, now_us: u64, window_us: u64, (max, burst): (u32, u32), cost: u32) -> Charged {
        let rate = Rate::new(window_us, max);
        let charged = self.history.charge(now_us, rate, (u64::from(burst) + 1, burst), cost);
        Charged { remaining: if self.history.missing(now_us, rate) == 0 { burst } else { 0 }, ..charged }
    }

    /// Refunds the turn of a call made at `stamp_us`, if no later turn has been taken. The turn is then shorter from its
    /// start on, so the permits that are left flow back at the `max` of later calls.
    pub fn refund(&mut self, now_us: u64, window_us: u64, max: u32, (stamp_us, cost): (u64, u32)) {
        let rate = Rate::new(window_us, max);
        let is_take = |event: &&Event| event.at >= stamp_us && matches!(event.change, Change::Took(_));
        let mut takes_from_then = self.history.0.iter().filter(is_take);
        if let (Some(Event { at, .. }), None) = (takes_from_then.next(), takes_from_then.next())
            && *at == stamp_us
            && self.history.missing(now_us, rate) > 0
        {
            self.history.refund(stamp_us, rate, u128::from(cost) * rate.window);
        }
    }
}

impl History {
    /// Returns the missing permits at an instant, times the window, for a call with this rate.
    fn missing(&self, at: u64, rate: Rate) -> u128 {
        let Some(at) = self.instant(at, rate) else { return 0 };
        let mut missing: u128 = 0;
        let mut all_back = 0;
        for (index, event) in self.0.iter().enumerate() {
            if all_back <= event.at {
                missing = 0;
            }
            match event.change {
                Change::Took(cost) => {
                    missing += u128::from(cost) * event.rate.window;
                    all_back = event.at + div_ceil_micros(missing, event.rate.max);
                }
                Change::Refunded(back) => missing = missing.saturating_sub(back),
            }
            let (until, rate) = self.0.get(index + 1).map_or((at, rate), |next| (next.at, next.rate));
            missing = missing.saturating_sub(u128::from(until - event.at) * rate.max);
        }
        if all_back <= at { 0 } else { missing }
    }

    /// Takes permits up to `debt` beyond the capacity. A part of a permit that is missing counts as a whole.
    fn charge(&mut self, now: u64, rate: Rate, (capacity, debt): (u64, u32), cost: u32) -> Charged {
        let used = |history: &Self| u64::try_from(history.missing(now, rate).div_ceil(rate.window)).expect("few");
        let (counted, uncounted) = counted_part(cost, used(self), capacity + u64::from(debt));
        self.take(now, counted, rate);
        Charged::new(uncounted, used(self), capacity, self.empty_after(now, rate))
    }

    fn empty_after(&self, now: u64, rate: Rate) -> u64 {
        first_wait(now, Some(|at| self.missing(at, rate) == 0)).expect("everything comes back")
    }

    /// Returns the instant that a time counts as, or `None` if the history is void.
    fn instant(&self, now: u64, rate: Rate) -> Option<u64> {
        let last = self.0.last().map_or(0, |event| event.at);
        (u128::from(last) <= u128::from(now) + rate.window).then(|| now.max(last))
    }

    fn take(&mut self, now: u64, cost: u32, rate: Rate) {
        if cost == 0 {
            return;
        }
        let at = self.instant(now, rate).unwrap_or(now);
        if self.missing(now, rate) == 0 {
            // Earlier events no longer matter.
            self.0.clear();
        }
        self.0.push(Event { at, rate, change: Change::Took(cost) });
    }

    fn refund(&mut self, at: u64, rate: Rate, back: u128) {
        if back == 0 || self.missing(at, rate) == 0 {
            return;
        }
        self.0.push(Event { at, rate, change: Change::Refunded(back) });
        if self.missing(at, rate) == 0 {
            self.0.clear();
        }
    }
}

fn div_ceil_micros(units: u128, rate: u128) -> u64 {
    u64::try_from(units.div_ceil(rate)).expect("within ages")
}

/// Returns the least wait after which `holds` is true, by bisection. `holds` must stay true from then on.
fn first_wait(now: u64, holds: Option<impl Fn(u64) -> bool>) -> Option<u64> {
    let holds = holds?;
    let (mut low, mut high) = (0, 1);
    while !holds(now + high) {
        high *= 2;
    }
    while low < high {
        let middle = u64::midpoint(low, high);
        if holds(now + middle) { high = middle } else { low = middle + 1 }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    /// The definition, for one limit: no stretch of time has more permits than the burst and its refill.
    #[test]
    fn a_token_bucket_admits_up_to_its_burst_and_refill_in_every_stretch() {
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let mut small = |high| u32::try_from(random.between(1, high)).expect("small");
            let (max, burst, window) = (small(9), small(9), u64::from(small(5_000)));
            let mut oracle = TokenBucketOracle::new();
            let mut admitted: Vec<(u64, u32)> = Vec::new();
            let mut now = 0;
            for _ in 0..200 {
                now += u64::from(small(window.div_ceil(max.into()) + 1)) - 1;
                let cost = small(3);
                admitted.push((now, cost));
                let keeps = (0..admitted.len()).all(|from| {
                    let taken: u32 = admitted[from..].iter().map(|(_, cost)| cost).sum();
                    let flowed = u64::from(max) * (now - admitted[from].0);
                    u64::from(taken) * window <= u64::from(burst) * window + flowed
                });
                let allowed = oracle.check(now, window, (max, burst), cost).allowed;
                assert_eq!(allowed, keeps, "seed {seed} at {now}");
                if !allowed {
                    admitted.pop();
                }
            }
        }
    }

    #[test]
    fn a_leaky_bucket_admits_one_permit_per_interval() {
        let (window, max) = (1_000, 4);
        let mut oracle = LeakyBucketOracle::new();
        let mut turns = Vec::new();
        for now in (0..400).step_by(100) {
            let (verdict, delay) = oracle.check(now, window, (max, 9), (1, 10_000));
            assert!(verdict.allowed);
            turns.push(now + delay);
        }
        assert_eq!(turns, [0, 250, 500, 750]);
        let (refused, _) = oracle.check(400, window, (max, 9), (1, 599));
        assert_eq!((refused.allowed, refused.retry_after, refused.reset_after), (false, Some(600), 600));
        assert!(oracle.check(400, window, (max, 9), (1, 600)).0.allowed);
        let (full, _) = oracle.check(1_000, window, (max, 1), (2, 10_000));
        assert_eq!((full.allowed, full.retry_after), (false, None), "more than ever fits");
    }

    #[test]
    fn a_queue_holds_up_to_its_burst() {
        let mut oracle = LeakyBucketOracle::new();
        let mut allowed = |now| oracle.check(now, 1_000, (1, 2), (1, 1_000_000)).0.allowed;
        assert_eq!([allowed(0), allowed(0), allowed(0), allowed(0)], [true, true, true, false], "one passes, two wait");
        assert!(!allowed(999) && allowed(1_000) && !allowed(1_000));
    }
}
