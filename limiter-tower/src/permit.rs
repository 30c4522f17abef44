//! The permit of a request that the inner service gets: the fields of its answer, and its refund.

use std::fmt::{self, Debug};
use std::pin::Pin;

use http::Response;
use http::request::Parts;
use limiter_core::{Allowed, Decision, Limiter};

use crate::decide::{LayerLimit, Permit};
use crate::key::RequestKey;
use crate::options::RefundIf;
use crate::quota_fields::QuotaFields;
use crate::repeated::add_permit;

pub(crate) type RefundFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The steps that the answer to a request takes.
#[derive(Default)]
pub(crate) struct AnswerSteps {
    fields: QuotaFields,
    /// `None` unless the answer may give the permits back.
    refund: Option<Box<Refund>>,
}

/// The permits of a request, which its answer may give back.
struct Refund {
    refund_if: RefundIf,
    /// A copy of the request's head.
    parts: Parts,
    allowed: Allowed,
    limiter: Limiter,
    rule: String,
}

/// Prepares a request for the inner service: its extensions get the permit.
pub(crate) fn pass<K: RequestKey>(
    limit: &LayerLimit<K>,
    permit: Option<Permit>,
    mut parts: Parts,
) -> (Parts, AnswerSteps) {
    let Some(Permit { allowed, limiter }) = permit else { return (parts, AnswerSteps::default()) };
    let refund = limit.options.refund_if.as_ref().zip(limiter).map(|(refund_if, limiter)| {
        Box::new(Refund {
            refund_if: refund_if.clone(),
            parts: parts.clone(),
            allowed: allowed.clone(),
            limiter,
            rule: limit.options.rule.clone(),
        })
    });
    let decision = Decision::Allowed(allowed);
    let fields = limit.fields.fields_of(&decision);
    if let Decision::Allowed(allowed) = decision {
        add_permit(allowed, &mut parts);
    }
    (parts, AnswerSteps { fields, refund })
}

impl AnswerSteps {
    /// Adds the fields to an answer, except to a redirect. Returns the refund that the answer waits for.
    pub(crate) fn apply<C>(self, response: &mut Response<C>) -> Option<RefundFuture> {
        let Self { fields, refund } = self;
        if !response.status().is_redirection() {
            fields.add_to(response.headers_mut());
        }
        let refund = refund.filter(|refund| (refund.refund_if)(&refund.parts, response.status()))?;
        Some(Box::pin(async move {
            let Refund { allowed, limiter, rule, .. } = *refund;
            if let Err(error) = limiter.refund(&allowed).await {
                tracing::warn!(target: "rate_limited", rule, %error, "a refund failed: the permits stay taken");
            }
        }))
    }
}

impl Debug for AnswerSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerSteps").field("fields", &self.fields).finish_non_exhaustive()
    }
}
