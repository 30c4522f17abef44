//! How long things may take.

use std::time::{Duration, Instant};

use tokio::time::sleep;

/// What the limiters under test are given for a call; also the default.
pub(crate) const DEADLINE: Duration = Duration::from_millis(100);
/// What a call may take beyond its deadline, for a slow machine.
pub(crate) const SLACK: Duration = Duration::from_millis(50);

/// Waits until it holds; no test waits longer than this.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let until = Instant::now() + Duration::from_secs(5);
    while !holds().await {
        assert!(Instant::now() < until, "not {what} within 5 s");
        sleep(Duration::from_millis(5)).await;
    }
}
