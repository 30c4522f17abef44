//! The periods of the calendar in the memory store: their starts and ends, by the wall clock.

use std::time::Duration;

use super::MemoryStore;
use crate::algorithm::{CalendarTime, CounterState};
use crate::calendar::Calendar;
use crate::clock::Moment;
use crate::request::Request;

impl MemoryStore {
    /// Ends the present period of a counter of the calendar after this time.
    pub(crate) fn end_period_after(&self, request: &Request<'_>, time: Duration) {
        let encoding = self.hashed_encoding(request.key, request.limit);
        let key_hash = self.key_hash(&encoding);
        let mut shard = self.shards.lock(key_hash.shard);
        let input = self.input(request.limit, request.cost, 0, self.clock.now());
        shard.end_period_after(&key_hash, &input, time);
    }

    /// The start of the present period of a request's counter, in milliseconds of the store's clock. `None` for a limit that is
    /// not of the calendar.
    pub(crate) fn period_start(&self, request: &Request<'_>) -> Option<u64> {
        let input = self.input(request.limit, 0, 0, self.clock.now());
        let CalendarTime { calendar, micros } = input.calendar?;
        let encoding = self.hashed_encoding(request.key, request.limit);
        let key_hash = self.key_hash(&encoding);
        let fixed = self.shards.lock(key_hash.shard).read(&key_hash, &input, CounterState::period_start);
        // A counter that several keys share may have none.
        let start = fixed.unwrap_or_else(|| calendar.edges_at(micros / 1000).start);
        Some((start * 1000).saturating_add(input.micros).saturating_sub(micros) / 1000)
    }

    /// Reads the wall clock of an instant that has just been read. A function of its own, since few limits are of the
    /// calendar.
    #[cold]
    #[inline(never)]
    pub(super) fn calendar_time(&self, calendar: Calendar, now: Moment) -> CalendarTime {
        let micros = self.clock.wall_micros();
        // Rather a little too early: a call that comes at its `retry_after` is in the next period.
        CalendarTime { calendar, micros: micros.saturating_sub(self.clock.now().micros().saturating_sub(now.micros())) }
    }
}
