//! The rules of an annotated call.

use std::slice;

use crate::private::{LimitOrNearest, StaticKey, limit};
use crate::{Key, Limit};

/// The requests of one rule of a call: a key, its limits and a cost.
#[derive(Debug)]
pub struct RuleRequest {
    key: KeyRef,
    limits: Limits,
    pub(super) cost: u32,
}

/// The key of a rule.
#[derive(Debug)]
pub enum KeyRef {
    Owned(Key),
    Static(&'static StaticKey),
}

impl From<Key> for KeyRef {
    #[inline]
    fn from(key: Key) -> Self {
        Self::Owned(key)
    }
}

impl From<&'static StaticKey> for KeyRef {
    #[inline]
    fn from(key: &'static StaticKey) -> Self {
        Self::Static(key)
    }
}

#[derive(Debug)]
enum Limits {
    One(LimitOrNearest),
    Several(Vec<LimitOrNearest>),
    /// The limits are those of the settings by name. Without them the rule has none.
    Configured,
}

impl RuleRequest {
    /// Creates the request of a rule with one limit.
    #[inline]
    #[must_use]
    pub fn with_limit(key: impl Into<KeyRef>, limit: LimitOrNearest, cost: u32) -> Self {
        Self { key: key.into(), limits: Limits::One(limit), cost }
    }

    /// Creates the request of a rule with several limits.
    #[must_use]
    pub fn with_limits<const N: usize>(key: impl Into<KeyRef>, limits: [LimitOrNearest; N], cost: u32) -> Self {
        Self { key: key.into(), limits: Limits::Several(limits.into()), cost }
    }

    /// Creates the most common request: one permit of one limit whose numbers are literals.
    #[inline]
    #[must_use]
    pub fn one_permit(key: impl Into<KeyRef>, max: u32, window_millis: u64) -> Option<Self> {
        Some(Self::with_limit(key, Ok(limit(max, window_millis)), 1))
    }

    /// Creates the request of a rule that is known at compile time. It can be in a `static`, so a call neither builds
    /// nor moves it.
    #[must_use]
    pub const fn one_permit_static(key: &'static StaticKey, max: u32, window_millis: u64) -> Option<Self> {
        Some(Self { key: KeyRef::Static(key), limits: Limits::One(Ok(limit(max, window_millis))), cost: 1 })
    }

    /// Creates the request of a rule whose limits are in the settings by name alone.
    #[must_use]
    pub fn configured(key: impl Into<KeyRef>, cost: u32) -> Option<Self> {
        Some(Self { key: key.into(), limits: Limits::Configured, cost })
    }

    /// Creates the request of such a rule, of one permit and with a key without values, in a `static`.
    #[must_use]
    pub const fn configured_static(key: &'static StaticKey) -> Option<Self> {
        Some(Self { key: KeyRef::Static(key), limits: Limits::Configured, cost: 1 })
    }

    #[inline]
    pub(super) fn key(&self) -> &Key {
        match &self.key {
            KeyRef::Owned(key) => key,
            KeyRef::Static(key) => key.key(),
        }
    }

    /// The limit of the attribute, if it is valid and the only one.
    #[inline]
    pub(super) fn own_limit(&self) -> Option<&Limit> {
        if let Limits::One(Ok(limit)) = &self.limits { Some(limit) } else { None }
    }

    pub(super) fn limits(&self) -> &[LimitOrNearest] {
        match &self.limits {
            Limits::One(limit) => slice::from_ref(limit),
            Limits::Several(limits) => limits,
            Limits::Configured => &[],
        }
    }
}
