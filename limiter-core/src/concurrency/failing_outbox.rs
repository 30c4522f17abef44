//! The messages about slots of a limiter that has no store: each fails.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use super::message::SlotHolder;
use super::slots_of_key::{Answer, SlotOutbox, SlotsOfKey};
use crate::clock::{Clock, Moment};
use crate::{Error, Key};

/// The time after which a message would be sent again. No such message is sent.
const RETRY: Duration = Duration::from_millis(100);

/// Fails each message with one error.
pub(crate) struct FailingOutbox {
    pub(crate) error: Error,
    pub(crate) clock: Clock,
}

impl SlotOutbox for FailingOutbox {
    fn look_at(&self, slots: &Arc<SlotsOfKey>, at: Moment) {
        // Later messages would renew slots that no store keeps.
        if at > self.clock.now_with_suspend() {
            slots.begin_look();
        } else if let (Some(sent), _) = slots.look() {
            slots.failed(&sent, &self.error, RETRY);
        }
    }

    fn has_notices(&self) -> bool {
        false
    }

    fn peek(&self, _: &Key) -> Answer<Vec<SlotHolder>> {
        Box::pin(ready(Err(self.error.clone())))
    }

    fn reset(&self, _: &Key) -> Answer<()> {
        Box::pin(ready(Err(self.error.clone())))
    }
}

#[cfg(all(test, feature = "test-util", not(limiter_loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::concurrency::{QueuedOutcome, SharedSlots, SlotClaim, SlotOptions, SlotTable};
    use crate::instances::Instances;
    use crate::{ErrorKind, Key};

    /// Its look was never ordered: an earlier one was, which did not come.
    #[test]
    fn a_call_long_after_a_failed_one_fails_too() {
        let manual = ManualClock::new();
        let clock = Clock::Manual(manual.clone());
        let outbox = FailingOutbox { error: Error::new(ErrorKind::Unavailable, "no"), clock: clock.clone() };
        let store = SharedSlots::new(Box::new(outbox), SlotOptions::default(), None, Instances::set(1));
        let slots = SlotTable::new(clock, Some(store)).slots_of(&Key::new("a"));
        for _ in 0..3 {
            let queued = slots.queue(SlotClaim::ONE, false).expect("a store to ask");
            assert!(matches!(crate::run::block_on(queued), QueuedOutcome::Failed(_)));
            manual.advance(Duration::from_secs(1));
        }
    }

    /// This process knows of no failure when the call is decided by the share.
    #[test]
    fn a_share_is_that_of_the_instances_also_long_after_a_failure() {
        let manual = ManualClock::new();
        let clock = Clock::Manual(manual.clone());
        let outbox = FailingOutbox { error: Error::new(ErrorKind::Unavailable, "no"), clock: clock.clone() };
        let store = SharedSlots::new(Box::new(outbox), SlotOptions::default(), None, Instances::set(2));
        let slots = SlotTable::new(clock, Some(store)).slots_of(&Key::new("a"));
        manual.advance(Duration::from_secs(3_600));
        assert!(slots.enter(4, SlotClaim::ONE).is_none(), "the store must be asked");
        let held: Vec<_> = std::iter::from_fn(|| slots.enter_by_share(1)).take(4).collect();
        assert_eq!(held.len(), 2, "half of four");
    }
}
