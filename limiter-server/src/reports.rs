//! The series of one protocol: its requests and their durations.

use std::time::Duration;

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

const OUTCOMES: [(Outcome, &str); 4] =
    [(Outcome::Ok, "ok"), (Outcome::Denied, "denied"), (Outcome::Invalid, "invalid"), (Outcome::Failed, "failed")];

/// The series of one protocol, for the recorder that was installed when it was made.
pub(crate) struct ProtocolReports {
    /// Those of each command, in the order of their names.
    commands: Vec<CommandSeries>,
}

struct CommandSeries {
    requests: [Counter; OUTCOMES.len()],
    durations: Histogram,
}

impl ProtocolReports {
    /// Creates the series of a protocol with these commands or routes.
    pub(crate) fn new(protocol: &'static str, commands: impl IntoIterator<Item = &'static str>) -> Self {
        let series = |command: &'static str| {
            CommandSeries {
            requests: OUTCOMES.map(|(_, outcome)| {
                counter!("limiter_server_requests_total", "protocol" => protocol, "command" => command, "outcome" => outcome)
            }),
            durations: histogram!("limiter_server_request_seconds", "protocol" => protocol, "command" => command),
        }
        };
        Self { commands: commands.into_iter().map(series).collect() }
    }

    /// Records a request of the command at this place.
    pub(crate) fn record(&self, command: usize, outcome: Outcome, duration: Duration) {
        if let Some(series) = self.commands.get(command) {
            series.requests[outcome as usize].increment(1);
            series.durations.record(duration);
        }
    }
}
