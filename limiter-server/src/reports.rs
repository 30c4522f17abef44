//! The reports about the requests of one protocol: series, and a log of those that are refused.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics::{Counter, Histogram, counter, histogram};

/// The outcomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was allowed, or has another answer than a denial.
    Ok,
    Denied,
    /// The request was wrong.
    Invalid,
    /// The server could not answer.
    Failed,
}

/// The number of outcomes.
pub(crate) const OUTCOME_COUNT: usize = OUTCOMES.len();

const OUTCOMES: [(Outcome, &str); 4] =
    [(Outcome::Ok, "ok"), (Outcome::Denied, "denied"), (Outcome::Invalid, "invalid"), (Outcome::Failed, "failed")];

/// The time in which one cause of refusals is logged once.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The series of one protocol, for the recorder that was installed when it was made.
pub(crate) struct ProtocolReports {
    protocol: &'static str,
    /// Those of each command, in the order of their names.
    commands: Vec<CommandSeries>,
    /// The last log of each cause, by its command. The causes are words of this program.
    logged: Mutex<HashMap<(usize, &'static str), Instant>>,
}

struct CommandSeries {
    name: &'static str,
    requests: [Counter; OUTCOMES.len()],
    durations: Histogram,
}

impl ProtocolReports {
    /// Creates the series of a protocol with these commands or routes.
    pub(crate) fn new(protocol: &'static str, commands: impl IntoIterator<Item = &'static str>) -> Self {
        let series = |command: &'static str| {
            CommandSeries {
            name: command,
            requests: OUTCOMES.map(|(_, outcome)| {
                counter!("limiter_server_requests_total", "protocol" => protocol, "command" => command, "outcome" => outcome)
            }),
            durations: histogram!("limiter_server_request_seconds", "protocol" => protocol, "command" => command),
        }
        };
        Self { protocol, commands: commands.into_iter().map(series).collect(), logged: Mutex::default() }
    }

    /// Logs that a request of the command at this place was refused for this cause, a word of this program, once a minute at
    /// most. A gateway may let such requests in without a sign.
    pub(crate) fn refused(&self, command: usize, cause: &'static str) {
        if self.is_logged_now(command, cause, Instant::now()) {
            let (protocol, name) = (self.protocol, self.commands.get(command).map_or("", |series| series.name));
            tracing::warn!(protocol, command = name, cause, "requests are refused; this cause is logged once a minute");
        }
    }

    fn is_logged_now(&self, command: usize, cause: &'static str, now: Instant) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = logged.get(&(command, cause)).is_none_or(|last| now.duration_since(*last) >= LOG_INTERVAL);
        if is_due {
            logged.insert((command, cause), now);
        }
        is_due
    }

    /// Records a request of the command at this place.
    pub(crate) fn record(&self, command: usize, outcome: Outcome, duration: Duration) {
        if let Some(series) = self.commands.get(command) {
            series.requests[outcome as usize].increment(1);
            series.durations.record(duration);
        }
    }

    /// Records requests of the command at this place that took one time together: their number for each outcome.
    pub(crate) fn record_all(&self, command: usize, counts: &[usize; OUTCOME_COUNT], duration: Duration) {
        let (all, Some(series)) = (counts.iter().sum(), self.commands.get(command)) else { return };
        if all == 0 {
            return;
        }
        for (requests, count) in series.requests.iter().zip(counts) {
            requests.increment(u64::try_from(*count).unwrap_or(u64::MAX));
        }
        series.durations.record_many(duration, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_logged_once_a_minute() {
        let reports = ProtocolReports::new("http", ["check", "auth"]);
        let now = Instant::now();
        assert!(reports.is_logged_now(1, "unknown-rule", now));
        assert!(!reports.is_logged_now(1, "unknown-rule", now + Duration::from_secs(59)));
        assert!(reports.is_logged_now(0, "unknown-rule", now), "another command");
        assert!(reports.is_logged_now(1, "missing-value", now), "another cause");
        assert!(reports.is_logged_now(1, "unknown-rule", now + LOG_INTERVAL));
    }
}
