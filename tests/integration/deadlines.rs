//! Deadlines and timeouts that the tests share.

use std::time::{Duration, Instant};

use rate_limited::{Error, ErrorKind};
use tokio::time::sleep;

/// The usual deadline of a limiter under test, which is also the default.
pub(crate) const DEADLINE: Duration = Duration::from_millis(100);

/// The time beyond its deadline after which a call counts as hanging.
///
/// No test asserts how close to its deadline a call ends. That depends on the machine, and the fault bench measures it.
pub(crate) const MAX_LATENESS: Duration = Duration::from_secs(5);

/// The longest wait for a condition in [`eventually`]: far more than it takes on a machine under load.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until the condition holds, and panics after [`WAIT_TIMEOUT`].
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let until = Instant::now() + WAIT_TIMEOUT;
    while !holds().await {
        assert!(Instant::now() < until, "not {what} within {WAIT_TIMEOUT:?}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Repeats the operation while there is no connection, at most for [`WAIT_TIMEOUT`]. An attempt to connect ends after a
/// second, also on a machine that stands still for so long.
pub(crate) async fn once_connected<T>(operation: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    let until = Instant::now() + WAIT_TIMEOUT;
    loop {
        match operation().await {
            Err(error) if error.kind() == ErrorKind::Unavailable && Instant::now() < until => {}
            result => return result,
        }
    }
}
