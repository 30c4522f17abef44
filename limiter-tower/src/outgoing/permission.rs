//! The permission to send a call: its permit, while its key is not paused.

use std::time::Duration;

use limiter_core::service::{HeldSlots, LimitedRequest, TowerRule, now, sleep};
use limiter_core::{Allowed, Decision, Denied, Error, Key, Limiter};

use super::pauses::Pauses;
use super::{OutgoingOptions, Payment};
use crate::held_body::CallSlots;
use crate::settlement::Unsettled;

/// The rule of a layer and the pauses of its keys.
#[derive(Debug)]
pub(super) struct OutgoingLimit {
    rule: TowerRule,
    pauses: Pauses,
}

/// The permit and the slots of a call that may be sent.
pub(super) struct Permission {
    pub(super) allowed: Allowed,
    pub(super) slots: CallSlots,
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

    /// Waits until a call may be sent, and takes its permit.
    ///
    /// # Cancel safety
    /// As for [`Limiter::wait`].
    pub(super) async fn permit(
        &self,
        limiter: &Limiter,
        key: &Key,
        options: &OutgoingOptions,
        deadline: Duration,
    ) -> Result<Permission, NotSent> {
        let request = options.request(key);
        loop {
            let mut held = HeldSlots::new();
            let time_left = self.wait_for_pause(limiter, request, options, deadline).await?;
            let decision = self.rule.decide(limiter, &[options.limit], request, time_left, &mut held).await;
            let allowed = permitted(decision.map_err(NotSent::Failed)?)?;
            let permission = Permission { allowed, slots: CallSlots::new(held) };
            if !self.is_paused(limiter, key) {
                return Ok(permission);
            }
            drop(permission.slots);
            self.give_back(limiter, &permission.allowed).await;
        }
    }

    /// Takes a permit if a call may be sent now. `None` if it may not.
    ///
    /// # Cancel safety
    /// As for [`Limiter::check`].
    pub(super) async fn take(
        &self,
        limiter: &Limiter,
        key: &Key,
        options: &OutgoingOptions,
    ) -> Result<Option<Permission>, NotSent> {
        if self.is_paused(limiter, key) {
            return Ok(None);
        }
        let (request, mut held) = (options.request(key), HeldSlots::new());
        let decision = self.rule.take(limiter, &options.limit, request, &mut held).await;
        let Some(decision) = decision.map_err(NotSent::Failed)? else { return Ok(None) };
        let permission = Permission { allowed: permitted(decision)?, slots: CallSlots::new(held) };
        if !self.is_paused(limiter, key) {
            return Ok(Some(permission));
        }
        drop(permission.slots);
        self.give_back(limiter, &permission.allowed).await;
        Ok(None)
    }

    /// Returns a call that is sent, until its response settles it. `None` if no response does.
    pub(super) fn unsettled(
        &self,
        limiter: &Limiter,
        options: &OutgoingOptions,
        allowed: Allowed,
    ) -> Option<Unsettled> {
        let is_postpaid = options.payment == Payment::Postpaid;
        (options.payment != Payment::Prepaid).then(|| Unsettled {
            rule: self.rule.clone(),
            limiter: limiter.clone(),
            allowed,
            is_postpaid,
            open: None,
        })
    }

    /// Gives back the permit of a call that is not sent.
    pub(super) async fn give_back(&self, limiter: &Limiter, allowed: &Allowed) {
        if let Err(error) = limiter.refund(allowed).await {
            let rule = self.rule.name();
            tracing::warn!(target: "rate_limited", rule, %error, "a refund failed: the permit stays taken");
        }
    }

    /// Returns whether a response to another call has paused the key. A call with a permit is then not sent, so its
    /// permit is free.
    fn is_paused(&self, limiter: &Limiter, key: &Key) -> bool {
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
                    let denied = self.rule.deny_until(limiter, options.limit, request, now..now + pause);
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

fn permitted(decision: Decision) -> Result<Allowed, NotSent> {
    match decision {
        Decision::Allowed(allowed) => Ok(allowed),
        Decision::Denied(denied) => Err(NotSent::Denied(denied)),
    }
}
