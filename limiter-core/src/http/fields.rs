//! Header fields about quotas. This file alone knows their syntax.

use std::fmt;
use std::time::Duration;

use super::policy_name::PolicyName;
use crate::{Decision, Limit, Source};

/// The header fields about quotas that an answer has.
///
/// Every denial that is not final has `retry-after` besides, also with [`None`](Fields::None).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fields {
    /// `ratelimit-policy` and `ratelimit`, in the syntax of the Internet-Draft
    /// draft-ietf-httpapi-ratelimit-headers-11 (May 2026).
    ///
    /// It is a draft, so later ones may have another syntax. They will be further variants.
    #[default]
    Draft11,
    /// `x-ratelimit-limit`, `x-ratelimit-remaining` and `x-ratelimit-reset`. The last one is in seconds since 1970,
    /// rounded up, by the clock of the store. So one instant is the same number in each answer.
    ///
    /// The clock of a limiter in this process is the system's, as it was at the limiter's first decision, and does not
    /// step with it.
    ///
    /// Other services send seconds from now under this name, or milliseconds. Clients cannot know which.
    Legacy,
    /// None.
    None,
}

const RETRY_AFTER: &str = "retry-after";
const POLICY: &str = "ratelimit-policy";
const QUOTA: &str = "ratelimit";
const LEGACY_LIMIT: &str = "x-ratelimit-limit";
const LEGACY_REMAINING: &str = "x-ratelimit-remaining";
const LEGACY_RESET: &str = "x-ratelimit-reset";

/// The names of all fields that [`fields`] returns, in lower case: for `access-control-expose-headers`.
///
/// A browser hides fields from scripts of other origins unless the answer lists them there.
pub const FIELD_NAMES: [&str; 6] = [RETRY_AFTER, POLICY, QUOTA, LEGACY_LIMIT, LEGACY_REMAINING, LEGACY_RESET];

/// Returns the header fields of an answer: names in lower case, and values.
///
/// They describe the limit of the decision, [`Decision::limit`]. `w` is there for windows of whole seconds only. `t` and
/// `x-ratelimit-reset` are the time until more permits are available, and the instant of it, rounded up. For an allowed
/// call the decision knows the time until all are, `t` to the millisecond. `retry-after` is in whole seconds, at least
/// 1, and rounded up without the part below 1 ms. A [final](crate::Denied::is_final) denial has neither.
///
/// There is no field about a limit that is not enforced: of a rule in shadow mode, one that is off, a call without a
/// limit. Nor is there one if a failure policy decided, because the remaining permits are unknown. A rule that denies
/// every call has no quota either.
#[must_use]
pub fn fields(decision: &Decision, fields: Fields) -> Vec<(&'static str, String)> {
    let mut all = Vec::with_capacity(4);
    write_fields(decision, fields, |name, value| all.push((name, value.to_string())));
    all
}

/// Passes each header field of an answer to `write`, without allocations: see [`fields`].
pub(crate) fn write_fields(
    decision: &Decision,
    fields: Fields,
    mut write: impl FnMut(&'static str, fmt::Arguments<'_>),
) {
    let retry_after = match decision {
        Decision::Denied(denied) if !denied.is_final() => Some(denied.retry_after_secs()),
        _ => None,
    };
    if let Some(quota) = Quota::of(decision, retry_after) {
        quota.write(fields, &mut write);
    }
    if let Some(seconds) = retry_after {
        write(RETRY_AFTER, format_args!("{seconds}"));
    }
}

/// The numbers of a decision that the fields have.
struct Quota<'a> {
    name: PolicyName<'a>,
    limit: Limit,
    remaining: u32,
    /// The time until more permits are available; `None` for never.
    more: Option<MorePermits>,
}

/// The time until more permits are available.
struct MorePermits {
    /// Seconds from the decision on.
    seconds: u64,
    /// The time since 1970.
    instant: Duration,
}

impl<'a> Quota<'a> {
    /// Returns the quota of a decision; `None` if it enforced none.
    fn of(decision: &'a Decision, retry_after: Option<u64>) -> Option<Self> {
        let more = match decision {
            // A mode or a failure policy counts nothing.
            _ if matches!(decision.source(), Source::Mode | Source::Policy) => return None,
            Decision::Allowed(allowed) if !allowed.is_enforced() => return None,
            Decision::Allowed(allowed) => {
                let reset_after = allowed.reset_after();
                Some((whole_seconds(whole_millis(reset_after)), reset_after))
            }
            Decision::Denied(denied) => retry_after.map(|seconds| (seconds, denied.retry_after())),
        };
        let more = more.map(|(seconds, time)| MorePermits { seconds, instant: decision.instant_after(time) });
        let (name, limit, remaining) = (PolicyName(decision.name()), decision.limit(), decision.remaining());
        Some(Self { name, limit, remaining, more })
    }

    fn write(&self, fields: Fields, write: &mut impl FnMut(&'static str, fmt::Arguments<'_>)) {
        let Self { name, limit, remaining, more } = self;
        match fields {
            Fields::Draft11 => {
                let (max, window) = (limit.max(), limit.window());
                match window.as_secs() {
                    seconds if window.subsec_nanos() == 0 => {
                        write(POLICY, format_args!("\"{name}\";q={max};w={seconds}"));
                    }
                    _ => write(POLICY, format_args!("\"{name}\";q={max}")),
                }
                match more {
                    Some(MorePermits { seconds, .. }) => {
                        write(QUOTA, format_args!("\"{name}\";r={remaining};t={seconds}"));
                    }
                    None => write(QUOTA, format_args!("\"{name}\";r={remaining}")),
                }
            }
            Fields::Legacy => {
                write(LEGACY_LIMIT, format_args!("{}", limit.max()));
                write(LEGACY_REMAINING, format_args!("{remaining}"));
                if let Some(MorePermits { instant, .. }) = more {
                    write(LEGACY_RESET, format_args!("{}", whole_seconds(*instant)));
                }
            }
            Fields::None => {}
        }
    }
}

/// Rounds down to whole milliseconds.
///
/// Permits come back at a whole millisecond of the store's clock, up to 1 ms after a window. Without this the first call
/// of a window of 10 s would have 11 s.
fn whole_millis(duration: Duration) -> Duration {
    Duration::new(duration.as_secs(), duration.subsec_millis() * 1_000_000)
}

/// Rounds up to whole seconds.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
