//! What the attribute expands to. Not part of the public API: it may change with any version.

use std::borrow::Borrow;
use std::fmt::{self, Arguments, Display};
use std::future::{Ready, ready};
use std::time::Duration;

use crate::blocking::block_on;
use crate::decision::{Decision, Rule};
use crate::guard::without_answer;

pub use crate::convert::{FromDenied, FromFailure};
pub use crate::{Denied, Error, Key, Limit, Limiter, OnError};

/// What an annotated function knows of itself: a static in it.
#[derive(Debug)]
pub struct Site {
    name: &'static str,
    on_error: Option<OnError>,
}

impl Site {
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, on_error: None }
    }

    #[must_use]
    pub const fn on_error(mut self, policy: OnError) -> Self {
        self.on_error = Some(policy);
        self
    }

    /// The function's own policy, else the limiter's; without a handler there is nobody to raise an error to.
    fn policy(&self, limiter: &Limiter) -> OnError {
        match self.on_error.unwrap_or(limiter.on_error()) {
            OnError::Raise => OnError::Closed,
            policy => policy,
        }
    }
}

/// A limit of literals, which the attribute has checked.
///
/// # Panics
/// When compiling, if the attribute has not.
#[must_use]
pub const fn limit(max: u32, window_millis: u64) -> Limit {
    match Limit::checked(max, window_millis) {
        Some(limit) => limit,
        None => panic!("a limit needs at least 1 permit and a window of 1 ms to 366 days"),
    }
}

/// A limit of expressions.
pub fn limit_of(max: u32, window: Duration) -> LimitOrNearest {
    Limit::new(max, window).map_err(|error| (error, Limit::nearest(max, window)))
}

/// A limit; or why it cannot be, with the nearest one that can.
pub type LimitOrNearest = Result<Limit, (Error, Limit)>;

/// An expression that is a limit.
pub fn limit_from<L: Borrow<Limit>>(limit: L) -> LimitOrNearest {
    Ok(*limit.borrow())
}

/// An expression that is a key, or a value counted under the rule's name.
pub fn key<K: ToKey + ?Sized>(name: &'static str, value: &K) -> Key {
    value.to_key(name)
}

/// What `key = <expression>` takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a key",
    label = "neither a `Key` nor something with a `Display` form",
    note = "build one: `Key::new(\"user:\").part(value)`"
)]
pub trait ToKey {
    fn to_key(&self, name: &'static str) -> Key;
}

impl ToKey for Key {
    fn to_key(&self, _name: &'static str) -> Key {
        self.clone()
    }
}

impl ToKey for &Key {
    fn to_key(&self, _name: &'static str) -> Key {
        Key::clone(self)
    }
}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> ToKey for T {
    fn to_key(&self, name: &'static str) -> Key {
        Key::new(name).part(self)
    }
}

/// What `limiter = <expression>` takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limiter",
    label = "expected a `Limiter`, or a reference to one"
)]
pub trait LimiterRef {
    fn to_limiter(&self) -> Limiter;
}

#[diagnostic::do_not_recommend]
impl<L: Borrow<Limiter>> LimiterRef for L {
    fn to_limiter(&self) -> Limiter {
        self.borrow().clone()
    }
}

/// An expression that is a limiter or refers to one.
pub fn limiter<L: LimiterRef + ?Sized>(limiter: &L) -> Limiter {
    limiter.to_limiter()
}

#[must_use]
pub fn current() -> Limiter {
    Limiter::current()
}

/// Takes the permits of an annotated call; the denial, if it is one.
pub async fn denied(site: &'static Site, limiter: Limiter, key: Key, limit: LimitOrNearest) -> Option<Denied> {
    let policy = site.policy(&limiter);
    let rule = Rule { name: site.name, limit: limit.as_ref().map_or_else(|(_, nearest)| *nearest, |limit| *limit) };
    // Such a policy raises nothing; if it did, the call must not run.
    ask(site, &limiter, &key, limit, policy).await.unwrap_or_else(|_| Some(rule.closed()))
}

/// The same for a function that handles the limiter's failures.
///
/// # Errors
/// The failure.
pub async fn decide(
    site: &'static Site,
    limiter: Limiter,
    key: Key,
    limit: LimitOrNearest,
) -> Result<Option<Denied>, Error> {
    ask(site, &limiter, &key, limit, OnError::Raise).await
}

pub fn denied_blocking(site: &'static Site, limiter: Limiter, key: Key, limit: LimitOrNearest) -> Option<Denied> {
    block_on(denied(site, limiter, key, limit))
}

/// # Errors
/// The failure.
pub fn decide_blocking(
    site: &'static Site,
    limiter: Limiter,
    key: Key,
    limit: LimitOrNearest,
) -> Result<Option<Denied>, Error> {
    block_on(decide(site, limiter, key, limit))
}

async fn ask(
    site: &'static Site,
    limiter: &Limiter,
    key: &Key,
    limit: LimitOrNearest,
    policy: OnError,
) -> Result<Option<Denied>, Error> {
    let rule = |limit| Rule { name: site.name, limit };
    match limit {
        Ok(limit) => match limiter.decide(rule(limit), key, 1, policy).await? {
            Decision::Allowed(_) => Ok(None),
            Decision::Denied(denied) => Ok(Some(denied)),
        },
        Err((error, nearest)) => {
            limiter.observers().failed(&error);
            let answer = without_answer(rule(nearest), error, policy);
            if let Ok(Some(denied)) = &answer {
                limiter.observers().denied(denied);
            }
            answer
        }
    }
}

/// Calls a closure whose argument's type is known from here.
pub fn call<A, T>(closure: impl FnOnce(A) -> T, argument: A) -> T {
    closure(argument)
}

/// What a callback gave, as what the function returns: the value itself, or in an async function a future of it.
pub async fn resolve<T: Outcome<R, M>, R, M>(outcome: T) -> R {
    outcome.into_future().await
}

/// A value, or a future of one.
#[diagnostic::on_unimplemented(
    message = "this gives `{Self}`, but the function returns `{R}`",
    label = "gives `{Self}`",
    note = "what a callback gives is what the function returns: a `{R}`, or in an async function a future of one"
)]
pub trait Outcome<R, M> {
    type Future: Future<Output = R>;

    fn into_future(self) -> Self::Future;
}

/// The outcome is the value.
#[derive(Debug)]
pub enum Value {}

/// The outcome is a future of it.
#[derive(Debug)]
pub enum Pending {}

impl<T> Outcome<T, Value> for T {
    type Future = Ready<T>;

    fn into_future(self) -> Ready<T> {
        ready(self)
    }
}

impl<F: Future> Outcome<F::Output, Pending> for F {
    type Future = F;

    fn into_future(self) -> F {
        self
    }
}

/// The text of the one value in a template whose other values are empty: what is left between the static texts.
#[must_use]
pub fn only(arguments: Arguments<'_>, prefix: usize, suffix: usize) -> String {
    let mut text = fmt::format(arguments);
    text.truncate(text.len().saturating_sub(suffix));
    text.drain(..prefix.min(text.len()));
    text
}
