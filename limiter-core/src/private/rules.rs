//! The decision about an annotated call. All its rules together make one decision.

use std::slice;
use std::time::Duration;

use crate::block_on::block_on;
use crate::decision::DecisionContext;
use crate::limiter::FastPath;
use crate::private::limiters::LimiterHandle;
use crate::private::{LimitOrNearest, Site, StaticKey, limit};
use crate::request::{CacheLookup, CallOptions, Request};
use crate::{Decision, Denied, Error, Key, Limiter, OnError, Rule};

/// The requests of one rule of a call: a key, its limits and a cost.
#[derive(Debug)]
pub struct RuleRequest {
    key: KeyRef,
    limits: Limits,
    cost: u32,
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

    #[inline]
    fn key(&self) -> &Key {
        match &self.key {
            KeyRef::Owned(key) => key,
            KeyRef::Static(key) => key.key(),
        }
    }

    fn limits(&self) -> &[LimitOrNearest] {
        match &self.limits {
            Limits::One(limit) => slice::from_ref(limit),
            Limits::Several(limits) => limits,
        }
    }
}

/// Takes the permits of an annotated call for all rules that apply. Waits for them up to `max_wait`.
///
/// A rule that does not apply is `None`. Returns the denial of a denied call, with the index of the rule that denied
/// it.
pub async fn denied(
    site: &'static Site,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
) -> Option<(usize, Denied)> {
    let call = AnnotatedCall { site, limiter: &limiter, rules, max_wait };
    let full_path = {
        let single = call.single_request();
        match call.decide_fast(single.as_ref()) {
            FastPath::Decided(denied) => return denied.map(|denied| (0, denied)),
            FastPath::NeedsStore(cache_lookup) => Box::pin(call.decide(single, cache_lookup, Handler::None)),
        }
    };
    match full_path.await {
        Ok(denied) => denied,
        // Without a handler the policy is not `Raise`, so there is no error. The call must not run in any case.
        Err(_) => Some((0, DecisionContext { names: site.names, requests: &[] }.failed_closed())),
    }
}

/// Takes the permits of a call whose function handles the limiter's failures. `None` runs the body.
pub async fn decide(
    site: &'static Site,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
) -> Option<Result<(usize, Denied), Error>> {
    let call = AnnotatedCall { site, limiter: &limiter, rules, max_wait };
    let full_path = {
        let single = call.single_request();
        match call.decide_fast(single.as_ref()) {
            FastPath::Decided(denied) => return denied.map(|denied| Ok((0, denied))),
            FastPath::NeedsStore(cache_lookup) => Box::pin(call.decide(single, cache_lookup, Handler::Own)),
        }
    };
    full_path.await.transpose()
}

/// Blocking form of [`denied`].
pub fn denied_blocking(
    site: &'static Site,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
) -> Option<(usize, Denied)> {
    block_on(denied(site, limiter, rules, max_wait))
}

/// Blocking form of [`decide`].
pub fn decide_blocking(
    site: &'static Site,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
) -> Option<Result<(usize, Denied), Error>> {
    block_on(decide(site, limiter, rules, max_wait))
}

/// A call of an annotated function, with the requests of its rules.
#[derive(Clone, Copy)]
struct AnnotatedCall<'a> {
    site: &'static Site,
    limiter: &'a Limiter,
    rules: &'a [Option<RuleRequest>],
    max_wait: Duration,
}

/// The handler of an error that the policy `Raise` returns.
#[derive(Clone, Copy)]
enum Handler {
    Own,
    None,
}

impl<'a> AnnotatedCall<'a> {
    /// Returns the request of a call with one rule and one limit, as most calls are.
    #[inline]
    fn single_request(&self) -> Option<Request<'a>> {
        let ([Some(rule)], [name]) = (self.rules, self.site.names) else { return None };
        let Limits::One(Ok(attribute_limit)) = &rule.limits else { return None };
        let limit = match self.limiter.rule_overrides() {
            None => *attribute_limit,
            Some(overrides) => overrides.single_limit(name, *attribute_limit)?,
        };
        Some(Request { key: rule.key(), limit, cost: rule.cost })
    }

    /// Decides on the fast path of most calls: one request, no wait, and no request to a shared store.
    #[inline]
    fn decide_fast(&self, single: Option<&Request<'_>>) -> FastPath {
        match (single, self.site.names) {
            (Some(request), [name]) if self.max_wait.is_zero() => self.limiter.decide_fast(name, request),
            _ => FastPath::NeedsStore(CacheLookup::Needed),
        }
    }

    /// Decides about all rules that apply. This full path is boxed, so that an annotated function's future does not
    /// contain it.
    async fn decide(
        self,
        single: Option<Request<'_>>,
        cache_lookup: CacheLookup,
        handler: Handler,
    ) -> Result<Option<(usize, Denied)>, Error> {
        let Some(request) = single else { return self.decide_all(handler).await };
        let context = DecisionContext { names: self.site.names, requests: &[request] };
        let denied = self.take(context, cache_lookup, handler).await?;
        Ok(denied.map(|denied| (0, denied)))
    }

    /// Collects the requests of all rules that apply, and decides about them.
    async fn decide_all(self, handler: Handler) -> Result<Option<(usize, Denied)>, Error> {
        let (mut requests, mut names, mut rule_indices) = (Vec::new(), Vec::new(), Vec::new());
        let mut invalid = None;
        for (rule_index, (name, rule)) in self.site.names.iter().copied().zip(self.rules).enumerate() {
            let Some(rule) = rule else { continue };
            let settings = self.settings(name);
            let mut add_request = |limit: &LimitOrNearest| {
                let limit = match (limit, settings) {
                    (Ok(limit), Some(settings)) => settings.with_layout_of(*limit).map_err(|error| (error, *limit)),
                    (limit, _) => limit.clone(),
                };
                let limit = limit.unwrap_or_else(|(error, nearest)| {
                    invalid.get_or_insert((rule_index, error));
                    nearest
                });
                requests.push(Request { key: rule.key(), limit, cost: rule.cost });
                names.push(name);
                rule_indices.push(rule_index);
            };
            match settings.map_or(&[][..], |settings| &settings.limits) {
                [] => rule.limits().iter().for_each(add_request),
                limits => limits.iter().for_each(|limit| add_request(&Ok(*limit))),
            }
        }
        let context = DecisionContext { names: &names, requests: &requests };
        let denied = match invalid {
            Some((rule_index, error)) => {
                let denied = self.limiter.fail_without_request(context, error, self.policy(&names, handler))?;
                return Ok(denied.map(|denied| (rule_index, denied)));
            }
            None if requests.is_empty() => None,
            None => self.take(context, CacheLookup::Needed, handler).await?,
        };
        Ok(denied.map(|denied| (rule_indices.get(denied.request_index()).copied().unwrap_or(0), denied)))
    }

    /// Takes the permits of all requests. Returns the denial of a denied call.
    async fn take(
        self,
        context: DecisionContext<'_>,
        cache_lookup: CacheLookup,
        handler: Handler,
    ) -> Result<Option<Denied>, Error> {
        let on_error = self.policy(context.names, handler);
        let deadline = context.names.iter().filter_map(|name| self.settings(name)?.deadline).min();
        let options = CallOptions { on_error, deadline, cache_lookup, ..self.limiter.default_options() };
        let decision = if self.max_wait.is_zero() {
            self.limiter.decide(context, options).await?
        } else {
            self.limiter.decide_waiting(context, options, self.max_wait).await?
        };
        match decision {
            Decision::Allowed(_) => Ok(None),
            Decision::Denied(denied) => Ok(Some(denied)),
        }
    }

    /// Returns the policy of the first rule whose settings have one, else the function's own, else the limiter's.
    fn policy(&self, names: &[&str], handler: Handler) -> OnError {
        let rule_policy = names.iter().find_map(|name| self.settings(name)?.on_error);
        match (rule_policy, handler) {
            (Some(OnError::Raise), Handler::None) => OnError::Closed,
            (Some(policy), _) => policy,
            (None, Handler::Own) => OnError::Raise,
            (None, Handler::None) => match self.site.on_error.unwrap_or(self.limiter.default_options().on_error) {
                // The function has no handler for an error.
                OnError::Raise => OnError::Closed,
                policy => policy,
            },
        }
    }

    /// Returns the limiter's settings for a rule.
    fn settings(&self, name: &str) -> Option<&'a Rule> {
        self.limiter.rule_overrides()?.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SITE: Site = Site::new(&["a"]);

    /// An annotated function's future contains both.
    #[test]
    fn the_future_of_a_decision_and_its_rules_are_small() {
        let rules = [Some(RuleRequest::with_limit(Key::new("a"), Ok(limit(5, 10_000)), 1))];
        let future = denied(&SITE, LimiterHandle::Other(Limiter::memory()), &rules, Duration::ZERO);
        let (future, rules) = (size_of_val(&future), size_of_val(&rules));
        assert!(future + rules <= 256, "{future} and {rules} bytes");
    }
}
