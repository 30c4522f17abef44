//! The use of the limits of a key, as text and as JSON.

use limiter_inspect::limit_json;
use rate_limited::{Key, LimitUsage};
use serde_json::json;

use crate::duration_text;
use crate::failure::Failure;
use crate::output::Output;

/// Writes the use of each limit to standard output.
pub(super) fn write(key: &Key, limits: &[LimitUsage], output: &Output) -> Result<(), Failure> {
    let key = key.encoded();
    if output.is_json() {
        let limits = limits.iter().map(limit_json).collect::<Vec<_>>();
        return output.json(&json!({ "key": key, "limits": limits }));
    }
    if limits.is_empty() {
        return output.line(format_args!("{key}: nothing is counted, the rule is off or denies every call"));
    }
    output.line(&key)?;
    limits.iter().try_for_each(|usage| output.line(format_args!("  {usage}{}", reset(usage))))
}

/// Returns the time of a reset. Calls at once have none.
fn reset(usage: &LimitUsage) -> String {
    match usage.reset_after() {
        duration if duration.is_zero() => String::new(),
        duration => format!(", full quota in {}", duration_text::write(duration)),
    }
}
