//! The denials of a key.

use std::collections::BTreeMap;

use rate_limited::{ActivityLog, DenialBurst, Error, ErrorKind, Limiter};
use serde_json::{Value, json};

use crate::time_text::rfc3339;

/// Returns a burst as JSON.
#[must_use]
pub fn denial_json(burst: &DenialBurst) -> Value {
    json!({
        "at": rfc3339(burst.at),
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
pub async fn denials_of_key(limiter: &Limiter, key: &str) -> Result<Option<Vec<DenialBurst>>, Error> {
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
