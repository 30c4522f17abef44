//! Fuzz tests: any reply and any stored value lead to a reply or an error, and never to a panic.

use limiter_testkit::Random;

#[cfg(all(feature = "calendar", feature = "test-util"))]
mod calendars;
#[cfg(feature = "test-util")]
mod forms;
#[cfg(feature = "test-util")]
mod lease_schedules;
#[cfg(feature = "test-util")]
mod leases;
#[cfg(feature = "test-util")]
mod loaded_scripts;
mod packed;
mod replies;
mod values;

/// A number below `bound`, to pick by.
pub(super) fn pick(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).unwrap_or(0)
}
