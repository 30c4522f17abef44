//! Waiting for a permit: by turns that the store gives, or by asking again when the time has come.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::decision::{Decision, DecisionContext, Denied};
use crate::limiter::Limiter;
use crate::limiter::check::Asking;
use crate::limiter::wait_queue::{Schedule, Turn, WaitQueues, next_number};
use crate::request::Request;
use crate::request::{CallOptions, Resolution};
use crate::sync::process::{DroppedAtHome, forked};
use crate::{Algorithm, Error, Source};

mod timed;

use timed::timed;

/// The shortest wait for another check.
const MIN_RETRY: Duration = Duration::from_millis(1);

impl Limiter {
    /// Decides, waiting for a place up to `max_wait`.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would keep its arguments twice")]
    pub(crate) fn decide_within<'a>(
        &'a self,
        rules: DecisionContext<'a>,
        terms: CallOptions,
        max_wait: Duration,
    ) -> impl Future<Output = Result<Decision, Error>> + Send + 'a {
        async move {
            let decision = match rules.requests {
                // Of several, each would have a turn of its own.
                [request] if request.limit.algorithm() == Algorithm::LeakyBucket => {
                    Box::pin(self.stand_in_line(rules, terms, max_wait)).await?
                }
                _ => self.wait_for(rules, terms, max_wait).await?,
            };
            self.inner.observers.decided(&decision);
            Ok(decision)
        }
    }

    /// Takes a turn and waits for it.
    async fn stand_in_line(
        &self,
        rules: DecisionContext<'_>,
        terms: CallOptions,
        max_wait: Duration,
    ) -> Result<Decision, Error> {
        let ruling = self.rule(rules, CallOptions { max_wait, ..terms }).await?;
        let decision = rules.decision(&ruling, Some(self.inner.limiter_id));
        if let (Resolution::Counted(settled), Decision::Allowed(_)) = (&ruling, &decision) {
            // From here on: not a moment before the turn, and late by no more than the answer took to come.
            if let Err(error) = self.inner.clock.sleep(settled.answer.delay).await {
                return self.decide_by_policy(rules, terms, error);
            }
        }
        Ok(decision)
    }

    /// Checks until the call is admitted, in the order of the calls' numbers once it was denied.
    ///
    /// Not an `async fn`, which would keep its arguments twice. What asks the store is on the heap, and gone before the
    /// call sleeps: waiting calls are many.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would keep its arguments twice")]
    fn wait_for<'a>(
        &'a self,
        rules: DecisionContext<'a>,
        terms: CallOptions,
        max_wait: Duration,
    ) -> impl Future<Output = Result<Decision, Error>> + Send + 'a {
        async move {
            let clock = &self.inner.clock;
            let number = next_number();
            let began = clock.now();
            let give_up = began.after(max_wait);
            // A queue is of calls that were denied: where there is none, there are permits, as far as is known. A call that
            // finds one only looks whether it could be served in time.
            let is_behind = self.may_have_waiters(rules.requests);
            let asking: Asking<'_> =
                if is_behind { Box::pin(self.look(rules, terms)) } else { Box::pin(self.ask(rules, terms)) };
            let (decision, answered_at) = timed(clock, asking).await;
            let retry_at = match decision? {
                Decision::Allowed(_) if is_behind => began,
                allowed @ Decision::Allowed(_) => return Ok(allowed),
                Decision::Denied(denied) => match next_retry(&denied, answered_at, give_up) {
                    Some(retry_at) => retry_at,
                    None => return Ok(Decision::Denied(denied)),
                },
            };
            let queues = match self.wait_queues() {
                Ok(queues) => queues,
                Err(error) => return self.decide_by_policy(rules, terms, error),
            };
            let mut ticket = queues.ticket(rules.requests, number, Schedule { retry_at, give_up });
            loop {
                match ticket.turn().await {
                    Ok(Turn::Check) => {}
                    Ok(Turn::TimedOut) => break,
                    Err(error) => return self.decide_by_policy(rules, terms, error),
                }
                let (checked, answered_at) = match ticket.check(Box::pin(timed(clock, self.ask(rules, terms)))).await {
                    Ok(checked) => checked,
                    Err(error) => return self.decide_by_policy(rules, terms, error),
                };
                match checked? {
                    Decision::Denied(denied) => match next_retry(&denied, answered_at, give_up) {
                        Some(retry_at) => ticket.retry_at(retry_at),
                        None => return Ok(Decision::Denied(denied)),
                    },
                    allowed => return Ok(allowed),
                }
            }
            Box::pin(self.last_answer(rules, terms, queues)).await
        }
    }

    /// Decides about a call that cannot wait.
    #[cold]
    fn decide_by_policy(
        &self,
        rules: DecisionContext<'_>,
        terms: CallOptions,
        error: Error,
    ) -> Result<Decision, Error> {
        Ok(rules.decision(&self.rule_without_store(error, terms)?, None))
    }

    /// The queues of this process.
    fn wait_queues(&self) -> Result<&Arc<WaitQueues>, Error> {
        let make = || Ok(DroppedAtHome::new(WaitQueues::new(self.inner.clock.clone())));
        self.inner.queues.get_or_make(make)?.get().ok_or_else(forked)
    }

    fn may_have_waiters(&self, requests: &[Request<'_>]) -> bool {
        // Whose queues they are matters only where a call waits.
        let latest = self.inner.queues.latest().and_then(DroppedAtHome::get);
        let is_idle = latest.is_some_and(|queues| queues.is_idle());
        !is_idle && self.wait_queues().is_ok_and(|queues| queues.has(requests))
    }

    /// Decides about a call whose wait is over. It has left its queue: no other call waits for this answer.
    async fn last_answer(
        &self,
        rules: DecisionContext<'_>,
        terms: CallOptions,
        queues: &WaitQueues,
    ) -> Result<Decision, Error> {
        let decision = self.look(rules, terms).await?;
        match queues.first_turn(rules.requests) {
            None if decision.is_allowed() => self.ask(rules, terms).await,
            first_turn => {
                let now = self.inner.clock.now();
                Ok(Decision::Denied(decision.out_of_time(now.until(first_turn.unwrap_or(now)))))
            }
        }
    }
}

/// The instant at which a denied call may be checked again; `None` if it is not worth waiting for.
fn next_retry(denied: &Denied, answered_at: Moment, give_up: Moment) -> Option<Moment> {
    if denied.source() == Source::Policy || denied.is_final() {
        return None;
    }
    Some(answered_at.after(denied.retry_after().max(MIN_RETRY))).filter(|retry_at| *retry_at <= give_up)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Limit};

    #[test]
    fn a_call_that_waits_is_small() {
        let (limiter, key) = (Limiter::memory(), Key::new("a"));
        let size = size_of_val(&limiter.wait(&key, &Limit::WIDEST, Duration::ZERO));
        assert!(size <= 500, "{size} bytes");
    }
}
