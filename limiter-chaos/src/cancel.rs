//! Futures that are dropped before they complete.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Polls a future at most this often and returns its output, or drops it and returns `None`.
pub(crate) async fn poll_at_most<F: Future>(max_polls: u64, future: F) -> Option<F::Output> {
    let (mut future, mut polls) = (pin!(future), 0);
    poll_fn(|context| {
        if polls == max_polls {
            return Poll::Ready(None);
        }
        polls += 1;
        match future.as_mut().poll(context) {
            // Nothing else would wake the task to drop the future.
            Poll::Pending if polls == max_polls => Poll::Ready(None),
            poll => poll.map(Some),
        }
    })
    .await
}
