//! The settlement of a request by its answer: permits that go back, or are charged.

use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;
use limiter_core::service::{OpenCall, TowerRule, UntilDone};
use limiter_core::{Allowed, ErrorKind, Limiter};

type FnOfAnswer<R> = Arc<dyn Fn(&Parts, StatusCode) -> R + Send + Sync>;

/// The choice of a layer, by an answer, of what its request counts.
#[derive(Clone)]
pub(crate) enum Settlement {
    /// The request takes its cost, which goes back after an answer for which this returns `true`.
    Refund(FnOfAnswer<bool>),
    /// The request takes its cost, and counts what this returns instead.
    Settle(FnOfAnswer<Option<u32>>),
    /// The request takes nothing, and is charged what this returns.
    Charge(FnOfAnswer<u32>),
}

/// A request between its decision and its answer. If it is dropped, what the request took stays taken, and it is charged
/// nothing.
pub(crate) struct Unsettled {
    pub(crate) rule: TowerRule,
    pub(crate) limiter: Limiter,
    pub(crate) allowed: Allowed,
    /// The request has taken nothing.
    pub(crate) is_postpaid: bool,
    /// Its place among the open requests of its key, if there is a bound for them.
    pub(crate) open: Option<Box<OpenCall>>,
}

impl Settlement {
    /// Returns whether requests are charged by their answer and take nothing before.
    pub(crate) fn is_postpaid(&self) -> bool {
        self.postpaid() == Some(true)
    }

    /// Returns whether requests are postpaid, if their settings do not decide that: what is only given back is never charged.
    pub(crate) fn postpaid(&self) -> Option<bool> {
        match self {
            Self::Refund(_) => Some(false),
            Self::Settle(_) => None,
            Self::Charge(_) => Some(true),
        }
    }

    /// Returns the permits that a request counts after its answer. `None` for those that it has taken.
    pub(crate) fn actual_cost(&self, parts: &Parts, status: StatusCode) -> Option<u32> {
        match self {
            Self::Refund(refund_if) => refund_if(parts, status).then_some(0),
            Self::Settle(settle_if) => settle_if(parts, status),
            Self::Charge(charge_if) => Some(charge_if(parts, status)),
        }
    }
}

impl Unsettled {
    /// Makes the request count as many permits. `None` if it does already.
    ///
    /// The answer waits for it, so that the next request of a client finds it counted. If the answer is dropped meanwhile, it
    /// is done nevertheless.
    pub(crate) fn settle(self, actual_cost: u32) -> Option<UntilDone> {
        let Self { rule, limiter, allowed, is_postpaid, open } = self;
        if actual_cost == 0 && is_postpaid {
            return None;
        }
        Some(UntilDone::new(async move {
            let (settled, failure) = match actual_cost {
                0 => (limiter.refund(&allowed).await, "a refund failed: the permits stay taken"),
                _ => {
                    let failure = match is_postpaid {
                        true => "a charge failed: its permits may not count",
                        false => "a settlement failed: what the request took may count instead",
                    };
                    (limiter.settle(&allowed, actual_cost).await.map(drop), failure)
                }
            };
            // The service may have settled the request itself.
            if let Err(error) = settled
                && error.kind() != ErrorKind::Settled
            {
                tracing::warn!(target: "rate_limited", rule = rule.name(), %error, "{failure}");
            }
            // Only now: the next request finds the charge counted.
            drop(open);
        }))
    }
}
