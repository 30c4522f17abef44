//! The future of a decision, which is begun when the service is called.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::request::Parts;

use crate::decide::{Outcome, Start};
use crate::key::RequestKey;
use crate::shared::Shared;

/// The future of a request's head, with the decision about it.
pub(crate) type DecisionFuture = Pin<Box<dyn Future<Output = (Parts, Outcome)> + Send>>;

/// A decision that was begun.
#[expect(clippy::large_enum_variant, reason = "most requests are decided, and a box would be an allocation for each")]
pub(crate) enum Begun {
    Decided(Parts, Outcome),
    /// The request waits for its permit, for the reply of a store or for its key.
    Deciding(DecisionFuture),
}

impl Begun {
    /// Begins the decision about a request, and ends it if that takes no wait.
    pub(crate) fn new<K: RequestKey, A: Send + Sync + 'static>(shared: &Arc<Shared<K, A>>, parts: Parts) -> Self {
        let (prepared, is_keyed) = match shared.limit.start(&parts) {
            Start::Decided(outcome) => return Self::Decided(parts, outcome),
            Start::Keyed(prepared) => (Some(prepared), true),
            Start::Unkeyed => (None, false),
        };
        let shared = Arc::clone(shared);
        let mut decision: DecisionFuture = Box::pin(async move {
            let outcome = shared.limit.finish(prepared, &parts).await;
            (parts, outcome)
        });
        // The future of a key is the program's: its task polls it.
        if is_keyed && let Poll::Ready((parts, outcome)) = poll_once(&mut decision) {
            return Self::Decided(parts, outcome);
        }
        Self::Deciding(decision)
    }
}

/// Polls a future that its task will poll again, if it is not ready. That poll registers the waker of the task.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}
