//! The options of a layer.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use limiter_core::http::Fields;
use limiter_core::{Limit, Limiter, OnError};

use crate::customer_plan::CustomerPlans;
use crate::missing::Missing;
use crate::settlement::Settlement;

type FnOfParts<R> = Arc<dyn Fn(&Parts) -> R + Send + Sync>;

/// The options of a layer, except for those with a type of their own.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) rule: String,
    pub(crate) limit: Limit,
    pub(crate) limit_by: Option<FnOfParts<Limit>>,
    pub(crate) more_limits: Vec<Limit>,
    pub(crate) missing: Missing,
    pub(crate) cost: Option<FnOfParts<u32>>,
    pub(crate) plans: CustomerPlans,
    pub(crate) when: Option<FnOfParts<bool>>,
    pub(crate) wait: Duration,
    pub(crate) limiter: Option<Limiter>,
    pub(crate) on_error: Option<OnError>,
    pub(crate) fields: Fields,
    pub(crate) settlement: Option<Settlement>,
    /// The most requests of a key that are open in this process, if they are charged by their answer.
    pub(crate) max_open: u32,
}

impl Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, limit, more_limits, missing, wait, on_error, fields, .. } = self;
        f.debug_struct("RateLimitLayer")
            .field("rule", rule)
            .field("limit", limit)
            .field("more_limits", more_limits)
            .field("missing", missing)
            .field("wait", wait)
            .field("on_error", on_error)
            .field("fields", fields)
            .finish_non_exhaustive()
    }
}
