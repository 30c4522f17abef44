//! Futures that are dropped before they are done.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use crate::random::Random;

/// The point at which a future is dropped.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// After so many polls.
    Polls(u64),
    /// After so much time.
    Time(Duration),
    /// Never.
    Done,
}

impl Until {
    /// Returns a point, which is an early one in one of `times` cases.
    pub(super) fn random(random: &mut Random, times: u64) -> Self {
        if random.below(times) > 0 {
            return Self::Done;
        }
        match random.below(2) {
            0 => Self::Polls(random.below(4)),
            _ => Self::Time(Duration::from_micros(random.below(3_000))),
        }
    }

    /// Runs a future up to there; `None` if it was dropped.
    pub(super) async fn run<F: Future>(self, future: F) -> Option<F::Output> {
        match self {
            Self::Done => Some(future.await),
            Self::Time(time) => timeout(time, future).await.ok(),
            Self::Polls(polls) => {
                let (mut future, mut polled) = (pin!(future), 0);
                poll_fn(|context| {
                    if polled == polls {
                        return Poll::Ready(None);
                    }
                    polled += 1;
                    match future.as_mut().poll(context) {
                        // Nothing else would wake it to be dropped.
                        Poll::Pending if polled == polls => Poll::Ready(None),
                        answer => answer.map(Some),
                    }
                })
                .await
            }
        }
    }
}
