//! Reads of the shared rules, again if the connection was lost.

use std::time::{Duration, Instant};

use rate_limited::{Error, Published, SharedRules};
use tokio::time::sleep;

/// The time in which a failed read is repeated. Reads change nothing.
const MAX_TIME: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(100);

/// Reads the text in force.
pub(super) async fn read(shared: &SharedRules) -> Result<Published, Error> {
    repeat(async || shared.read().await).await
}

/// Reads the latest versions, from the newest.
pub(super) async fn history(shared: &SharedRules, max_entries: usize) -> Result<Vec<Published>, Error> {
    repeat(async || shared.history(max_entries).await).await
}

async fn repeat<T>(read: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    let start = Instant::now();
    loop {
        match read().await {
            Err(error) if error.is_transient() && start.elapsed() < MAX_TIME => sleep(PAUSE).await,
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rate_limited::Limiter;

    use super::*;

    /// Returns the number of reads, if the first two fail by this error.
    async fn reads_after(error: Error) -> (u32, bool) {
        let reads = Cell::new(0);
        let result = repeat(async || {
            reads.set(reads.get() + 1);
            if reads.get() <= 2 { Err(error.clone()) } else { Ok(()) }
        });
        let is_read = result.await.is_ok();
        (reads.get(), is_read)
    }

    #[tokio::test]
    async fn a_read_is_repeated_after_a_failure_that_may_pass() {
        let connect = async |url: &str| Limiter::connect(url).await.expect_err(url);
        assert_eq!(reads_after(connect("redis://127.0.0.1:1").await).await, (3, true));
        assert_eq!(reads_after(connect("htp://x").await).await, (1, false));
    }
}
