//! Answers of web services: status codes, header fields and problem texts, as plain strings for any framework.
//!
//! With the features `axum` and `tonic` of `rate-limited` a [`Denied`] is a response by itself. Other frameworks take the
//! parts:
//!
//! ```
//! # use limiter_core as rate_limited;
//! use rate_limited::http::{self, Fields};
//! use rate_limited::{Decision, Key, Limiter};
//!
//! let (limiter, key, limit) = (Limiter::memory(), Key::new("api"), "1/1m".parse()?);
//! limiter.named("api").check_blocking(&key, &limit)?;
//! let decision = limiter.named("api").check_blocking(&key, &limit)?;
//! let fields = http::fields(&decision, Fields::Draft11);
//! assert_eq!(fields[0], ("ratelimit-policy", r#""api";q=1;w=60"#.to_owned()));
//! if let Decision::Denied(denied) = decision {
//!     let seconds = denied.retry_after_secs();
//!     assert_eq!(fields[1], ("ratelimit", format!(r#""api";r=0;t={seconds}"#)));
//!     assert_eq!(fields[2], ("retry-after", seconds.to_string()));
//!     assert_eq!(http::status(&denied), 429);
//!     // The body, of the type `application/problem+json`. Send it with `cache-control: no-store`.
//!     assert!(http::problem(&denied).starts_with(r#"{"type":"https://iana.org/assignments/"#));
//! }
//! # Ok::<(), rate_limited::Error>(())
//! ```
//!
//! No field and no body contains a key. They contain the rule's name.

use std::fmt::{self, Display};
use std::time::Duration;

use crate::decision::LimitState;
use crate::{Decision, Denied, Error, Limit, Source};

mod policy_name;

pub(crate) use policy_name::PolicyName;

// Header fields about quotas. This file alone knows their syntax.

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
/// They describe the [limits](Decision::limits) of the decision: the lists of the draft have a member for each, and the
/// legacy fields one, [`Decision::limit`]. A member has the name of its rule. If several limits of one rule decided, the
/// window is added, as in `api-1s` and `api-1d`.
///
/// `w` is there for windows of whole seconds only. `t` and `x-ratelimit-reset` are the time until more permits are
/// available, and the instant of it, rounded up. Except for the limit that denied, the decision knows the time until all
/// are, `t` to the millisecond. `retry-after` is in whole seconds, at least 1, and rounded up without the part below 1 ms.
/// A [final](crate::Denied::is_final) denial has neither.
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
    match (decision.limits().nth(1), Quota::each_of(decision).next()) {
        (None, lone) => write_quotas(&|| lone.into_iter(), fields, &mut write),
        _ => write_quotas(&|| Quota::each_of(decision), fields, &mut write),
    }
    if let Some(seconds) = retry_after_secs(decision) {
        write(RETRY_AFTER, format_args!("{seconds}"));
    }
}

/// Passes each header field about these quotas to `write`. There is none without a quota.
pub(crate) fn write_quotas<Q: Iterator<Item = Quota>>(
    quotas: &impl Fn() -> Q,
    fields: Fields,
    mut write: impl FnMut(&'static str, fmt::Arguments<'_>),
) {
    // The fields of a single limit describe the one that denied, or the one with the least permits left.
    let Some(tightest) = quotas().min_by_key(|quota| (!quota.has_denied, quota.remaining)) else { return };
    match fields {
        Fields::Draft11 => {
            write(POLICY, format_args!("{}", List(|| quotas().map(PolicyMember))));
            write(QUOTA, format_args!("{}", List(|| quotas().map(QuotaMember))));
        }
        Fields::Legacy => {
            write(LEGACY_LIMIT, format_args!("{}", tightest.limit.max()));
            write(LEGACY_REMAINING, format_args!("{}", tightest.remaining));
            if let Some(MorePermits { instant, .. }) = tightest.more {
                write(LEGACY_RESET, format_args!("{}", whole_seconds(instant)));
            }
        }
        Fields::None => {}
    }
}

fn retry_after_secs(decision: &Decision) -> Option<u64> {
    match decision {
        Decision::Denied(denied) if !denied.is_final() => Some(denied.retry_after_secs()),
        _ => None,
    }
}

/// The numbers of one limit of a decision that the fields have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    pub(crate) name: PolicyName,
    limit: Limit,
    /// The window, or the present period of the calendar.
    window: Duration,
    remaining: u32,
    /// The time until more permits are available; `None` for never.
    more: Option<MorePermits>,
    /// The limit is the one that denied the call.
    has_denied: bool,
}

/// The time until more permits are available.
#[derive(Clone, Copy, Debug)]
struct MorePermits {
    /// Seconds from the decision on.
    seconds: u64,
    /// The time since 1970.
    instant: Duration,
}

impl Quota {
    /// Returns the quotas of a decision. None if it enforced none.
    pub(crate) fn each_of(decision: &Decision) -> impl Iterator<Item = Self> {
        let is_enforced = match decision {
            // A mode or a failure policy counts nothing.
            _ if matches!(decision.source(), Source::Mode | Source::Policy) => false,
            Decision::Allowed(allowed) => allowed.is_enforced(),
            Decision::Denied(_) => true,
        };
        let has_several = decision.limits().nth(1).is_some();
        let denied = if let Decision::Denied(denied) = decision { Some(denied) } else { None };
        let quota = move |(index, state): (usize, LimitState<'_>)| {
            let denied = denied.filter(|_| !has_several || index == decision.request_index());
            let more = match denied {
                Some(denied) => retry_after_secs(decision).map(|seconds| (seconds, denied.retry_after())),
                None => Some((whole_seconds(whole_millis(state.reset_after())), state.reset_after())),
            };
            let more = more.map(|(seconds, time)| MorePermits { seconds, instant: decision.instant_after(time) });
            let (name, has_denied) = (PolicyName::new(decision, index, &state), denied.is_some());
            let (limit, remaining) = (state.limit(), state.remaining());
            let window = present_window(limit, decision.instant_after(Duration::ZERO), state.reset_after());
            Self { name, limit, window, remaining, more, has_denied }
        };
        decision.limits().enumerate().filter(move |_| is_enforced).map(quota)
    }
}

/// Returns the window of a limit, or the length of the present period of its calendar.
///
/// The decision has the time to the end of the period, by the wall clock or by Redis. Its own time since 1970 may be that of
/// a clock which stops while the machine is suspended. So the period is the one whose end is nearest to that end.
fn present_window(limit: Limit, decided_at: Duration, reset_after: Duration) -> Duration {
    let Some(calendar) = limit.calendar_periods() else { return limit.window() };
    let end = u64::try_from((decided_at + reset_after).as_millis()).unwrap_or(u64::MAX);
    let edges = calendar.edges_at(end);
    let has_begun_at_end = !reset_after.is_zero() && end - edges.start < edges.end - end;
    let (start, end) = if has_begun_at_end { (edges.before, edges.start) } else { (edges.start, edges.end) };
    Duration::from_millis(end - start)
}

/// The members of a list of structured fields.
struct List<F>(F);

impl<F: Fn() -> I, I: Iterator<Item: Display>> Display for List<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, member) in (self.0)().enumerate() {
            write!(f, "{}{member}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// A quota as a member of `ratelimit-policy`.
struct PolicyMember(Quota);

impl Display for PolicyMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quota { name, limit, window, .. } = &self.0;
        write!(f, "\"{name}\";q={}", limit.max())?;
        match *window {
            // A limit of calls at once has none.
            Duration::ZERO => Ok(()),
            window if window.subsec_nanos() == 0 => write!(f, ";w={}", window.as_secs()),
            _ => Ok(()),
        }
    }
}

/// A quota as a member of `ratelimit`.
struct QuotaMember(Quota);

impl Display for QuotaMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quota { name, remaining, more, .. } = &self.0;
        write!(f, "\"{name}\";r={remaining}")?;
        match more {
            Some(MorePermits { seconds, .. }) => write!(f, ";t={seconds}"),
            None => Ok(()),
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

// Status codes, and problem texts as bodies (RFC 9457).

const TOO_MANY_REQUESTS: u16 = 429;
const SERVICE_UNAVAILABLE: u16 = 503;

/// Returns the status of the answer to a denied call: 429, or 503 if a failure policy denied it.
#[must_use]
pub fn status(denied: &Denied) -> u16 {
    if denied.source() == Source::Policy { SERVICE_UNAVAILABLE } else { TOO_MANY_REQUESTS }
}

/// Returns the status of the answer to a call that the limiter could not decide: 503.
#[must_use]
pub fn error_status(_error: &Error) -> u16 {
    SERVICE_UNAVAILABLE
}

/// Returns the body of the answer to a denied call: JSON of the type `application/problem+json`.
///
/// `violated-policies` has the name of the limit that denied, as in the field `ratelimit-policy`. `retry_after_ms` is
/// [`Denied::retry_after`] in milliseconds, rounded up; a [final](Denied::is_final) denial has none.
///
/// ```json
/// {
///   "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
///   "title": "Too many requests",
///   "status": 429,
///   "violated-policies": ["api"],
///   "retry_after_ms": 1250
/// }
/// ```
#[must_use]
pub fn problem(denied: &Denied) -> String {
    let (kind, status) = (Kind::of_denial(denied), status(denied));
    let policy = PolicyName::of_described(&Decision::Denied(denied.clone()));
    let retry_after = denied.retry_after_millis();
    let retry_after = retry_after.map_or_else(String::new, |millis| format!(r#","retry_after_ms":{millis}"#));
    format!(r#"{{{kind},"status":{status},"violated-policies":["{policy}"]{retry_after}}}"#)
}

/// Returns the body of the answer to a call that the limiter could not decide: JSON of the type
/// `application/problem+json`.
///
/// It does not contain the error's text, which may name a server.
#[must_use]
pub fn error_problem(error: &Error) -> String {
    format!(r#"{{{},"status":{}}}"#, Kind::ReducedCapacity, error_status(error))
}

/// The types of problems, of the registry of IANA.
enum Kind {
    QuotaExceeded,
    ReducedCapacity,
}

impl Kind {
    fn of_denial(denied: &Denied) -> Self {
        if denied.source() == Source::Policy { Self::ReducedCapacity } else { Self::QuotaExceeded }
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, title) = match self {
            Self::QuotaExceeded => ("quota-exceeded", "Too many requests"),
            Self::ReducedCapacity => ("temporary-reduced-capacity", "The rate limit cannot be checked"),
        };
        write!(f, r#""type":"https://iana.org/assignments/http-problem-types#{name}","title":"{title}""#)
    }
}

#[cfg(all(test, not(limiter_loom), feature = "redis", feature = "test-util"))]
mod tests;
