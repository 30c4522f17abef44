//! Times that tests give to the limiter, and to the machine.

use std::time::{Duration, Instant};

use tokio::time::sleep;

/// The deadline of a limiter under test, unless it has another one; also the default.
pub(crate) const DEADLINE: Duration = Duration::from_millis(100);

/// The time beyond its deadline after which a call counts as one that hangs.
///
/// No test asserts how close to its deadline a call ends: that depends on the machine, and the fault bench measures it.
pub(crate) const SLACK: Duration = Duration::from_secs(5);

/// The time that a condition has to come true in [`eventually`]: far more than it takes on a machine under load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until it holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let until = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < until, "not {what} within {PATIENCE:?}");
        sleep(Duration::from_millis(2)).await;
    }
}
