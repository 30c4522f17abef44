//! The permission to send a call: its permit, while its key is not paused.

use std::time::Duration;

use limiter_core::private::{LimitedRequest, TowerRule, now, sleep};
use limiter_core::{Allowed, Decision, Denied, Error, Key, Limiter};

use super::OutgoingOptions;
use super::pauses::Pauses;

/// The rule of a layer and the pauses of its keys.
#[derive(Debug)]
pub(super) struct OutgoingLimit {
    rule: TowerRule,
    pauses: Pauses,
}

/// The reason why a call is not sent.
pub(super) enum NotSent {
    Denied(Denied),
    Failed(Error),
}

impl OutgoingLimit {
    pub(super) fn new(rule: TowerRule) -> Self {
        Self { rule, pauses: Pauses::default() }
    }

    /// Waits until a call may be sent, and takes its permit. `overtaken` is a permit of this call, which goes back first.
    ///
    /// # Cancel safety
    /// As for [`Limiter::wait`].
    pub(super) async fn permit(
        &self,
        limiter: &Limiter,
        key: &Key,
        options: &OutgoingOptions,
        deadline: Duration,
        mut overtaken: Option<Allowed>,
    ) -> Result<Allowed, NotSent> {
        let request = LimitedRequest { key, form: 0, cost: 1 };
        loop {
            if let Some(allowed) = overtaken.take()
                && let Err(error) = limiter.refund(&allowed).await
            {
                let rule = self.rule.name();
                tracing::warn!(target: "rate_limited", rule, %error, "a refund failed: the permit stays taken");
            }
            let time_left = self.wait_for_pause(limiter, request, options, deadline).await?;
            let limits = [options.limit];
            let decision = self.rule.decide(limiter, &limits, request, options.on_error, time_left).await;
            let allowed = match decision.map_err(NotSent::Failed)? {
                Decision::Allowed(allowed) => allowed,
                Decision::Denied(denied) => return Err(NotSent::Denied(denied)),
            };
            if !self.is_paused(limiter, key) {
                return Ok(allowed);
            }
            overtaken = Some(allowed);
        }
    }

    /// Returns whether a response to another call has paused the key. A call with a permit is then not sent, so its
    /// permit is free.
    pub(super) fn is_paused(&self, limiter: &Limiter, key: &Key) -> bool {
        self.pauses.remaining(key, now(limiter)).is_some()
    }

    /// Waits while the key is paused. Returns the time that is left until `deadline`.
    async fn wait_for_pause(
        &self,
        limiter: &Limiter,
        request: LimitedRequest<'_>,
        options: &OutgoingOptions,
        deadline: Duration,
    ) -> Result<Duration, NotSent> {
        loop {
            let now = now(limiter);
            let time_left = deadline.saturating_sub(now);
            match self.pauses.remaining(request.key, now) {
                None => return Ok(time_left),
                Some(pause) if pause > time_left => {
                    let denied = self.rule.deny_until(limiter, options.limit, request, pause);
                    return Err(NotSent::Denied(denied));
                }
                Some(pause) => sleep(limiter, pause).await.map_err(NotSent::Failed)?,
            }
        }
    }

    /// Pauses a key after a response, for the demanded time or `longest_pause`.
    pub(super) fn pause(&self, limiter: &Limiter, key: &Key, demanded: Duration, longest_pause: Duration) {
        let (now, pause) = (now(limiter), demanded.min(longest_pause));
        if pause.is_zero() {
            return;
        }
        let rule = self.rule.name();
        tracing::debug!(target: "rate_limited", rule, ?demanded, ?pause, "a peer demands a pause");
        self.pauses.pause(key, now.saturating_add(pause), now);
    }
}
