//! Denials, each with the limiter that has written them.

use std::collections::BTreeMap;
use std::time::SystemTime;

use rate_limited::{ActivityLog, DenialBurst, Error, ErrorKind, Limiter};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Output, visible};
use crate::time_text;

/// Returns the limiter for people: its name, its host and its process.
pub(super) fn place(burst: &DenialBurst) -> String {
    format!("{}, {} ({})", visible(&burst.name), visible(&burst.host), burst.pid)
}

/// Returns a burst as JSON.
pub(super) fn as_json(burst: &DenialBurst) -> Value {
    json!({
        "at": time_text::rfc3339(burst.at),
        "rule": burst.rule,
        "key": burst.key,
        "denials": burst.denials,
        "limiter": burst.limiter,
        "name": burst.name,
        "host": burst.host,
        "pid": burst.pid,
    })
}

/// Reads the denials of a key in the stream: one burst for each rule and limiter, with the sum and the last time, the newest
/// first. `key` is its text in Redis. `None` if the user may not read the stream, or others have written it.
///
/// # Errors
/// The failure of the store.
pub(crate) async fn denials_of_key(limiter: &Limiter, key: &str) -> Result<Option<Vec<DenialBurst>>, Error> {
    let bursts = match limiter.activity(&mut ActivityLog::new()).await {
        Ok(bursts) => bursts,
        Err(error) if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Protocol) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut sums = BTreeMap::<(String, String), DenialBurst>::new();
    for mut burst in bursts.into_iter().filter(|burst| burst.key.as_deref() == Some(key)) {
        let before = sums.remove(&(burst.rule.clone(), burst.limiter.clone()));
        burst.denials = burst.denials.saturating_add(before.map_or(0, |before| before.denials));
        sums.insert((burst.rule.clone(), burst.limiter.clone()), burst);
    }
    let mut sums: Vec<_> = sums.into_values().collect();
    sums.sort_by_key(|burst| std::cmp::Reverse(burst.at));
    Ok(Some(sums))
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

/// Returns the denials of a key as JSON.
pub(crate) fn denials_json(denials: &[DenialBurst]) -> Value {
    Value::Array(denials.iter().map(as_json).collect())
}

/// Returns the time of day in UTC: `03:02:11`.
pub(super) fn time_of_day(time: SystemTime) -> String {
    time_text::rfc3339(time).get(11..19).unwrap_or_default().to_owned()
}
