//! The counts of a key: those of all limits of windows that apply to it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rate_limited::{Allowed, Builder, Entry, Error, Key, Limit, Named, Source};
use serde_json::{Value, json};

use crate::duration_text;
use crate::key_argument::{address_advice, pieces};
use limiter_inspect::millis;

/// The count of a key for one limit.
#[derive(Clone, Copy)]
struct Count {
    limit: Limit,
    remaining: u32,
    reset_after: Duration,
}

/// The counts of a key, one for each limit of a window. Empty if they are not known, as under a rule that is off.
#[derive(Clone, Default)]
pub(super) struct Counts(Vec<Count>);

/// The place where a limiter reports the counts of its calls.
#[derive(Clone, Default)]
pub(super) struct CountReports(Arc<Mutex<Counts>>);

impl CountReports {
    /// Lets a limiter report to this place.
    pub(super) fn add_to(&self, builder: Builder) -> Builder {
        let Self(reports) = self.clone();
        builder.on_allowed(move |allowed: &Allowed| {
            let (limit, remaining, reset_after) = (allowed.limit(), allowed.remaining(), allowed.reset_after());
            if limit.is_concurrent() {
                return;
            }
            let mut reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
            reports.0.push(Count { limit, remaining, reset_after });
        })
    }

    /// Reads the counts of a key, by a call that takes nothing.
    pub(super) async fn read(&self, rule: &Named<'_>, key: &Key, default_limit: &Limit) -> Result<Counts, Error> {
        drop(self.take());
        match rule.enter_n(key, default_limit, 0).await? {
            Entry::Denied(denied) if denied.source() != Source::Mode => {
                let (limit, remaining, reset_after) = (denied.limit(), denied.remaining(), denied.reset_after());
                Ok(Counts(vec![Count { limit, remaining, reset_after }]))
            }
            _ => Ok(self.take()),
        }
    }

    fn take(&self) -> Counts {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Counts {
    /// Returns whether the key is known to have no count.
    pub(super) fn are_empty(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(Count::is_empty)
    }

    /// Returns whether the counts are known.
    pub(super) fn are_known(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns a line for each of several limits, each after a newline.
    pub(super) fn lines(&self) -> String {
        if self.0.len() < 2 {
            return String::new();
        }
        let line = |count: &Count| {
            let Count { limit, remaining, reset_after } = *count;
            if count.is_empty() {
                return format!("\n  {limit}: no count");
            }
            format!("\n  {limit}: {remaining} left, full quota in {}", duration_text::write(reset_after))
        };
        self.0.iter().map(line).collect()
    }

    pub(super) fn json(&self) -> Value {
        let count = |&Count { limit, remaining, reset_after }: &Count| {
            let reset_after = millis(reset_after);
            json!({ "limit": limit.to_string(), "remaining": remaining, "reset_after_ms": reset_after })
        };
        self.0.iter().map(count).collect()
    }
}

impl Count {
    fn is_empty(&self) -> bool {
        self.reset_after.is_zero()
    }
}

/// Returns the text about a key without a count. The key may be another one than was meant, so its pieces are shown, and
/// the ways to write an address.
pub(super) fn no_count(key: &Key, counts: &Counts) -> String {
    let limits: Vec<_> = counts.0.iter().map(|count| count.limit.to_string()).collect();
    let encoded = key.encoded();
    let read = pieces(key).map_or(String::new(), |pieces| format!(", which was read as {pieces}"));
    let advice = address_advice(&encoded).map_or(String::new(), |advice| format!(": {advice}"));
    format!("{encoded}, no count of this key under {}{read}{advice}", limits.join(" and "))
}
