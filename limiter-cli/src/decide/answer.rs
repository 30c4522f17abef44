//! A decision as text and as JSON.

use limiter_inspect::millis;
use rate_limited::{Decision, Denied, Key, Source, Usage};
use serde_json::{Value, json};

use super::counts::{Counts, no_count};
use super::slots::Slots;
use crate::duration_text;
use crate::failure::Failure;
use crate::output::{Output, Style};

/// A decision about a key that the user wrote.
pub(super) struct Answer<'d> {
    key: &'d Key,
    decision: &'d Decision,
    /// The counts of all limits, of an answer that shows them.
    counts: Option<Counts>,
    /// The use of the limit, of a denial that shows the permits beyond it.
    usage: Option<Usage>,
    slots: Option<Slots>,
}

impl<'d> Answer<'d> {
    pub(super) fn new(key: &'d Key, decision: &'d Decision) -> Self {
        Self { key, decision, counts: None, usage: None, slots: None }
    }

    /// Adds the counts of all limits.
    pub(super) fn with_counts(self, counts: Counts) -> Self {
        Self { counts: Some(counts), ..self }
    }

    /// Adds the permits that count beyond the limit.
    pub(super) fn with_usage(self, usage: Usage) -> Self {
        Self { usage: Some(usage), ..self }
    }

    /// Adds the slots, if the key has a limit of concurrent calls.
    pub(super) fn with_slots(self, slots: Option<Slots>) -> Self {
        Self { slots, ..self }
    }

    /// Writes the answer to standard output.
    pub(super) fn write(&self, output: &Output) -> Result<(), Failure> {
        if output.is_json() { output.json(&self.json()) } else { output.line(self.text(output)) }
    }

    fn json(&self) -> Value {
        let mut answer = self.decision_json();
        if let Some(counts) = &self.counts {
            answer["limits"] = counts.json();
            answer["overdrawn"] = json!(self.usage.as_ref().map_or(0, Usage::overdrawn));
        }
        if let Some(slots) = &self.slots
            && let Some(limits) = answer["limits"].as_array_mut()
        {
            limits.push(slots.limit_json());
            answer["processes"] = slots.processes_json();
        }
        answer
    }

    fn decision_json(&self) -> Value {
        let key = self.key.encoded();
        let mut answer = match self.decision {
            Decision::Allowed(allowed) => json!({
                "allowed": true,
                "key": key,
                "limit": allowed.limit().to_string(),
                "remaining": allowed.remaining(),
                "retry_after_ms": 0,
                "reset_after_ms": millis(allowed.reset_after()),
                "source": allowed.source().as_str(),
                "final": false,
            }),
            Decision::Denied(denied) => json!({
                "allowed": false,
                "key": key,
                "limit": denied.limit().to_string(),
                "remaining": denied.remaining(),
                "retry_after_ms": (!denied.is_final()).then(|| millis(denied.retry_after())),
                "reset_after_ms": millis(denied.reset_after()),
                "source": denied.source().as_str(),
                "final": denied.is_final(),
            }),
        };
        if matches!(self.decision, Decision::Denied(denied) if denied.is_blocked()) {
            answer["blocked"] = json!(true);
        }
        answer
    }

    pub(super) fn text(&self, output: &Output) -> String {
        let Some(counts) = &self.counts else { return self.decision_text(output) };
        let text = match self.decision {
            Decision::Allowed(_) if counts.are_empty() => {
                format!("{}: {}", output.paint(Style::Green, "allowed"), no_count(self.key, counts))
            }
            _ => self.decision_text(output) + &counts.lines(),
        };
        text + &self.slots.as_ref().map_or(String::new(), Slots::lines)
    }

    fn decision_text(&self, output: &Output) -> String {
        let key = self.key.encoded();
        match self.decision {
            Decision::Allowed(allowed) => {
                let word = output.paint(Style::Green, "allowed");
                if let Some(denied) = allowed.shadowed() {
                    return format!("{word}: {key} in shadow mode, otherwise denied, {}", denial(denied, None));
                }
                if allowed.source() == Source::Mode {
                    return format!("{word}: {key}, the rule is not enforced");
                }
                let reset = match allowed.reset_after() {
                    duration if duration.is_zero() => String::new(),
                    duration => format!(", full quota in {}", duration_text::write(duration)),
                };
                format!("{word}: {key}, {} left of {}{reset}", allowed.remaining(), allowed.limit())
            }
            Decision::Denied(denied) => {
                let denial = denial(denied, self.usage.as_ref());
                format!("{}: {key}, {denial}", output.paint(Style::Red, "denied"))
            }
        }
    }
}

fn denial(denied: &Denied, usage: Option<&Usage>) -> String {
    match denied {
        denied if denied.source() == Source::Mode => "the rule denies every call".to_owned(),
        denied if denied.is_final() => format!("the cost is above the limit {}: no wait helps", denied.limit()),
        denied if denied.is_blocked() => {
            format!(
                "blocked by its rule of {}, retry in {}",
                denied.limit(),
                duration_text::write(denied.retry_after())
            )
        }
        denied => {
            // That of a slot is an estimate.
            let about = if denied.limit().is_concurrent() { "about " } else { "" };
            let retry = about.to_owned() + &duration_text::write(denied.retry_after());
            match usage.filter(|usage| usage.overdrawn() > 0) {
                Some(usage) => format!("{} beyond {}, retry in {retry}", usage.overdrawn(), usage.limit()),
                None => format!("{} left of {}, retry in {retry}", denied.remaining(), denied.limit()),
            }
        }
    }
}
