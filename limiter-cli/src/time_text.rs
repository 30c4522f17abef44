//! Times of changes, in UTC.

use std::time::{Duration, SystemTime};

use limiter_inspect::rfc3339;

use crate::duration_text;

/// Writes a time for people, with its age: `2026-11-23 03:02:11 UTC, 4 min ago`.
pub(crate) fn with_age(time: SystemTime) -> String {
    let text = rfc3339(time).replace('T', " ").replace('Z', " UTC");
    // Another host's clock may be ahead.
    let age = SystemTime::now().duration_since(time).unwrap_or_default();
    format!("{text}, {} ago", duration_text::write(Duration::from_secs(age.as_secs())))
}
