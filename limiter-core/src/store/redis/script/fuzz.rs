//! Whatever a server says, and whatever its keys hold: an answer or an error, and never a panic.

use limiter_testkit::Random;

mod replies;
mod values;

/// A number below `bound`, to pick by.
pub(super) fn pick(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).unwrap_or(0)
}
