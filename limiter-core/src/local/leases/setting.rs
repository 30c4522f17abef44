//! The setting of leases: what it needs, and which calls have it.

#[cfg(all(test, feature = "leases", not(limiter_loom)))]
use std::cell::RefCell;

use crate::Limit;
use crate::local::Local;
use crate::request::{CallOptions, CallSettings};

/// Does nothing: leases are in the build.
#[cfg(feature = "leases")]
#[doc(hidden)]
#[macro_export]
macro_rules! __require_leases {
    () => {};
}

/// Fails to compile: leases are not in the build.
#[cfg(not(feature = "leases"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __require_leases {
    () => {
        ::core::compile_error!(
            "`leases = true` needs the feature `leases` of `rate-limited`: turn it on, or remove the argument"
        );
    };
}

impl CallSettings {
    /// Returns what a rule with these limits does not get, although the settings demand it: leases, if it has several
    /// limits, or one that may not be leased.
    pub(crate) fn unused_by(self, mut limits: impl Iterator<Item = Limit>) -> Option<&'static str> {
        if self.leases != Some(true) {
            return None;
        }
        let has_leases = match (limits.next(), limits.next()) {
            (None, _) => true,
            (Some(limit), None) => limit.may_be_leased(),
            (Some(_), Some(_)) => false,
        };
        (!has_leases).then_some(
            "takes no leases: they need a single limit with `sliding_window` in the compact layout, `max` of at least \
             10000 and a window of at least 640ms",
        )
    }
}

impl Local {
    /// Does nothing, but in tests of the setting.
    #[cfg(not(all(test, feature = "leases", not(limiter_loom))))]
    pub(crate) fn note_options(&self, _: &CallOptions) {}

    /// Records the setting of a call by this thread.
    #[cfg(all(test, feature = "leases", not(limiter_loom)))]
    pub(crate) fn note_options(&self, options: &CallOptions) {
        NOTED_SETTINGS.with_borrow_mut(|settings| settings.push(options.leases));
    }
}

/// Returns the settings of the calls by this thread since the last time.
#[cfg(all(test, feature = "leases", not(limiter_loom)))]
fn take_noted_settings() -> Vec<bool> {
    NOTED_SETTINGS.take()
}

#[cfg(all(test, feature = "leases", not(limiter_loom)))]
thread_local! {
    static NOTED_SETTINGS: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
}

#[cfg(all(test, feature = "leases", not(limiter_loom)))]
mod tests;
