//! Waiting for a permit: by turns that the store gives, or by asking again when the time has come.

use std::time::Duration;

use super::{Inner, Limiter};
use crate::decision::{Decision, Denied, Rules};
use crate::guard::{Ruling, Terms};
use crate::{Algorithm, Error, Source};

impl Limiter {
    /// Decides, waiting for a place up to `max_wait`.
    pub(crate) async fn decide_within(
        &self,
        rules: Rules<'_>,
        terms: Terms,
        max_wait: Duration,
    ) -> Result<Decision, Error> {
        let decision = match rules.questions {
            // Of several, each would have a turn of its own.
            [question] if question.limit.algorithm() == Algorithm::LeakyBucket => {
                Box::pin(self.stand_in_line(rules, terms, max_wait)).await?
            }
            _ => self.wait_for(rules, terms, max_wait).await?,
        };
        self.inner.observers.decided(&decision);
        Ok(decision)
    }

    /// Takes a turn and waits for it.
    async fn stand_in_line(&self, rules: Rules<'_>, terms: Terms, patience: Duration) -> Result<Decision, Error> {
        let ruling = self.rule(rules, Terms { patience, ..terms }).await?;
        let decision = rules.decision(&ruling, Some(self.inner.giver));
        if let (Ruling::Settled(settled), Decision::Allowed(_)) = (&ruling, &decision) {
            // From here on: not a moment before the turn, and late by no more than the answer took to come.
            self.inner.clock.sleep(settled.answer.delay).await?;
        }
        Ok(decision)
    }

    async fn wait_for(&self, rules: Rules<'_>, terms: Terms, max_wait: Duration) -> Result<Decision, Error> {
        let Inner { clock, queues, .. } = &*self.inner;
        let give_up = clock.now().after(max_wait);
        let in_time = |denied: &Denied| {
            let waits = denied.source() != Source::Policy && !denied.is_final();
            waits && clock.now().after(denied.retry_after()) <= give_up
        };
        let mut sleep = None;
        // Where nobody is in line there are permits, as far as is known: a line is of those who were denied.
        if !queues.has(rules.questions) {
            // On the heap while it is asked, and gone before it sleeps: those who wait are many, and have room for neither.
            match Box::pin(self.ask(rules, terms)).await? {
                Decision::Denied(denied) if in_time(&denied) => sleep = Some(clock.now().after(denied.retry_after())),
                decision => return Ok(decision),
            }
        }
        let queue = queues.join(rules.questions);
        if sleep.is_none() && queue.is_busy() {
            // There is no need to stand in line for what cannot come in time.
            if let Decision::Denied(denied) = Box::pin(self.look(rules, terms)).await?
                && !in_time(&denied)
            {
                return Ok(Decision::Denied(denied));
            }
        }
        let Some(_turn) = Box::pin(queue.turn(clock, give_up)).await else {
            return Ok(Decision::Denied(Box::pin(self.look(rules, terms)).await?.out_of_time()));
        };
        loop {
            if let Some(until) = sleep {
                clock.sleep_until(until).await?;
            }
            sleep = match Box::pin(self.ask(rules, terms)).await? {
                Decision::Denied(denied) if in_time(&denied) => Some(clock.now().after(denied.retry_after())),
                decision => return Ok(decision),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Limit};

    #[test]
    fn a_call_that_waits_is_small() {
        let (limiter, key) = (Limiter::memory(), Key::new("a"));
        let size = size_of_val(&limiter.wait(&key, &Limit::WIDEST, Duration::ZERO));
        assert!(size <= 700, "{size} bytes");
    }
}
