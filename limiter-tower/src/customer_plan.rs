//! The plan of a request's customer, by which the rule of a layer may have other limits.

use std::pin::Pin;
use std::sync::Arc;

use http::request::Parts;
use limiter_core::service::PlanOfCall;

/// The source of the plans of a layer's requests.
#[derive(Clone)]
pub(crate) enum CustomerPlans {
    None,
    Function(Arc<dyn Fn(&Parts) -> PlanOfCall + Send + Sync>),
    AsyncFunction(Arc<dyn Fn(&Parts) -> PlanFuture + Send + Sync>),
}

type PlanFuture = Pin<Box<dyn Future<Output = PlanOfCall> + Send>>;

impl CustomerPlans {
    /// The plans that a function returns.
    pub(crate) fn by<F, P>(plan: F) -> Self
    where
        F: Fn(&Parts) -> Option<P> + Send + Sync + 'static,
        P: AsRef<str>,
    {
        Self::Function(Arc::new(move |parts| named(plan(parts))))
    }

    /// The plans that an async function returns.
    pub(crate) fn by_async<F, U, P>(plan: F) -> Self
    where
        F: Fn(&Parts) -> U + Send + Sync + 'static,
        U: Future<Output = Option<P>> + Send + 'static,
        P: AsRef<str>,
    {
        Self::AsyncFunction(Arc::new(move |parts| {
            let plan = plan(parts);
            Box::pin(async move { named(plan.await) })
        }))
    }

    /// Returns whether the plan is known only after a wait.
    pub(crate) fn is_async(&self) -> bool {
        matches!(self, Self::AsyncFunction(_))
    }

    /// Returns the plan of a request. That of an async function is [`read`](Self::read).
    pub(crate) fn read_now(&self, parts: &Parts) -> PlanOfCall {
        match self {
            Self::Function(plan) => plan(parts),
            Self::None | Self::AsyncFunction(_) => PlanOfCall::NONE,
        }
    }

    /// Returns the plan of a request, after a wait if need be.
    pub(crate) async fn read(&self, parts: &Parts) -> PlanOfCall {
        match self {
            Self::AsyncFunction(plan) => plan(parts).await,
            _ => self.read_now(parts),
        }
    }
}

fn named(plan: Option<impl AsRef<str>>) -> PlanOfCall {
    plan.map_or(PlanOfCall::NONE, |plan| PlanOfCall::new(plan.as_ref()))
}
