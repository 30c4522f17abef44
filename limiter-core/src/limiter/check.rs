//! The future that `check` and `check_n` return.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::decision::{DIRECT_CALL, DecisionContext};
use crate::limiter::{Backend, Limiter};
use crate::request::{CacheLookup, CallOptions, Request};
use crate::{Decision, Error, Key, Limit};

/// The future of a decision about one request. A store in memory decides at its first poll.
///
/// It is a type because each `async fn` moves the output of the future that it awaits. Moving a decision takes as long
/// as making it.
pub(super) struct CheckFuture<'a> {
    pub(super) limiter: &'a Limiter,
    pub(super) key: &'a Key,
    pub(super) limit: &'a Limit,
    pub(super) cost: u32,
    /// The decision of a shared store, from the first poll on.
    pub(super) inner: Option<DecisionFuture<'a>>,
    /// A decision was returned. A later poll takes no permits again.
    pub(super) is_done: bool,
}

pub(super) type DecisionFuture<'a> = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send + Sync + 'a>>;

impl<'a> CheckFuture<'a> {
    #[inline]
    fn request(&self) -> Request<'a> {
        Request::new(self.key, *self.limit, self.cost)
    }

    #[inline(never)]
    fn poll_boxed(&mut self, context: &mut Context<'_>) -> Poll<Result<Decision, Error>> {
        let (limiter, request) = (self.limiter, self.request());
        // A decision in this process costs no allocation, so a flood of denied calls is cheap here as well.
        if self.inner.is_none()
            && limiter.rule_table().switch().is_none()
            && let Some(decision) = limiter.decide_locally(DIRECT_CALL, &request, None, true)
        {
            self.is_done = true;
            return Poll::Ready(Ok(decision));
        }
        let inner = self.inner.get_or_insert_with(|| {
            if limiter.rule_table().switch().is_some() {
                return Box::pin(async move { limiter.decide_switched(&[request], Duration::ZERO).await });
            }
            let options = CallOptions { cache_lookup: CacheLookup::Done, ..limiter.default_options() };
            Box::pin(async move { limiter.decide(DecisionContext::direct(&[request]), options).await })
        });
        let decision = inner.as_mut().poll(context);
        self.is_done = decision.is_ready();
        decision
    }
}

impl Future for CheckFuture<'_> {
    type Output = Result<Decision, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_done {
            return Poll::Pending;
        }
        match &self.limiter.inner.backend {
            Backend::Memory(store) if self.limiter.rule_table().switch().is_none() => {
                self.is_done = true;
                self.limiter.decide_in_memory(store, &self.request())
            }
            _ => self.poll_boxed(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_after_ready_takes_no_permit() {
        let (limiter, key, limit) = (Limiter::memory(), Key::new("a"), Limit::WIDEST);
        let mut check =
            CheckFuture { limiter: &limiter, key: &key, limit: &limit, cost: 1, inner: None, is_done: false };
        let mut poll = || Pin::new(&mut check).poll(&mut Context::from_waker(std::task::Waker::noop()));
        assert!(poll().is_ready());
        assert!(poll().is_pending());
    }

    /// The caller moves both for each decision.
    #[test]
    fn a_decision_and_its_future_are_small() {
        let (future, decision) = (size_of::<CheckFuture<'_>>(), size_of::<Poll<Result<Decision, Error>>>());
        assert!(future <= 48 && decision <= 120, "{future} and {decision} bytes");
    }
}
