//! The outputs of an annotated function's callbacks: a value, or a future of one.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A return type with an error that `recover` can be called with. The error is a parameter of the trait, so that rustc
/// reports a missing one only once.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no error to recover from",
    label = "`recover` is called with the error of a `Result`",
    note = "return a `Result`, or remove `recover`"
)]
pub trait Fallible<E>: Sized {
    /// Returns the value if it is not an error, or else the error to recover from.
    fn settle(self) -> Result<Self, E>;
}

#[diagnostic::do_not_recommend]
impl<T, E> Fallible<E> for Result<T, E> {
    fn settle(self) -> Result<Self, E> {
        self.map(Ok)
    }
}

/// Runs the body of a sync function as a closure. Its `return` and `?` then end only the body.
pub fn run<R>(body: impl FnOnce() -> R) -> R {
    body()
}

/// Calls a closure. The type of its argument is inferred from this call.
pub fn call<A, T>(closure: impl FnOnce(A) -> T, argument: A) -> T {
    closure(argument)
}

/// Converts the output of a callback into a future of the function's return value.
pub fn resolve<T: Resolvable<R, M>, R, M>(outcome: T) -> Resolving<T::Future, R> {
    Resolving { future: outcome.into_future(), poll: <T::Future as Future>::poll }
}

/// The future of a callback's output.
///
/// This is a named type: an `async fn` would give `R` lifetimes of its own. Rustc cannot match them with those of `F`
/// if the function's future must be `Send`. Only [`resolve`] requires that `F` returns an `R`, so that rustc reports a
/// mismatch only once.
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

/// The output of a callback: a value of type `R`, or a future of one. `M` is [`PlainValue`] or [`FutureValue`].
#[diagnostic::on_unimplemented(
    message = "this gives `{Self}`, but the function returns `{R}`",
    label = "gives `{Self}`",
    note = "a callback must give what the function returns: a `{R}`, or in an async function a future of one"
)]
pub trait Resolvable<R, M> {
    type Future: Future<Output = R> + Unpin;

    fn into_future(self) -> Self::Future;
}

/// Marks an output that is the value itself.
#[derive(Debug)]
pub enum PlainValue {}

/// Marks an output that is a future of the value.
#[derive(Debug)]
pub enum FutureValue {}

impl<T> Resolvable<T, PlainValue> for T {
    type Future = Ready<T>;

    fn into_future(self) -> Ready<T> {
        ready(self)
    }
}

/// The callback's future is boxed, so that the function's own future reserves no space for a callback that seldom runs.
impl<F: Future> Resolvable<F::Output, FutureValue> for F {
    type Future = Pin<Box<F>>;

    fn into_future(self) -> Pin<Box<F>> {
        Box::pin(self)
    }
}
