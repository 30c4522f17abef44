//! The warning in the log that replies often come close to the deadlines of their calls.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

use super::call::Deadline;
use crate::TARGET;
use crate::store::redis::connection::managed::ManagedConnection;
use crate::store::redis::notifier::notify;

/// Counts the batches to one server whose replies come late: in the last quarter of their deadline, or after it.
///
/// If many do, it logs a line, at most once an hour. A call that takes a little longer then falls back to its policy.
#[derive(Default)]
pub(super) struct LateReplies {
    batches: Cell<u32>,
    late: Cell<u32>,
    logged_at: Cell<Option<Instant>>,
}

/// Batches that are counted together.
const GROUP: u32 = 128;
/// Late ones among them that are many.
const MANY: u32 = 16;
/// The time between two lines.
const INTERVAL: Duration = Duration::from_secs(3600);

impl LateReplies {
    /// Records the reply to a batch whose oldest call has this deadline. It came at this time; `None` if it did not come
    /// in time.
    pub(super) fn record(&self, deadline: Deadline, replied_at: Option<Instant>, connection: &ManagedConnection) {
        let has_many = self.count(replied_at.is_none_or(|at| is_nearly_over(deadline, at)));
        if has_many && self.logged_at.get().is_none_or(|at| at.elapsed() >= INTERVAL) {
            self.logged_at.set(Some(Instant::now()));
            let (server, deadline, round_trip) =
                (connection.server().to_string(), deadline.timeout, connection.round_trip());
            notify(move || {
                tracing::warn!(
                    target: TARGET,
                    server,
                    ?deadline,
                    ?round_trip,
                    "replies of Redis often come close to the deadline of their calls, and later ones are decided by \
                     `on_error`: raise `deadline`, or run this process nearer to Redis"
                );
            });
        }
    }

    /// Counts a batch. Returns whether it completes a group with many late ones.
    fn count(&self, is_late: bool) -> bool {
        self.batches.set(self.batches.get() + 1);
        self.late.set(self.late.get() + u32::from(is_late));
        if self.batches.get() < GROUP {
            return false;
        }
        self.batches.set(0);
        self.late.take() >= MANY
    }
}

/// Returns whether less than a quarter of a call's time is left at this instant.
fn is_nearly_over(deadline: Deadline, at: Instant) -> bool {
    deadline.instant.saturating_duration_since(at) < deadline.timeout / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_of_late_batches_is_many() {
        let replies = LateReplies::default();
        for late in [0, 15, 16, 128, 3] {
            let many: Vec<_> = (0..128).map(|batch| replies.count(batch < late)).collect();
            assert_eq!(many[..127], [false; 127]);
            assert_eq!(many[127], late >= 16, "{late}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn deadline_is_nearly_over_in_its_last_quarter() {
        let deadline = Deadline::after(Duration::from_millis(100));
        let begun = Instant::now();
        for (millis, is_late) in [(0, false), (75, false), (76, true), (100, true), (500, true)] {
            assert_eq!(is_nearly_over(deadline, begun + Duration::from_millis(millis)), is_late, "{millis}");
        }
    }
}
