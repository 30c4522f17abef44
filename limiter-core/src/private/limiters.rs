//! Which limiter an annotated function asks.

use std::rc::Rc;
use std::sync::Arc;

use crate::Limiter;

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
