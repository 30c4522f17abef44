//! The values of an expansion: keys, limits and limiters.

use std::fmt::{self, Arguments, Display};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use limiter_syntax::BlockText;

use crate::current::LimiterHandle;
pub use crate::key::StaticKey;
pub use crate::limit::LimitOrNearest;
use crate::{Algorithm, Block, Key, Limit, Limiter};

/// Returns the key of an expression that is a key, or a value counted under the rule's name.
pub fn key<K: ToKey + ?Sized>(name: &'static str, value: &K) -> Key {
    value.to_key(name)
}

/// A value of `key = <expression>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a key",
    label = "neither a `Key` nor something with a `Display` form",
    note = "build one: `Key::new(\"user:\").part(value)`",
    note = "an `Option` needs a value for `None`, as in `id.unwrap_or_default()`"
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

/// Formats a template of which all values but one are empty, and returns the text of that value. `prefix` and `suffix`
/// are the lengths of the static text around it, in bytes.
#[must_use]
pub fn captured_value(arguments: Arguments<'_>, prefix: usize, suffix: usize) -> String {
    let mut text = fmt::format(arguments);
    text.truncate(text.len().saturating_sub(suffix));
    text.drain(..prefix.min(text.len()));
    text
}

// The limits of annotated functions: literals, numbers, or an expression that is a limit.

/// Returns a limit of literals, which the attribute has checked.
///
/// # Panics
/// For a limit out of its range, at compile time. The attribute has checked the range before.
#[inline]
#[must_use]
pub const fn limit(max: u32, window_millis: u64) -> Limit {
    match Limit::checked(max, window_millis) {
        Some(limit) => limit,
        None => panic!("`max` must be at least 1, and `window` must be 1 ms to 366 days"),
    }
}

/// Returns a limit of expressions.
pub fn limit_of(max: u32, window: Duration) -> LimitOrNearest {
    Limit::new(max, window).map_err(|error| (error, Limit::nearest(max, window)))
}

/// The block of a rule, whose parts were checked at compile time.
#[must_use]
pub const fn block(time_millis: u64, factor_thousandths: u32, most_millis: u64, is_extended: bool) -> Block {
    Block::of_text(BlockText { time_millis, factor_thousandths, most_millis, is_extended })
}

/// Returns a limit of calls at once of a literal, which the attribute has checked.
///
/// # Panics
/// For a number out of its range, at compile time. The attribute has checked the range before.
#[inline]
#[must_use]
pub const fn concurrent(max: u32) -> Limit {
    match Limit::checked_concurrent(max) {
        Some(limit) => limit,
        None => panic!("`concurrent` must be 1 to 65535"),
    }
}

/// Returns a limit of calls at once of an expression.
pub fn concurrent_of(max: u32) -> LimitOrNearest {
    Limit::concurrent(max).map_err(|error| (error, Limit::nearest_concurrent(max)))
}

/// Returns the limit with another algorithm, and with a burst if one is given. One whose text determines how it counts stays as it is.
pub fn counted_by(limit: LimitOrNearest, algorithm: Algorithm, burst: Option<u32>) -> LimitOrNearest {
    let limit = limit?.with_algorithm(algorithm);
    match burst.filter(|_| !limit.is_whole()) {
        None => Ok(limit),
        Some(burst) => limit.with_burst(burst).map_err(|error| (error, limit)),
    }
}

/// Returns the limit of an expression that is one.
pub fn limit_from<L: LimitRef + ?Sized>(limit: &L) -> LimitOrNearest {
    Ok(limit.to_limit())
}

/// A value of `limit = <expression>`.
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

// The limiters of annotated functions.

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

/// Returns the limiter of an expression that is a limiter or a pointer to one.
pub fn limiter<L: LimiterRef + ?Sized>(limiter: &L) -> LimiterHandle {
    LimiterHandle::Other(limiter.to_limiter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_at_once_stay_so_beside_an_algorithm_of_windows() {
        let limit = Limit::concurrent(50).expect("valid");
        assert_eq!(concurrent(50), limit);
        let counted = counted_by(concurrent_of(50), Algorithm::TokenBucket, Some(7));
        assert_eq!(counted.map_err(|(error, _)| error.to_string()), Ok(limit));
        let (error, nearest) = concurrent_of(70_000).expect_err("too many");
        let message = "`concurrent` must be at most 65535, got 70000: write fewer calls at once";
        assert_eq!((error.to_string(), nearest.to_string()), (message.to_owned(), "65535 concurrent".to_owned()));
        let (_, nearest) = concurrent_of(0).expect_err("none");
        assert_eq!(nearest.to_string(), "1 concurrent");
    }

    /// The texts include some that need escapes, are empty, or are too long to be their own encoding.
    #[test]
    fn a_static_key_equals_the_key_of_its_text() {
        const LONG: &str = match std::str::from_utf8(&[b'a'; 201]) {
            Ok(text) => text,
            Err(_) => "",
        };
        let (longest, _) = LONG.split_at(200);
        for text in ["getId", "a:b/c-d_e.f", "", "+", "a b", "user@", "{x}", "é", longest, LONG] {
            let static_key: &'static StaticKey = Box::leak(Box::new(StaticKey::new(text)));
            let key = static_key.key().clone();
            assert_eq!(key, Key::new(text), "{text}");
            assert_eq!(key.subject().to_string(), Key::new(text).subject().to_string(), "{text}");
            assert_eq!(key.part(7), Key::new(text).part(7), "{text}");
        }
    }
}
