//! What the buckets must answer: play the whole history again for every question.

use super::Verdict;

/// A token bucket: what was taken and has not come back is at most `burst`.
///
/// Time is in whole microseconds and must not go back. The window must be the same for every call; `max` and `burst`
/// may change: what is missing flows back at the `max` of whoever asks, and is all back at the latest when it would
/// be at the `max` of the call that took last.
#[derive(Debug, Clone, Default)]
pub struct TokenBucketOracle {
    history: History,
}

/// A queue that lets one permit pass every `window / max`, and holds up to `burst` that wait.
///
/// Time and changes as for the [`TokenBucketOracle`].
#[derive(Debug, Clone, Default)]
pub struct LeakyBucketOracle {
    history: History,
}

/// What a bucket is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    window: u128,
    max: u128,
}

#[derive(Debug, Clone, Default)]
struct History(Vec<Taken>);

#[derive(Debug, Clone, Copy)]
struct Taken {
    at: u64,
    cost: u32,
    rule: Rule,
}

impl Rule {
    fn new(window_us: u64, max: u32) -> Self {
        Self { window: window_us.into(), max: max.into() }
    }
}

impl TokenBucketOracle {
    /// With nothing taken.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides, and records the permits of an allowed call.
    pub fn check(&mut self, now_us: u64, window_us: u64, (max, burst): (u32, u32), cost: u32) -> Verdict {
        let rule = Rule::new(window_us, max);
        // Everything is times the window, so that nothing is divided.
        let room = |missing: u128| u128::from(burst) * rule.window >= missing + u128::from(cost) * rule.window;
        let fits = |at| cost == 0 || room(self.history.missing(at, rule));
        let retry_after = first(now_us, (cost <= burst).then_some(fits));
        if retry_after == Some(0) {
            self.history.take(Taken { at: now_us, cost, rule });
        }
        let missing = self.history.missing(now_us, rule);
        let whole =
            (0..=u128::from(burst)).rev().find(|left| left * rule.window + missing <= u128::from(burst) * rule.window);
        Verdict {
            allowed: retry_after == Some(0),
            remaining: u32::try_from(whole.unwrap_or(0)).expect("at most `burst`"),
            retry_after,
            reset_after: self.history.empty_after(now_us, rule),
        }
    }
}

impl LeakyBucketOracle {
    /// With nothing taken.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides for a call that may wait so long for its turn, and gives it one if that comes in time; also how long it
    /// has to wait.
    pub fn check(
        &mut self,
        now_us: u64,
        window_us: u64,
        (max, burst): (u32, u32),
        (cost, patience_us): (u32, u64),
    ) -> (Verdict, u64) {
        let rule = Rule::new(window_us, max);
        let free = |at| cost == 0 || self.history.missing(at, rule) == 0;
        let turn = first(now_us, (cost <= burst).then_some(free));
        let missing = self.history.missing(now_us, rule);
        let has_room = missing + u128::from(cost) * rule.window <= (u128::from(burst) + 1) * rule.window;
        let allowed = turn.is_some_and(|wait| wait == 0 || (wait <= patience_us && has_room));
        if allowed {
            self.history.take(Taken { at: now_us, cost, rule });
        }
        let verdict = Verdict {
            allowed,
            remaining: if self.history.missing(now_us, rule) == 0 { burst } else { 0 },
            retry_after: if allowed { Some(0) } else { turn },
            reset_after: self.history.empty_after(now_us, rule),
        };
        (verdict, turn.filter(|_| allowed).unwrap_or(0))
    }
}

impl History {
    /// What is missing at an instant, times the window, for a call with this rule.
    fn missing(&self, at: u64, rule: Rule) -> u128 {
        let mut missing: u128 = 0;
        let mut all_back = 0;
        for (index, taken) in self.0.iter().enumerate() {
            if all_back <= taken.at {
                missing = 0;
            }
            missing += u128::from(taken.cost) * rule.window;
            all_back = taken.at + ceil(missing, taken.rule.max);
            let (until, rule) = self.0.get(index + 1).map_or((at, rule), |next| (next.at, next.rule));
            missing = missing.saturating_sub(u128::from(until - taken.at) * rule.max);
        }
        if all_back <= at { 0 } else { missing }
    }

    fn empty_after(&self, now: u64, rule: Rule) -> u64 {
        first(now, Some(|at| self.missing(at, rule) == 0)).expect("everything comes back")
    }

    fn take(&mut self, taken: Taken) {
        if taken.cost == 0 {
            return;
        }
        if self.missing(taken.at, taken.rule) == 0 {
            // What was taken before makes no difference any more.
            self.0.clear();
        }
        self.0.push(taken);
    }
}

fn ceil(units: u128, rate: u128) -> u64 {
    u64::try_from(units.div_ceil(rate)).expect("within ages")
}

/// The least wait after which something holds that goes on to hold, by halving what it may be.
fn first(now: u64, holds: Option<impl Fn(u64) -> bool>) -> Option<u64> {
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

    /// With one limit, a bucket is what it is by definition: in no stretch of time more than the burst and what flows
    /// back within it; and whatever keeps to that is allowed.
    #[test]
    fn a_token_bucket_admits_exactly_what_every_stretch_of_time_allows() {
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

    /// With one limit, turns begin `window / max` apart, and no later than that makes them.
    #[test]
    fn a_leaky_bucket_lets_one_pass_at_a_time() {
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
    fn a_queue_holds_as_many_as_may_wait() {
        let mut oracle = LeakyBucketOracle::new();
        let mut ask = |now| oracle.check(now, 1_000, (1, 2), (1, 1_000_000)).0.allowed;
        assert_eq!([ask(0), ask(0), ask(0), ask(0)], [true, true, true, false], "one passes, two wait");
        assert!(!ask(999) && ask(1_000) && !ask(1_000));
    }
}
