//! Which limiter an annotated function asks.

use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use crate::{Limiter, current};

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

/// The limiter that a call asks.
#[derive(Debug)]
pub enum Chosen {
    /// The process's own, which stays: not even counted as used, on a line that every thread would write.
    Process(&'static Limiter),
    Other(Limiter),
}

impl Deref for Chosen {
    type Target = Limiter;

    fn deref(&self) -> &Limiter {
        match self {
            Self::Process(limiter) => limiter,
            Self::Other(limiter) => limiter,
        }
    }
}

/// An expression that is a limiter or refers to one.
pub fn limiter<L: LimiterRef + ?Sized>(limiter: &L) -> Chosen {
    Chosen::Other(limiter.to_limiter())
}

#[inline]
#[must_use]
pub fn current() -> Chosen {
    current::scoped().map_or_else(|| Chosen::Process(current::of_process()), Chosen::Other)
}
