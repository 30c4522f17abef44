//! The log lines about one server: its first connection, and the beginning and the end of each outage.

use std::time::{Duration, Instant};

use super::TARGET;
use crate::Error;
use crate::health::HealthState;

/// Decides which lines are logged. An outage is any time in which the server is not up.
///
/// The line of an outage is repeated each minute. A server that comes and goes has at most three outages logged in a
/// minute; a longer one is logged all the same when it has lasted for a minute.
#[derive(Debug, Default)]
pub(super) struct OutageLog {
    was_connected: bool,
    outage: Option<Outage>,
    interval_start: Option<Instant>,
    outages_in_interval: u32,
}

#[derive(Debug)]
struct Outage {
    began: Instant,
    /// The time of its last line, or of its beginning.
    last_line: Instant,
    is_logged: bool,
}

/// A line of the log, with the time for which the server has been away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogLine {
    Connected,
    /// The store was never there. Each store has this line at most once.
    Absent,
    Away,
    StillAway(Duration),
    Back(Duration),
}

const INTERVAL: Duration = Duration::from_secs(60);
const MAX_OUTAGES_PER_INTERVAL: u32 = 3;

impl OutageLog {
    /// Records that the server is up.
    pub(super) fn up(&mut self, now: Instant) -> Option<LogLine> {
        let was_connected = std::mem::replace(&mut self.was_connected, true);
        match self.outage.take() {
            Some(outage) => outage.is_logged.then(|| LogLine::Back(now.saturating_duration_since(outage.began))),
            None => (!was_connected).then_some(LogLine::Connected),
        }
    }

    /// Records that the server is not up, or still not up.
    pub(super) fn failed(&mut self, now: Instant) -> Option<LogLine> {
        if let Some(outage) = &mut self.outage {
            if now.saturating_duration_since(outage.last_line) < INTERVAL {
                return None;
            }
            (outage.last_line, outage.is_logged) = (now, true);
            return Some(LogLine::StillAway(now.saturating_duration_since(outage.began)));
        }
        if self.interval_start.is_none_or(|start| now.saturating_duration_since(start) >= INTERVAL) {
            (self.interval_start, self.outages_in_interval) = (Some(now), 0);
        }
        let is_logged = self.outages_in_interval < MAX_OUTAGES_PER_INTERVAL;
        self.outages_in_interval += u32::from(is_logged);
        self.outage = Some(Outage { began: now, last_line: now, is_logged });
        is_logged.then_some(LogLine::Away)
    }
}

impl LogLine {
    /// Writes the line. It must not run on the worker's thread.
    pub(super) fn write(self, server: &str, state: HealthState, error: Option<&Error>) {
        let error = error.map(tracing::field::display);
        match self {
            Self::Connected => {
                tracing::info!(target: TARGET, server, "the rate limiter is connected to its store");
            }
            Self::Absent => {
                tracing::error!(
                    target: TARGET,
                    server,
                    %state,
                    error,
                    "the rate limiter's store is away at the start: `on_error` decides until it is there"
                );
            }
            Self::Away => {
                tracing::warn!(target: TARGET, server, %state, error, "the rate limiter's store is away");
            }
            Self::StillAway(away_for) => {
                let away_for = rounded(away_for);
                tracing::warn!(target: TARGET, server, %state, ?away_for, error, "the rate limiter's store is still away");
            }
            Self::Back(away_for) => {
                let away_for = rounded(away_for);
                tracing::info!(target: TARGET, server, ?away_for, "the rate limiter's store is back");
            }
        }
    }
}

/// A duration in whole milliseconds.
fn rounded(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_outage_is_logged_at_its_beginning_each_minute_and_at_its_end() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        assert_eq!(log.up(start), Some(LogLine::Connected));
        assert_eq!(log.up(start), None);
        let began = start + SECOND;
        let lines: Vec<_> =
            (0..150).filter_map(|second| log.failed(began + second * SECOND).map(|line| (second, line))).collect();
        let still = |seconds: u32| (seconds, LogLine::StillAway(seconds * SECOND));
        assert_eq!(lines, [(0, LogLine::Away), still(60), still(120)]);
        assert_eq!(log.up(began + 150 * SECOND), Some(LogLine::Back(150 * SECOND)));
        assert_eq!(log.up(began + 151 * SECOND), None);
    }

    #[test]
    fn a_first_connection_after_an_outage_is_logged_as_its_end() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        assert_eq!(log.failed(start), Some(LogLine::Away));
        assert_eq!(log.up(start + SECOND), Some(LogLine::Back(SECOND)));
    }

    #[test]
    fn a_server_that_comes_and_goes_is_logged_3_times_a_minute() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        let mut lines = Vec::new();
        for second in 0..59 {
            let now = start + second * SECOND;
            lines.extend(log.failed(now));
            lines.extend(log.up(now + SECOND / 2));
        }
        assert_eq!(lines, [LogLine::Away, LogLine::Back(SECOND / 2)].repeat(3));
        // An outage that lasts is logged after all.
        let began = start + 59 * SECOND;
        assert_eq!(log.failed(began), None);
        assert_eq!(log.failed(began + INTERVAL), Some(LogLine::StillAway(INTERVAL)));
        assert_eq!(log.up(began + INTERVAL), Some(LogLine::Back(INTERVAL)));
    }
}
