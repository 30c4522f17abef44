//! Denials, each with the limiter that has written them.

use std::time::SystemTime;

use limiter_inspect::rfc3339;
use rate_limited::DenialBurst;

use crate::failure::Failure;
use crate::output::{Output, visible};
use crate::time_text;

/// Returns the limiter for people: its name, its host and its process.
pub(super) fn place(burst: &DenialBurst) -> String {
    format!("{}, {} ({})", visible(&burst.name), visible(&burst.host), burst.pid)
}

/// Writes the denials of a key, if there are any.
pub(crate) fn write_denials(denials: &[DenialBurst], output: &Output) -> Result<(), Failure> {
    if denials.is_empty() {
        return Ok(());
    }
    let mut table = output.table(&["LAST DENIAL", "RULE", "DENIALS IN 15 MIN", "LIMITER"]);
    for burst in denials {
        table.add_row([time_text::with_age(burst.at), visible(&burst.rule), burst.denials.to_string(), place(burst)]);
    }
    output.print(table)
}

/// Returns the time of day in UTC: `03:02:11`.
pub(super) fn time_of_day(time: SystemTime) -> String {
    rfc3339(time).get(11..19).unwrap_or_default().to_owned()
}
