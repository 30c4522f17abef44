//! The server of a schedule: the scripts, and a clock that steps back.

use std::time::Duration;

use limiter_testkit::Random;

use crate::Limit;
use crate::clock::Clock;
use crate::request::Request;
use crate::store::redis::script::action::Action;
use crate::store::redis::script::command::{BatchEntry, LeaseTerms};
use crate::store::redis::script::fuzz::loaded_scripts::LoadedScripts;
use crate::store::redis::script::reply::{BatchEntryReply, LeaseReply};

pub(super) struct SimulatedServer<'a> {
    scripts: &'a LoadedScripts,
    /// Microseconds.
    window: u64,
    /// The real time to which its clock was moved.
    moved_to: u64,
    /// The real time at which its clock shows its latest time again.
    caught_up_at: u64,
    /// The number of script calls.
    pub(super) calls: u64,
}

impl<'a> SimulatedServer<'a> {
    pub(super) fn new(scripts: &'a LoadedScripts, window: u64) -> Self {
        scripts.delete_keys();
        Self { scripts, window, moved_to: 0, caught_up_at: 0, calls: 0 }
    }

    pub(super) fn batch(&mut self, now: u64, key: usize, entry: BatchEntry) -> (BatchEntryReply, LeaseReply) {
        self.move_clock(now);
        self.calls += 1;
        self.scripts.batch_on(key, entry)
    }

    /// Returns the permits of a key that the store counts, as of its last call.
    pub(super) fn used(&self, key: usize, limit: Limit) -> u64 {
        let entry = BatchEntry { limit, cost: 0, calls: 1, is_charge: false, lease: Some(LeaseTerms::default()) };
        u64::from(limit.max() - self.scripts.batch_on(key, entry).0.remaining)
    }

    pub(super) fn decide(&mut self, now: u64, key: usize, action: &Action, request: Request<'_>) {
        self.move_clock(now);
        self.calls += 1;
        self.scripts.decide_on(key, action, request);
    }

    /// The time of its clock, as of its last call.
    pub(super) fn micros(&self) -> u64 {
        Clock::Manual(self.scripts.clock.clone()).now().micros()
    }

    fn move_clock(&mut self, now: u64) {
        self.scripts.clock.advance(Duration::from_micros(now - self.moved_to));
        self.moved_to = now;
    }

    /// Sets its clock back by less than `longest`. It is never a window behind its latest time. Returns the step.
    pub(super) fn step_back(&mut self, now: u64, longest: u64, random: &mut Random) -> u64 {
        self.move_clock(now);
        let behind = self.caught_up_at.saturating_sub(now);
        let by = random.below(longest.min(self.window - behind));
        self.scripts.clock.rewind(Duration::from_micros(by));
        self.caught_up_at = self.caught_up_at.max(now) + by;
        by
    }
}
