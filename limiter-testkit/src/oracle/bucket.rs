//! What the buckets must answer: play the whole history again for every question.

use super::Verdict;

/// A token bucket: what was taken and has not come back is at most `burst`.
///
/// Time is in whole microseconds, the window must be the same for every call. When time steps back before the last call
/// that took something, it stands still at that call, as long as that is at most a window ahead; further ahead, the
/// history is void. `max` and `burst` may change: what is missing flows back at the `max` of whoever asks, and is all back at the latest when it would
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
struct History(Vec<Event>);

#[derive(Debug, Clone, Copy)]
struct Event {
    at: u64,
    rule: Rule,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    /// Permits were taken.
    Took(u32),
    /// So much was given back, times the window.
    Returned(u128),
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
            self.history.take(now_us, cost, rule);
        }
        let missing = self.history.missing(now_us, rule);
        let whole = (u128::from(burst) * rule.window).saturating_sub(missing) / rule.window;
        Verdict {
            allowed: retry_after == Some(0),
            remaining: u32::try_from(whole).expect("at most `burst`"),
            retry_after,
            reset_after: self.history.empty_after(now_us, rule),
        }
    }

    /// Gives back what a call at `stamp_us` took, as far as it has not flowed back since.
    pub fn refund(&mut self, now_us: u64, window_us: u64, max: u32, (stamp_us, cost): (u64, u32)) {
        let rule = Rule::new(window_us, max);
        let Some(now) = self.history.instant(now_us, rule) else { return };
        let since = self.history.0.first().map_or(0, |event| event.at);
        if since <= stamp_us && stamp_us <= now {
            let flowed = u128::from(now - stamp_us) * rule.max;
            self.history.give_back(now, rule, (u128::from(cost) * rule.window).saturating_sub(flowed));
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
            self.history.take(now_us, cost, rule);
        }
        let verdict = Verdict {
            allowed,
            remaining: if self.history.missing(now_us, rule) == 0 { burst } else { 0 },
            retry_after: if allowed { Some(0) } else { turn },
            reset_after: self.history.empty_after(now_us, rule),
        };
        (verdict, turn.filter(|_| allowed).unwrap_or(0))
    }

    /// Gives back the turn that a call at `stamp_us` got, if nobody has taken one at that instant or after it.
    pub fn refund(&mut self, now_us: u64, window_us: u64, max: u32, (stamp_us, cost): (u64, u32)) {
        let rule = Rule::new(window_us, max);
        let Some(now) = self.history.instant(now_us, rule) else { return };
        let mut from_then = self.history.0.iter().filter(|event| event.at >= stamp_us);
        if let (Some(Event { at, what: What::Took(_), .. }), None) = (from_then.next(), from_then.next())
            && *at == stamp_us
        {
            self.history.give_back(now, rule, u128::from(cost) * rule.window);
        }
    }
}

impl History {
    /// What is missing at an instant, times the window, for a call with this rule.
    fn missing(&self, at: u64, rule: Rule) -> u128 {
        let Some(at) = self.instant(at, rule) else { return 0 };
        let mut missing: u128 = 0;
        let mut all_back = 0;
        for (index, event) in self.0.iter().enumerate() {
            if all_back <= event.at {
                missing = 0;
            }
            match event.what {
                What::Took(cost) => {
                    missing += u128::from(cost) * event.rule.window;
                    all_back = event.at + ceil(missing, event.rule.max);
                }
                What::Returned(back) => missing = missing.saturating_sub(back),
            }
            let (until, rule) = self.0.get(index + 1).map_or((at, rule), |next| (next.at, next.rule));
            missing = missing.saturating_sub(u128::from(until - event.at) * rule.max);
        }
        if all_back <= at { 0 } else { missing }
    }

    fn empty_after(&self, now: u64, rule: Rule) -> u64 {
        first(now, Some(|at| self.missing(at, rule) == 0)).expect("everything comes back")
    }

    /// The instant that a time counts as; `None` where what was taken is void.
    fn instant(&self, now: u64, rule: Rule) -> Option<u64> {
        let last = self.0.last().map_or(0, |event| event.at);
        (u128::from(last) <= u128::from(now) + rule.window).then(|| now.max(last))
    }

    fn take(&mut self, now: u64, cost: u32, rule: Rule) {
        if cost == 0 {
            return;
        }
        let at = self.instant(now, rule).unwrap_or(now);
        if self.missing(now, rule) == 0 {
            // What was taken before makes no difference any more.
            self.0.clear();
        }
        self.0.push(Event { at, rule, what: What::Took(cost) });
    }

    fn give_back(&mut self, at: u64, rule: Rule, back: u128) {
        if back == 0 || self.missing(at, rule) == 0 {
            return;
        }
        self.0.push(Event { at, rule, what: What::Returned(back) });
        if self.missing(at, rule) == 0 {
            self.0.clear();
        }
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
