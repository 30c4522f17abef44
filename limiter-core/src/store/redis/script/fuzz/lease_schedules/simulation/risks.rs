//! Events at the instants at which a broken rule admits too much, and delays of messages.

use super::super::event::{Actor, Event};
use super::Simulation;
use crate::store::redis::script::fuzz::pick;

impl Simulation<'_> {
    /// Adds calls at about the instant at which permits of a stamp expire: permits that a window still has are taken
    /// again then, if the log counts them too briefly.
    pub(super) fn add_calls_at_expiry(&mut self, key: usize, stamp_millis: u64) {
        if self.random.below(2) == 0 {
            return;
        }
        let until_expiry = (stamp_millis * 1_000 + self.window).saturating_sub(self.server.micros());
        let wait = match self.random.below(4) {
            0 | 3 => until_expiry.saturating_sub(self.random.below(self.lease_time)),
            1 => until_expiry + self.random.below(self.lease_time),
            _ => until_expiry + self.random.below(2_000),
        };
        let actor = Actor { process: pick(&mut self.random, self.processes.len()), key };
        if self.random.below(2) == 0 {
            self.add(wait, Event::Renew(actor));
        }
        if self.random.below(self.fill_odds) == 0 {
            let wait = wait + self.random.below(1_000);
            self.add(wait, Event::Fill(actor));
        }
    }

    /// Adds a call for all permits that are left, after an event that may have freed too many.
    pub(super) fn add_fill_soon(&mut self, key: usize) {
        if self.random.below(self.fill_odds) < 2 {
            let (process, wait) = (pick(&mut self.random, self.processes.len()), self.random.below(1_000));
            self.add(wait, Event::Fill(Actor { process, key }));
        }
    }

    pub(super) fn step_back(&mut self) {
        let longest = [self.lease_time * 2, self.window][pick(&mut self.random, 2)];
        let by = self.server.step_back(self.now, longest, &mut self.random);
        if self.random.below(2) == 0 {
            // The new stamps are then those of permits from before the step.
            let wait = by + self.random.below(self.lease_time);
            let actor = Actor { process: pick(&mut self.random, self.processes.len()), key: self.pick_key() };
            self.add(wait, Event::Fill(actor));
        }
        self.counts.steps += 1;
    }

    /// Returns the time of a message on its way.
    pub(super) fn delay(&mut self) -> u64 {
        let longest = match self.random.below(30) {
            0 => self.window / 2,
            1..=4 => self.lease_time * 4,
            5..=12 => self.lease_time,
            _ => 400,
        };
        self.random.below(longest)
    }
}
