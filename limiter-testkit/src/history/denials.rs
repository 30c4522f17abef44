//! A check of the denials of a recorded run: none may be of a call that had room.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::Admission;

/// One denied call, by the clock of the [`Admission`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denial {
    /// The start of the call, read before it.
    pub start: Duration,
    /// The end of the call, read after it. It is not before `start`.
    pub end: Duration,
    /// The permits that the call requested.
    pub cost: u32,
}

/// The time for which permits count against the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// One window at most. This is for a sliding window, and for a fixed one: no fixed window contains more than a
    /// sliding one.
    Wholly,
    /// One window in full, then linearly less over another one. This is for the sliding counter, whose older window
    /// fades.
    Fading,
    /// The time until they have flowed back, `max` per window: a token bucket.
    Flowing,
    /// The time until all permits have flowed back: a leaky bucket without waiting calls.
    Queueing,
}

/// The rule that decides which denials are correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The time for which permits count against the limit.
    pub counts: Counts,
    /// The length of the window.
    pub window: Duration,
    /// The permits per window.
    pub max: u32,
    /// The permits that fit at once: `max`, or the `burst` of a bucket.
    pub holds: u32,
    /// The time by which a permit may come back later than by definition.
    pub slack: Duration,
}

/// A denial of a call that had room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongDenial {
    /// The call.
    pub denial: Denial,
    /// The most permits that can have been in use then.
    pub used: u64,
    /// The rule that the denial violates.
    pub rule: Rule,
}

/// Returns `Ok` if each denial can have been correct: so many permits can have been in use that its cost did not fit.
///
/// There are no false alarms. Each denial is checked by itself, in favour of the limiter. Every admitted call took its
/// permits at the worst instant for the denied call. The limiter read its clock at the start of the denied call and its
/// count at the end. So a wrong denial that goes undetected was late by no more than the slack and the calls' own
/// durations. A cost that never fits may be denied.
///
/// # Errors
///
/// The first denial, in the given order, of a call that had room.
pub fn check_denials(admissions: &[Admission], denials: &[Denial], rule: &Rule) -> Result<(), WrongDenial> {
    let mut admissions = admissions.to_vec();
    admissions.sort_by_key(|call| call.end);
    for denial in denials {
        let used = rule.max_used(&admissions, denial);
        let room = match rule.counts {
            Counts::Queueing => used == 0 && denial.cost <= rule.holds,
            _ => used + u64::from(denial.cost) <= u64::from(rule.holds),
        };
        if room {
            return Err(WrongDenial { denial: *denial, used, rule: *rule });
        }
    }
    Ok(())
}

impl Rule {
    /// Returns the most permits that can have been in use for a denied call, rounded up. The admissions are in the
    /// order of their ends.
    fn max_used(&self, admissions: &[Admission], denial: &Denial) -> u64 {
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
            // The maximum over all stretches of time up to now; each begins with the last permits of one call.
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

impl fmt::Display for WrongDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { denial: Denial { start, end, cost }, used, rule } = self;
        write!(
            f,
            "a call of cost {cost} was denied between {start:?} and {end:?}, but at most {used} of {} were in use",
            rule.holds
        )
    }
}

impl Error for WrongDenial {}

#[cfg(test)]
mod tests;
