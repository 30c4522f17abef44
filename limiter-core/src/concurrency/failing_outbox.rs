//! The messages about slots of a limiter that has no store: each fails.

use std::future::ready;
use std::sync::Arc;

use super::message::SlotHolder;
use super::slots_of_key::{Answer, SlotOutbox, SlotsOfKey};
use crate::clock::{Clock, Moment};
use crate::{Error, Key};

/// Fails each message with one error.
pub(crate) struct FailingOutbox {
    pub(crate) error: Error,
    pub(crate) clock: Clock,
}

impl SlotOutbox for FailingOutbox {
    fn look_at(&self, slots: &Arc<SlotsOfKey>, at: Moment) {
        // Later messages would renew slots that no store keeps.
        if at <= self.clock.now_with_suspend()
            && let (Some(sent), _) = slots.look(at)
        {
            slots.failed(&sent, &self.error);
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
