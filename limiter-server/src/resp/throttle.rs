//! `CL.THROTTLE key max_burst count period [n]` of redis-cell, by the token bucket.
//!
//! The generic cell rate algorithm of redis-cell is a token bucket that holds `max_burst + 1` permits, refilled by `count` in
//! each `period` of seconds.

use std::borrow::Cow;
use std::time::Duration;

use rate_limited::{Algorithm, Limit};

use super::calls::{CallError, narrow, read_number, text};
use super::parser::Arguments;
use super::reply::Replies;
use crate::service::{Answer, Call, Target};

/// Reads the arguments. A cost of 0 takes nothing.
///
/// # Errors
/// A number is none, or out of its range.
pub(super) fn read<'b>(arguments: Arguments<'_, 'b>) -> Result<Call<'b>, CallError> {
    let argument = |index: usize| arguments.get(index).unwrap_or_default();
    let key = text(argument(1))?;
    let burst = narrow(read_number("max_burst", argument(2), 0, u64::from(u32::MAX) - 1)?) + 1;
    let count = narrow(read_number("count", argument(3), 1, u32::MAX.into())?);
    let period = read_number("period", argument(4), 1, Limit::MAX_WINDOW.as_secs())?;
    let cost = arguments.get(5).map_or(Ok(1), |cost| read_number("n", cost, 0, u32::MAX.into()))?;
    let limit = Limit::new(count, Duration::from_secs(period))
        .and_then(|limit| limit.with_algorithm(Algorithm::TokenBucket).with_burst(burst));
    // The ranges above are those of a limit, so an empty list never reaches the service.
    let limits = limit.into_iter().collect();
    let call = Call::new(Target::Limits { key: vec![Cow::Borrowed(key)], limits });
    Ok(Call { cost: narrow(cost), ..call })
}

/// Writes the reply: limited, the burst, the permits left, the seconds until a retry and those until all permits are free.
pub(super) fn write(answer: &Answer, replies: &mut Replies) {
    let decision = answer.decision();
    let retry_after = if answer.is_allowed() { None } else { answer.retry_after() };
    replies.array(5);
    replies.integer(i64::from(!answer.is_allowed()));
    replies.integer(decision.limit().burst().into());
    replies.integer(decision.remaining().into());
    // A call that was admitted has nothing to retry, and one above the burst never succeeds.
    replies.integer(retry_after.map_or(-1, seconds));
    replies.integer(seconds(decision.reset_after()));
}

/// Returns a duration in seconds, rounded up.
fn seconds(duration: Duration) -> i64 {
    let rounded = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i64::try_from(rounded).unwrap_or(i64::MAX)
}
