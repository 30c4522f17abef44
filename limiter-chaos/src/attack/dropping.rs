//! Futures that are dropped at a random point.

use std::time::Duration;

use limiter_testkit::Random;
use tokio::time::timeout;

use crate::cancel::poll_at_most;

/// The point at which a future is dropped.
#[derive(Debug, Clone, Copy)]
pub(super) enum DropPoint {
    /// Dropped after this many polls.
    Polls(u64),
    /// Dropped after this time.
    Time(Duration),
    /// Never dropped.
    Never,
}

impl DropPoint {
    /// Returns a random point, which is an early one in one of `times` cases.
    pub(super) fn random(random: &mut Random, times: u64) -> Self {
        if random.below(times) > 0 {
            return Self::Never;
        }
        match random.below(2) {
            0 => Self::Polls(random.below(4)),
            _ => Self::Time(Duration::from_micros(random.below(3_000))),
        }
    }

    /// Runs a future up to this point. Returns `None` if it was dropped.
    pub(super) async fn run<F: Future>(self, future: F) -> Option<F::Output> {
        match self {
            Self::Never => Some(future.await),
            Self::Time(time) => timeout(time, future).await.ok(),
            Self::Polls(polls) => poll_at_most(polls, future).await,
        }
    }
}
