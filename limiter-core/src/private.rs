//! What the attribute expands to. Not part of the public API: it may change with any version.

use std::fmt::{self, Arguments, Display};
use std::future::{Ready, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::blocking::block_on;
use crate::decision::Rules;
use crate::store::Question;

pub use crate::convert::{FromDenied, FromFailure};
pub use crate::{Algorithm, Denied, Error, Key, Limit, Limiter, OnError};

/// What an annotated function knows of itself: a static in it.
#[derive(Debug)]
pub struct Site {
    names: &'static [&'static str],
    on_error: Option<OnError>,
}

impl Site {
    /// The names of its rules.
    #[must_use]
    pub const fn new(names: &'static [&'static str]) -> Self {
        Self { names, on_error: None }
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

/// The limit with another algorithm, and its burst where one is given.
pub fn counted_by(limit: LimitOrNearest, algorithm: Algorithm, burst: Option<u32>) -> LimitOrNearest {
    let limit = limit?.with_algorithm(algorithm);
    match burst {
        None => Ok(limit),
        Some(burst) => limit.with_burst(burst).map_err(|error| (error, limit)),
    }
}

/// A limit; or why it cannot be, with the nearest one that can.
pub type LimitOrNearest = Result<Limit, (Error, Limit)>;

/// An expression that is a limit.
pub fn limit_from<L: LimitRef + ?Sized>(limit: &L) -> LimitOrNearest {
    Ok(limit.to_limit())
}

/// What `limit = <expression>` takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limit",
    label = "expected a `Limit`, or a reference to one",
    note = "write a literal such as `\"5/10s\"`, or build one: `Limit::new(5, Duration::from_secs(10))?`"
)]
pub trait LimitRef {
    fn to_limit(&self) -> Limit;
}

impl LimitRef for Limit {
    fn to_limit(&self) -> Limit {
        *self
    }
}

impl<L: LimitRef + ?Sized> LimitRef for &L {
    fn to_limit(&self) -> Limit {
        (**self).to_limit()
    }
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

impl LimiterRef for Limiter {
    fn to_limiter(&self) -> Limiter {
        self.clone()
    }
}

macro_rules! through_pointers {
    ($($pointer:ty),+) => {
        $(#[diagnostic::do_not_recommend]
        impl<L: LimiterRef + ?Sized> LimiterRef for $pointer {
            fn to_limiter(&self) -> Limiter {
                (**self).to_limiter()
            }
        })+
    };
}

through_pointers!(&L, &mut L, Box<L>, Rc<L>, Arc<L>);

/// An expression that is a limiter or refers to one.
pub fn limiter<L: LimiterRef + ?Sized>(limiter: &L) -> Limiter {
    limiter.to_limiter()
}

#[must_use]
pub fn current() -> Limiter {
    Limiter::current()
}

/// What one rule of a call asks for.
#[derive(Debug)]
pub struct Ask {
    key: Key,
    limits: Limits,
    cost: u32,
}

#[derive(Debug)]
enum Limits {
    One(LimitOrNearest),
    Several(Vec<LimitOrNearest>),
}

impl Ask {
    fn limits(&self) -> &[LimitOrNearest] {
        match &self.limits {
            Limits::One(limit) => slice::from_ref(limit),
            Limits::Several(limits) => limits,
        }
    }
}

#[must_use]
pub fn ask(key: Key, limit: LimitOrNearest, cost: u32) -> Ask {
    Ask { key, limits: Limits::One(limit), cost }
}

/// What most rules ask for: one permit of one limit of literals.
#[must_use]
pub fn one(key: Key, max: u32, window_millis: u64) -> Option<Ask> {
    Some(ask(key, Ok(limit(max, window_millis)), 1))
}

#[must_use]
pub fn ask_several<const N: usize>(key: Key, limits: [LimitOrNearest; N], cost: u32) -> Ask {
    Ask { key, limits: Limits::Several(limits.into()), cost }
}

/// Takes the permits of an annotated call, for those of its rules that apply; the denial, if it is one, with the place
/// of the rule that denied. Waits for them up to `wait`.
pub async fn denied(
    site: &'static Site,
    limiter: Limiter,
    asks: &[Option<Ask>],
    wait: Duration,
) -> Option<(usize, Denied)> {
    if let Some(settled) = at_once(site, &limiter, asks, wait) {
        return settled;
    }
    let policy = site.policy(&limiter);
    match Box::pin(settle(site, &limiter, asks, wait, policy)).await {
        Ok(denied) => denied,
        // Such a policy raises nothing; if it did, the call must not run.
        Err(_) => Some((0, Rules { names: site.names, questions: &[] }.closed())),
    }
}

/// The same for a function that handles the limiter's failures: `None` runs the body.
pub async fn decide(
    site: &'static Site,
    limiter: Limiter,
    asks: &[Option<Ask>],
    wait: Duration,
) -> Option<Result<(usize, Denied), Error>> {
    if let Some(settled) = at_once(site, &limiter, asks, wait) {
        return settled.map(Ok);
    }
    Box::pin(settle(site, &limiter, asks, wait, OnError::Raise)).await.transpose()
}

pub fn denied_blocking(
    site: &'static Site,
    limiter: Limiter,
    asks: &[Option<Ask>],
    wait: Duration,
) -> Option<(usize, Denied)> {
    block_on(denied(site, limiter, asks, wait))
}

pub fn decide_blocking(
    site: &'static Site,
    limiter: Limiter,
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
    let [Some(Ask { key, limits: Limits::One(Ok(limit)), cost })] = asks else { return None };
    if !wait.is_zero() {
        return None;
    }
    let questions = [Question { key, limit: *limit, cost: *cost }];
    let decision = limiter.decide_at_once(Rules { names: site.names, questions: &questions })?;
    Some(decision.into_result().err().map(|denied| (0, denied)))
}

async fn settle(
    site: &'static Site,
    limiter: &Limiter,
    asks: &[Option<Ask>],
    wait: Duration,
    policy: OnError,
) -> Result<Option<(usize, Denied)>, Error> {
    let (mut questions, mut names, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let mut impossible = None;
    for (place, (name, ask)) in site.names.iter().copied().zip(asks).enumerate() {
        let Some(ask) = ask else { continue };
        for limit in ask.limits() {
            let limit = match limit {
                Ok(limit) => *limit,
                Err((error, nearest)) => {
                    impossible.get_or_insert((place, error.clone()));
                    *nearest
                }
            };
            questions.push(Question { key: &ask.key, limit, cost: ask.cost });
            names.push(name);
            places.push(place);
        }
    }
    let rules = Rules { names: &names, questions: &questions };
    if let Some((place, error)) = impossible {
        let denied = limiter.without_answer(rules, error, policy)?;
        return Ok(denied.map(|denied| (place, denied)));
    }
    if questions.is_empty() {
        return Ok(None);
    }
    let denied = limiter.decide_or_wait(rules, policy, wait).await?;
    Ok(denied.map(|denied| (places.get(denied.which()).copied().unwrap_or(0), denied)))
}

/// What `recover` needs a function to return. The error is a parameter, so that rustc says once what is missing.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no error to recover from",
    label = "`recover` is called with the error of a `Result`",
    note = "return a `Result`, or remove `recover`"
)]
pub trait Fallible<E>: Sized {
    /// What is to be returned, or the error to recover from.
    fn settle(self) -> Result<Self, E>;
}

#[diagnostic::do_not_recommend]
impl<T, E> Fallible<E> for Result<T, E> {
    fn settle(self) -> Result<Self, E> {
        self.map(Ok)
    }
}

/// Runs the body of a sync function by itself: its `return` and `?` end it, and not the function.
pub fn run<R>(body: impl FnOnce() -> R) -> R {
    body()
}

/// Calls a closure whose argument's type is known from here.
pub fn call<A, T>(closure: impl FnOnce(A) -> T, argument: A) -> T {
    closure(argument)
}

/// What a callback gave, as what the function returns: the value itself, or in an async function a future of it.
pub fn resolve<T: Outcome<R, M>, R, M>(outcome: T) -> Resolving<T::Future, R> {
    Resolving { future: outcome.into_future(), poll: <T::Future as Future>::poll }
}

/// The future of what a callback gave.
///
/// A type and not an `async fn`, whose future would have lifetimes of its own for `R`, which rustc then cannot match with
/// those of `F` where the function's future has to be `Send`. That `F` gives an `R` is known where it is made, and said
/// nowhere else, so that rustc says once when it does not.
#[derive(Debug)]
pub struct Resolving<F, R> {
    future: F,
    poll: fn(Pin<&mut F>, &mut Context<'_>) -> Poll<R>,
}

impl<F: Unpin, R> Future for Resolving<F, R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        (self.poll)(Pin::new(&mut self.future), context)
    }
}

/// A value, or a future of one.
#[diagnostic::on_unimplemented(
    message = "this gives `{Self}`, but the function returns `{R}`",
    label = "gives `{Self}`",
    note = "what a callback gives is what the function returns: a `{R}`, or in an async function a future of one"
)]
pub trait Outcome<R, M> {
    type Future: Future<Output = R> + Unpin;

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

/// Boxed, so that the future of the function has no room for it, which it seldom needs.
impl<F: Future> Outcome<F::Output, Pending> for F {
    type Future = Pin<Box<F>>;

    fn into_future(self) -> Pin<Box<F>> {
        Box::pin(self)
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

#[cfg(test)]
mod tests {
    use super::*;

    static SITE: Site = Site::new(&["a"]);

    /// What an annotated function's future grows by, beside the asks themselves.
    #[test]
    fn the_future_of_a_decision_is_small() {
        let asks = [Some(ask(Key::new("a"), Ok(limit(5, 10_000)), 1))];
        let future = denied(&SITE, Limiter::memory(), &asks, Duration::ZERO);
        let (future, asks) = (size_of_val(&future), size_of_val(&asks));
        assert!(future + asks <= 256, "{future} and {asks} bytes");
    }
}
