//! Limits of the calendar in an expansion. The attribute has checked their texts, except for the names of zones.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;

use crate::private::values::LimitOrNearest;
use crate::{Limit, TARGET};

/// Checks at compile time that calendars are in the build.
#[cfg(feature = "calendar")]
#[doc(hidden)]
#[macro_export]
macro_rules! __require_calendar {
    () => {};
}

/// Fails to compile: calendars are not in the build.
#[cfg(not(feature = "calendar"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __require_calendar {
    () => {
        ::core::compile_error!(
            "limits of the calendar need the feature `calendar` of `rate-limited`: turn it on, or write days such as `30d`"
        );
    };
}

/// A limit such as `1000/month:5@Europe/Berlin`, in a static of the annotated function.
///
/// A zone that is unknown at run time is UTC, with one warning. So a call is never without its limit.
#[derive(Debug)]
pub struct CalendarLimit {
    text: &'static str,
    limit: OnceLock<Limit>,
    has_warned: AtomicBool,
}

impl CalendarLimit {
    /// Creates it from the text of a limit with a zone.
    #[must_use]
    pub const fn new(text: &'static str) -> Self {
        Self { text, limit: OnceLock::new(), has_warned: AtomicBool::new(false) }
    }

    /// Returns the limit.
    pub fn limit(&'static self) -> LimitOrNearest {
        Ok(*self.limit.get_or_init(|| {
            self.text.parse().unwrap_or_else(|error| {
                self.warn(&error);
                let (limit, _) = self.text.split_once('@').unwrap_or((self.text, ""));
                format!("{limit}@UTC").parse().unwrap_or_else(|_| Limit::nearest(1, Limit::MAX_WINDOW))
            })
        }))
    }

    /// Returns the limit in another zone.
    pub fn in_zone<Z: AsRef<str> + ?Sized>(&'static self, zone: &Z) -> LimitOrNearest {
        let limit = self.limit()?;
        #[cfg(feature = "calendar")]
        let limit = limit.zone(zone.as_ref()).unwrap_or_else(|error| {
            self.warn(&error);
            limit
        });
        #[cfg(not(feature = "calendar"))]
        let _ = zone;
        Ok(limit)
    }

    fn warn(&self, error: &crate::Error) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            warn!(target: TARGET, "{error}; the limit `{}` counts in UTC instead", self.text);
        }
    }
}

#[cfg(all(test, feature = "calendar", feature = "test-util"))]
mod tests {
    use super::*;
    use crate::limiter::tests::Warnings;

    #[test]
    fn an_unknown_zone_is_utc_with_one_warning() {
        static BY_NAME: CalendarLimit = CalendarLimit::new("5/month:7@Berlin");
        static BY_VALUE: CalendarLimit = CalendarLimit::new("5/month:7@UTC");
        let limit: Limit = "5/month:7".parse().expect("a limit");
        let lines = Warnings::during(|| {
            for _ in 0..3 {
                assert_eq!(BY_NAME.limit().expect("a limit"), limit);
                assert_eq!(BY_VALUE.in_zone("Mars/Base").expect("a limit"), limit);
                assert_eq!(BY_VALUE.in_zone("").expect("a limit"), limit);
            }
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("got `Berlin`: write `Europe/Berlin`; the limit `5/month:7@Berlin` counts in UTC"));
        let berlin = BY_VALUE.in_zone(&"Europe/Berlin".to_owned()).expect("a limit");
        assert_eq!(berlin, "5/month:7@Europe/Berlin".parse().expect("a limit"));
    }
}
