//! Whether what was denied in a recorded run had room.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::Admission;

/// One denied call, by the clock of the [`Admission`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denial {
    /// Read before the limiter was asked.
    pub start: Duration,
    /// Read after its answer. Not before `start`.
    pub end: Duration,
    /// Permits asked for.
    pub cost: u32,
}

/// How long permits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// For one window at most: a sliding window, and a fixed one, of which a sliding one sees no less wherever it
    /// begins.
    Wholly,
    /// For one window, then less and less for another: two windows of which the older fades, wherever they begin.
    Fading,
    /// Until they have flowed back, `max` a window: a token bucket.
    Flowing,
    /// As in a token bucket, of which all must be back: a leaky bucket whose callers do not wait.
    Queueing,
}

/// What may be denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// How long permits count.
    pub counts: Counts,
    /// The window.
    pub window: Duration,
    /// Permits a window.
    pub max: u32,
    /// Permits that fit at once: `max`, except for a bucket with a `burst` of its own.
    pub holds: u32,
    /// How much later than by definition a permit may come back.
    pub slack: Duration,
}

/// A denial that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HadRoom {
    /// The call.
    pub denial: Denial,
    /// The most permits that can have counted then.
    pub used: u64,
    /// What it was judged by.
    pub rule: Rule,
}

/// Whether each denial can have been right: whether permits enough for the cost not to fit can have counted.
///
/// Never a false alarm. Each denial is judged by itself, in favour of the limiter: every admitted call took its permits
/// when they are most in the way, and the limiter read its clock when it was asked and looked at its count when it
/// answered. So a denial that is missed was late by no more than the slack and the calls' own durations. A cost that
/// never fits may be denied.
///
/// # Errors
///
/// The first denial, in the order given, of a cost for which there was room.
pub fn no_denial_had_room(admissions: &[Admission], denials: &[Denial], rule: &Rule) -> Result<(), HadRoom> {
    let mut admissions = admissions.to_vec();
    admissions.sort_by_key(|call| call.end);
    for denial in denials {
        let used = rule.most_used(&admissions, denial);
        let room = match rule.counts {
            Counts::Queueing => used == 0 && denial.cost <= rule.holds,
            _ => used + u64::from(denial.cost) <= u64::from(rule.holds),
        };
        if room {
            return Err(HadRoom { denial: *denial, used, rule: *rule });
        }
    }
    Ok(())
}

impl Rule {
    /// The most permits that can have counted for a denied call, rounded up; admissions in the order of their ends.
    fn most_used(&self, admissions: &[Admission], denial: &Denial) -> u64 {
        let age = |call: &Admission| denial.start.saturating_sub(call.end).saturating_sub(self.slack).as_nanos();
        let window = self.window.as_nanos();
        let before = admissions.iter().filter(|call| call.start <= denial.end);
        let parts = match self.counts {
            Counts::Wholly => {
                let counts = before.filter(|call| age(call) < window);
                counts.map(|call| u128::from(call.cost) * window).sum()
            }
            Counts::Fading => {
                let part = |call: &Admission| (2 * window).saturating_sub(age(call)).min(window);
                before.map(|call| u128::from(call.cost) * part(call)).sum()
            }
            // The most that any stretch of time up to now has left over: each begins with the last of its permits.
            Counts::Flowing | Counts::Queueing => {
                let mut taken = 0;
                let left_over = |call: &Admission| {
                    taken += u128::from(call.cost) * window;
                    taken.saturating_sub(age(call) * u128::from(self.max))
                };
                before.rev().map(left_over).max().unwrap_or(0)
            }
        };
        u64::try_from(parts.div_ceil(window)).expect("not so many permits")
    }
}

impl fmt::Display for HadRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { denial: Denial { start, end, cost }, used, rule } = self;
        write!(
            f,
            "a call of cost {cost} was denied between {start:?} and {end:?}, but at most {used} of {} were in use",
            rule.holds
        )
    }
}

impl Error for HadRoom {}

#[cfg(test)]
mod tests;
