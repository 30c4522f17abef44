//! The limiters that live in which a published version is in force.

use std::time::{Duration, Instant};

use rate_limited::{Error, ErrorKind, Instance, Limiter};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::duration_text;
use crate::output::{Output, Style, visible};
use limiter_inspect::place;

/// The limiters that live, by the version that each of them follows.
#[derive(Debug, Default)]
pub(super) struct InForce {
    version: u64,
    /// Those that follow this version or a later one.
    current: usize,
    /// Those that follow an earlier one, with it.
    behind: Vec<(String, u64)>,
    /// Those that follow no shared rules.
    without: Vec<String>,
    waited: Duration,
}

/// The time between two looks at the limiters.
const PAUSE: Duration = Duration::from_millis(250);
/// The time after which a note states what the command waits for.
const QUIET: Duration = Duration::from_secs(2);
/// The most limiters that are named.
const MAX_NAMED: usize = 5;

/// Waits until all limiters that live and follow shared rules have a version, and at most so long.
///
/// # Errors
/// The failure of the store, or the refusal of the user's permissions.
pub(super) async fn wait(
    limiter: &Limiter,
    version: u64,
    max_wait: Duration,
    output: &Output,
) -> Result<InForce, Error> {
    let (began, mut is_noted, mut last) = (Instant::now(), false, None);
    loop {
        let found = match (limiter.instances().await, last) {
            (Ok(instances), _) => InForce::of(&instances, version, began.elapsed()),
            // One list may fail while the command waits.
            (Err(_), Some(last)) => InForce { waited: began.elapsed(), ..last },
            (Err(error), None) => return Err(error),
        };
        let left = max_wait.saturating_sub(began.elapsed());
        if found.behind.is_empty() || left.is_zero() {
            return Ok(found);
        }
        if began.elapsed() >= QUIET && !is_noted {
            is_noted = true;
            output.note(format_args!(
                "waiting for {} of {} limiters; `--wait 0s` waits for none",
                found.behind.len(),
                found.followers()
            ));
        }
        sleep(PAUSE.min(left)).await;
        last = Some(found);
    }
}

impl InForce {
    fn of(instances: &[Instance], version: u64, waited: Duration) -> Self {
        let mut found = Self { version, waited, ..Self::default() };
        for instance in instances {
            match instance.rules_version {
                Some(followed) if followed >= version => found.current += 1,
                Some(followed) => found.behind.push((visible(&place(instance)), followed)),
                None => found.without.push(visible(&place(instance))),
            }
        }
        found
    }

    fn followers(&self) -> usize {
        self.current + self.behind.len()
    }

    /// Writes to standard output in how many limiters the version is in force, and a warning where it is not.
    pub(super) fn write(&self, prefix: &str, output: &Output) -> Result<(), crate::failure::Failure> {
        let Self { version, current, behind, without, waited } = self;
        let (all, after) = (self.followers(), duration_text::write(*waited));
        if all == 0 && without.is_empty() {
            output.warn(format_args!(
                "no limiter lives under the prefix `{}` in this database, or it began less than 10 s ago: check the URL with its \
                 database, and `--prefix`; one that follows the shared rules reads them when it starts",
                visible(prefix)
            ));
            return Ok(());
        }
        if all == 0 {
            output.warn(format_args!(
                "no limiter that lives follows the shared rules: call `Builder::shared_rules`, or write `shared = \
                 true` in its rules; {}",
                names(without)
            ));
            return Ok(());
        }
        if !without.is_empty() {
            output.note(format_args!("these follow no shared rules: {}", names(without)));
        }
        let style = if behind.is_empty() { Style::Green } else { Style::Yellow };
        output.line(output.paint(style, format_args!("in force in {current} of {all} limiters after {after}")))?;
        if !behind.is_empty() {
            let behind: Vec<_> = behind.iter().map(|(place, of)| format!("{place} has version {of}")).collect();
            output.warn(format_args!("version {version} is not in force everywhere: {}", names(&behind)));
        }
        Ok(())
    }

    pub(super) fn as_json(&self) -> Value {
        let behind = self.behind.iter().map(|(limiter, version)| json!({ "limiter": limiter, "version": version }));
        json!({
            "limiters": self.current,
            "of": self.followers(),
            "waited_ms": u64::try_from(self.waited.as_millis()).unwrap_or(u64::MAX),
            "behind": behind.collect::<Vec<_>>(),
            "without_shared_rules": self.without,
        })
    }
}

/// Notes that the limiters cannot be listed. The version is published all the same.
pub(super) fn note_unknown(error: &Error, output: &Output) {
    match error.kind() {
        ErrorKind::Refused => output.note(format_args!("in how many limiters it is in force is not known: {error}")),
        _ => output.warn(format_args!("in how many limiters it is in force is not known: {error}")),
    }
}

/// Returns the first of these names, and the number of the others.
fn names(all: &[String]) -> String {
    let shown = all.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(MAX_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
