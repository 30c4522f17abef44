//! The decision about an annotated call: what its rules ask for, put to its limiter as one.

use std::slice;
use std::time::Duration;

use crate::block_on::block_on;
use crate::decision::DecisionContext;
use crate::private::limiters::Chosen;
use crate::private::{Constant, LimitOrNearest, Site, limit};
use crate::request::CallOptions;
use crate::request::Request;
use crate::rule::RuleOverrides;
use crate::{Denied, Error, Key, Limit, Limiter, OnError};

/// What one rule of a call asks for.
#[derive(Debug)]
pub struct Ask {
    key: Counted,
    limits: Limits,
    cost: u32,
}

/// The key of an ask.
#[derive(Debug)]
pub enum Counted {
    Made(Key),
    Constant(&'static Constant),
}

impl From<Key> for Counted {
    #[inline]
    fn from(key: Key) -> Self {
        Self::Made(key)
    }
}

impl From<&'static Constant> for Counted {
    #[inline]
    fn from(constant: &'static Constant) -> Self {
        Self::Constant(constant)
    }
}

#[derive(Debug)]
enum Limits {
    One(LimitOrNearest),
    Several(Vec<LimitOrNearest>),
}

impl Ask {
    #[inline]
    fn key(&self) -> &Key {
        match &self.key {
            Counted::Made(key) => key,
            Counted::Constant(constant) => constant.key(),
        }
    }

    fn limits(&self) -> &[LimitOrNearest] {
        match &self.limits {
            Limits::One(limit) => slice::from_ref(limit),
            Limits::Several(limits) => limits,
        }
    }
}

#[inline]
#[must_use]
pub fn ask(key: impl Into<Counted>, limit: LimitOrNearest, cost: u32) -> Ask {
    Ask { key: key.into(), limits: Limits::One(limit), cost }
}

/// What most rules ask for: one permit of one limit of literals.
#[inline]
#[must_use]
pub fn one(key: impl Into<Counted>, max: u32, window_millis: u64) -> Option<Ask> {
    Some(ask(key, Ok(limit(max, window_millis)), 1))
}

/// The same with a key without values: known when compiling, and so neither put together nor moved by a call.
#[must_use]
pub const fn fixed(constant: &'static Constant, max: u32, window_millis: u64) -> Option<Ask> {
    Some(Ask { key: Counted::Constant(constant), limits: Limits::One(Ok(limit(max, window_millis))), cost: 1 })
}

#[must_use]
pub fn ask_several<const N: usize>(key: impl Into<Counted>, limits: [LimitOrNearest; N], cost: u32) -> Ask {
    Ask { key: key.into(), limits: Limits::Several(limits.into()), cost }
}

/// Takes the permits of an annotated call, for those of its rules that apply; the denial, if it is one, with the place
/// of the rule that denied. Waits for them up to `wait`.
pub async fn denied(
    site: &'static Site,
    limiter: Chosen,
    asks: &[Option<Ask>],
    wait: Duration,
) -> Option<(usize, Denied)> {
    if let Some(settled) = at_once(site, &limiter, asks, wait) {
        return settled;
    }
    match Box::pin(settle(site, &limiter, asks, wait, Handler::None)).await {
        Ok(denied) => denied,
        // Without a handler nothing is raised; if it were, the call must not run.
        Err(_) => Some((0, DecisionContext { names: site.names, requests: &[] }.closed())),
    }
}

/// The same for a function that handles the limiter's failures: `None` runs the body.
pub async fn decide(
    site: &'static Site,
    limiter: Chosen,
    asks: &[Option<Ask>],
    wait: Duration,
) -> Option<Result<(usize, Denied), Error>> {
    if let Some(settled) = at_once(site, &limiter, asks, wait) {
        return settled.map(Ok);
    }
    Box::pin(settle(site, &limiter, asks, wait, Handler::Own)).await.transpose()
}

pub fn denied_blocking(
    site: &'static Site,
    limiter: Chosen,
    asks: &[Option<Ask>],
    wait: Duration,
) -> Option<(usize, Denied)> {
    block_on(denied(site, limiter, asks, wait))
}

pub fn decide_blocking(
    site: &'static Site,
    limiter: Chosen,
    asks: &[Option<Ask>],
    wait: Duration,
) -> Option<Result<(usize, Denied), Error>> {
    block_on(decide(site, limiter, asks, wait))
}

/// What most calls are: one limit, nothing to wait for, and a store that answers at once. The rest is boxed, so that an
/// annotated function's future does not grow by it.
fn at_once(
    site: &'static Site,
    limiter: &Limiter,
    asks: &[Option<Ask>],
    wait: Duration,
) -> Option<Option<(usize, Denied)>> {
    let ([Some(ask)], [name]) = (asks, site.names) else { return None };
    let Ask { limits: Limits::One(written), cost, .. } = ask else { return None };
    let book = limiter.rulebook();
    let limit = match written {
        Ok(limit) if book.is_empty() => *limit,
        _ => set(book, name, written)?,
    };
    if !wait.is_zero() {
        return None;
    }
    let denied = limiter.denied_at_once(name, &Request { key: ask.key(), limit, cost: *cost })?;
    Some(denied.map(|denied| (0, denied)))
}

/// The one limit of a rule that may have settings; nothing if there are several, or none that can be.
#[cold]
fn set(book: &RuleOverrides, name: &str, written: &LimitOrNearest) -> Option<Limit> {
    match (book.limits(name), written) {
        // What cannot be kept so is a failure in every store.
        ([], Ok(limit)) => book.laid_out(name, *limit).ok(),
        ([limit], _) => Some(*limit),
        _ => None,
    }
}

/// Who takes an error that is raised.
#[derive(Clone, Copy)]
enum Handler {
    Own,
    None,
}

async fn settle(
    site: &'static Site,
    limiter: &Limiter,
    asks: &[Option<Ask>],
    wait: Duration,
    handler: Handler,
) -> Result<Option<(usize, Denied)>, Error> {
    let book = limiter.rulebook();
    let (mut requests, mut names, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let mut impossible = None;
    for (place, (name, ask)) in site.names.iter().copied().zip(asks).enumerate() {
        let Some(ask) = ask else { continue };
        let mut request = |limit: &LimitOrNearest| {
            let limit = match limit {
                Ok(limit) => book.laid_out(name, *limit).map_err(|error| (error, *limit)),
                Err(impossible) => Err(impossible.clone()),
            };
            let limit = limit.unwrap_or_else(|(error, nearest)| {
                impossible.get_or_insert((place, error));
                nearest
            });
            requests.push(Request { key: ask.key(), limit, cost: ask.cost });
            names.push(name);
            places.push(place);
        };
        match book.limits(name) {
            [] => ask.limits().iter().for_each(request),
            limits => limits.iter().for_each(|limit| request(&Ok(*limit))),
        }
    }
    let rules = DecisionContext { names: &names, requests: &requests };
    let terms = CallOptions { on_error: policy(site, limiter, &names, handler), ..limiter.terms() };
    let terms = CallOptions { deadline: names.iter().filter_map(|name| book.deadline(name)).min(), ..terms };
    if let Some((place, error)) = impossible {
        let denied = limiter.without_answer(rules, error, terms.on_error)?;
        return Ok(denied.map(|denied| (place, denied)));
    }
    if requests.is_empty() {
        return Ok(None);
    }
    let denied = limiter.decide_or_wait(rules, terms, wait).await?;
    Ok(denied.map(|denied| (places.get(denied.request_index()).copied().unwrap_or(0), denied)))
}

/// The policy of the first rule with settings for it, else the function's own, else the limiter's.
fn policy(site: &Site, limiter: &Limiter, names: &[&str], handler: Handler) -> OnError {
    let set = names.iter().find_map(|name| limiter.rulebook().on_error(name));
    match (set, handler) {
        (Some(OnError::Raise), Handler::None) => OnError::Closed,
        (Some(policy), _) => policy,
        (None, Handler::Own) => OnError::Raise,
        (None, Handler::None) => match site.on_error.unwrap_or(limiter.terms().on_error) {
            // There is nobody to raise an error to.
            OnError::Raise => OnError::Closed,
            policy => policy,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SITE: Site = Site::new(&["a"]);

    /// What an annotated function's future grows by, beside the asks themselves.
    #[test]
    fn the_future_of_a_decision_is_small() {
        let asks = [Some(ask(Key::new("a"), Ok(limit(5, 10_000)), 1))];
        let future = denied(&SITE, Chosen::Other(Limiter::memory()), &asks, Duration::ZERO);
        let (future, asks) = (size_of_val(&future), size_of_val(&asks));
        assert!(future + asks <= 256, "{future} and {asks} bytes");
    }
}
