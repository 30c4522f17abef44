//! The permit of a request that the inner service gets: the fields of its answer, and its settlement.

use std::fmt::{self, Debug};

use http::Response;
use http::request::Parts;
use limiter_core::Decision;
use limiter_core::service::UntilDone;

use crate::decide::{LayerLimit, Permit};
use crate::held_body::{CallSlots, HeldBody};
use crate::key::RequestKey;
use crate::quota_fields::QuotaFields;
use crate::repeated::add_permit;
use crate::settlement::{Settlement, Unsettled};

/// The steps that the answer to a request takes.
#[derive(Default)]
pub(crate) struct AnswerSteps {
    fields: QuotaFields,
    /// `None` unless the answer settles the request.
    settling: Option<Box<SettlingSteps>>,
    /// Free if the service fails, or after the body of its answer.
    slots: CallSlots,
}

/// The settlement of a request, whose answer is not there yet.
struct SettlingSteps {
    settlement: Settlement,
    /// A copy of the request's head.
    parts: Parts,
    unsettled: Unsettled,
}

/// Prepares a request for the inner service: its extensions get the permit.
pub(crate) fn pass<K: RequestKey>(
    limit: &LayerLimit<K>,
    permit: Option<Permit>,
    mut parts: Parts,
) -> (Parts, AnswerSteps) {
    let Some(Permit { allowed, limiter, open, slots }) = permit else { return (parts, AnswerSteps::default()) };
    let settling = limit.options.settlement.as_ref().zip(limiter).map(|(settlement, limiter)| {
        Box::new(SettlingSteps {
            settlement: settlement.clone(),
            parts: parts.clone(),
            unsettled: Unsettled {
                rule: limit.rule.clone(),
                limiter,
                allowed: allowed.clone(),
                is_postpaid: settlement.is_postpaid(),
                open,
            },
        })
    });
    let decision = Decision::Allowed(allowed);
    let fields = limit.fields.fields_of(&decision);
    if let Decision::Allowed(allowed) = decision {
        add_permit(allowed, &mut parts);
    }
    (parts, AnswerSteps { fields, settling, slots })
}

impl AnswerSteps {
    /// Adds the fields to an answer, except to a redirect, and the slots to its body. Returns the settlement that the answer
    /// waits for.
    pub(crate) fn apply<C>(self, mut response: Response<C>) -> (Response<HeldBody<C>>, Option<UntilDone>) {
        let Self { fields, settling, slots } = self;
        if !response.status().is_redirection() {
            fields.add_to(response.headers_mut());
        }
        let settling = settling.and_then(|settling| {
            let SettlingSteps { settlement, parts, unsettled } = *settling;
            unsettled.settle(settlement.actual_cost(&parts, response.status())?)
        });
        (response.map(|body| HeldBody::new(body, slots)), settling)
    }
}

impl Debug for AnswerSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerSteps").field("fields", &self.fields).finish_non_exhaustive()
    }
}
