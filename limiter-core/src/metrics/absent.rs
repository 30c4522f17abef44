//! Functions and types that record nothing, for builds without the feature `metrics`.

use super::{DecidedCall, StoreOp};
use crate::clock::{Clock, Moment};
use crate::request::Request;
use crate::{Error, Source};

pub(crate) const WANTS_REPORTS: bool = false;

#[inline(always)]
pub(crate) fn decided(_: &DecidedCall<'_>) {}

#[inline(always)]
pub(crate) fn allowed_fast(_: &'static str, _: &Request<'_>, _: FastAllowed) {}

#[inline(always)]
pub(crate) fn failed(_: &Error) {}

#[inline(always)]
pub(crate) fn overflowed(_: Source, _: u64) {}

#[inline(always)]
pub(crate) fn unconfigured(_: &'static str) {}

#[inline(always)]
pub(crate) fn rules_loaded(_: &'static str, _: bool) {}

#[inline(always)]
#[cfg(all(feature = "rules", feature = "redis"))]
pub(crate) fn shared_rules_version(_: u64) {}

/// The permits left after an allowed call of the fast path.
#[derive(Clone, Copy)]
pub(crate) struct FastAllowed;

impl FastAllowed {
    #[inline(always)]
    pub(crate) fn new(_: u32, _: Moment) -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn time(self) -> ReplyTime {
        ReplyTime::UNKNOWN
    }
}

/// The time of a decision.
#[derive(Clone, Copy)]
pub(crate) struct ReplyTime;

impl ReplyTime {
    pub(crate) const UNKNOWN: Self = Self;

    #[inline(always)]
    pub(crate) fn new(_: Moment) -> Self {
        Self
    }
}

#[inline(always)]
pub(crate) fn waited(_: Moment, _: &Clock, _: &[&'static str]) {}

/// The last set of rules of one origin of a limiter.
#[derive(Debug)]
pub(crate) struct RulesRefused;

impl RulesRefused {
    #[inline(always)]
    pub(crate) const fn new(_: &'static str) -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn set(&self, _: bool) {}

    #[cfg(feature = "rules")]
    #[inline(always)]
    pub(crate) fn withdraw(&self) {}

    #[cfg(all(feature = "rules", feature = "redis"))]
    #[inline(always)]
    pub(crate) fn register(&self) {}
}

/// A call to a shared store.
pub(crate) struct StoreCall;

impl StoreCall {
    #[inline(always)]
    pub(crate) fn begin(_: StoreOp) -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn end(self, _: bool) {}
}

/// The number of keys of a limiter.
#[derive(Clone, Debug)]
pub(crate) struct KeyCount;

impl KeyCount {
    #[inline(always)]
    pub(crate) fn new(_: Source) -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn change(&self, _: usize, _: usize) {}

    #[inline(always)]
    pub(crate) fn report_if_due(&self, _: ReplyTime, _: &Clock) {}
}

/// The sizes of batches that are not recorded yet.
#[cfg(feature = "redis")]
#[derive(Clone, Debug)]
pub(crate) struct BatchSizes;

#[cfg(feature = "redis")]
impl BatchSizes {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn push(&self, _: usize) {}

    #[inline(always)]
    pub(crate) fn record(&self) {}
}
