//! The future of a decision about one request.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::limiter::api::DIRECT;
use crate::limiter::{Backend, Limiter};
use crate::request::Request;
use crate::{Decision, Error, Key, Limit};

/// Asks when it is polled first. A store in memory answers then.
///
/// A type and not an `async fn`: of those, each moves what the one that it awaits gives, and a decision is moved no
/// quicker than it is made.
pub(super) struct Checking<'a> {
    pub(super) limiter: &'a Limiter,
    pub(super) key: &'a Key,
    pub(super) limit: &'a Limit,
    pub(super) cost: u32,
    /// Where the store cannot answer at once.
    pub(super) asking: Option<Asking<'a>>,
    /// Has answered: nothing is taken a second time.
    pub(super) is_done: bool,
}

pub(super) type Asking<'a> = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send + Sync + 'a>>;

impl<'a> Checking<'a> {
    #[inline]
    fn request(&self) -> Request<'a> {
        Request { key: self.key, limit: *self.limit, cost: self.cost }
    }

    #[inline(never)]
    fn ask(&mut self, context: &mut Context<'_>) -> Poll<Result<Decision, Error>> {
        let (limiter, request) = (self.limiter, self.request());
        // A flood is to cost little here, too.
        if self.asking.is_none()
            && let Some(denial) = limiter.known_denial(DIRECT, &request)
        {
            self.is_done = true;
            return Poll::Ready(Ok(denial));
        }
        let asking = self.asking.get_or_insert_with(|| Box::pin(limiter.decide_alone(request)));
        let answer = asking.as_mut().poll(context);
        self.is_done = answer.is_ready();
        answer
    }
}

impl Future for Checking<'_> {
    type Output = Result<Decision, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_done {
            return Poll::Pending;
        }
        match &self.limiter.inner.backend {
            Backend::Memory(store) => {
                self.is_done = true;
                self.limiter.decide_in_memory(store, &self.request())
            }
            Backend::Guarded(_) => self.ask(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_polls_on_takes_no_more() {
        let (limiter, key, limit) = (Limiter::memory(), Key::new("a"), Limit::WIDEST);
        let mut checking =
            Checking { limiter: &limiter, key: &key, limit: &limit, cost: 1, asking: None, is_done: false };
        let mut poll = || Pin::new(&mut checking).poll(&mut Context::from_waker(std::task::Waker::noop()));
        assert!(poll().is_ready());
        assert!(poll().is_pending());
    }

    /// What the caller moves for a decision.
    #[test]
    fn a_decision_and_its_future_are_small() {
        let (future, decision) = (size_of::<Checking<'_>>(), size_of::<Poll<Result<Decision, Error>>>());
        assert!(future <= 48 && decision <= 120, "{future} and {decision} bytes");
    }
}
