//! What callbacks give: a value, or a future of one.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

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
