//! The limiters of annotated functions.

use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use crate::{Limiter, current};

/// A value of `limiter = <expression>`.
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

/// The limiter of an annotated call.
#[derive(Debug)]
pub enum LimiterHandle {
    /// The default limiter of the process, by reference. A clone would increment a reference count, in a cache line
    /// that all threads write.
    Process(&'static Limiter),
    Other(Limiter),
}

impl Deref for LimiterHandle {
    type Target = Limiter;

    fn deref(&self) -> &Limiter {
        match self {
            Self::Process(limiter) => limiter,
            Self::Other(limiter) => limiter,
        }
    }
}

/// Returns the limiter of an expression that is a limiter or a pointer to one.
pub fn limiter<L: LimiterRef + ?Sized>(limiter: &L) -> LimiterHandle {
    LimiterHandle::Other(limiter.to_limiter())
}

/// Returns the limiter of the current scope, or else the default limiter of the process.
#[inline]
#[must_use]
pub fn current() -> LimiterHandle {
    current::scoped().map_or_else(|| LimiterHandle::Process(current::process_wide()), LimiterHandle::Other)
}
