//! The slots of calls that have entered and not left: each ends by itself unless its caller renews it.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rate_limited::Entered;

use super::answer::SlotAnswer;
use super::problem::Problem;

/// The shortest, the default and the longest time to live.
pub(crate) const MIN_TTL: Duration = Duration::from_secs(1);
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(30);
pub(crate) const MAX_TTL: Duration = Duration::from_secs(600);

/// The start of a slot's text: the version of its form.
const VERSION: &str = "sl1-";

/// The slots that callers hold.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The number of this server in the texts of its slots.
    server: u64,
    max_slots: usize,
    table: Mutex<SlotTable>,
}

#[derive(Debug, Default)]
struct SlotTable {
    held: HashMap<u128, HeldSlot>,
    /// The slots by the instant at which they end.
    ends: BTreeSet<(Instant, u128)>,
}

#[derive(Debug)]
struct HeldSlot {
    entered: Entered,
    end: Instant,
    text: Arc<str>,
}

impl Slots {
    /// Creates a table of at most `max_slots`.
    pub(super) fn new(max_slots: usize) -> Self {
        Self { server: random(), max_slots, table: Mutex::default() }
    }

    /// Returns whether a further slot has room, without the ended ones.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn check_room(&self, now: Instant) -> Result<(), Problem> {
        let ended;
        let result = {
            let mut table = self.lock();
            ended = table.remove_ended(now);
            if table.held.len() < self.max_slots { Ok(()) } else { Err(self.full()) }
        };
        drop(ended);
        result
    }

    /// Holds a slot until its end.
    ///
    /// # Errors
    /// There is no room: the slot is free again.
    pub(super) fn hold(&self, entered: Entered, ttl: Duration, now: Instant) -> Result<SlotAnswer, Problem> {
        let id = u128::from(random()) << u64::BITS | u128::from(random());
        let text: Arc<str> = format!("{VERSION}{:016x}-{id:032x}", self.server).into();
        let end = now + ttl;
        let mut table = self.lock();
        if table.held.len() >= self.max_slots {
            drop(table);
            return Err(self.full());
        }
        table.held.insert(id, HeldSlot { entered, end, text: Arc::clone(&text) });
        table.ends.insert((end, id));
        Ok(SlotAnswer { id: text, ttl })
    }

    /// Gives a slot a new time to live, from now on.
    ///
    /// # Errors
    /// It has ended, or is none of this server.
    pub(super) fn renew(&self, text: &str, ttl: Duration, now: Instant) -> Result<SlotAnswer, Problem> {
        let id = self.id_of(text)?;
        let ended;
        let renewed = {
            let mut table = self.lock();
            ended = table.remove_ended(now);
            table.renew(id, now + ttl)
        };
        drop(ended);
        renewed.map(|id| SlotAnswer { id, ttl }).ok_or(Problem::EndedSlot)
    }

    /// Frees a slot.
    ///
    /// # Errors
    /// It has ended, or is none of this server.
    pub(super) fn leave(&self, text: &str, now: Instant) -> Result<(), Problem> {
        let id = self.id_of(text)?;
        let (left, ended) = {
            let mut table = self.lock();
            let ended = table.remove_ended(now);
            (table.remove(id), ended)
        };
        drop(ended);
        left.map(|held| held.entered.leave()).ok_or(Problem::EndedSlot)
    }

    /// Frees the slots that have ended. Returns the instant at which the next one ends.
    pub(super) fn sweep(&self, now: Instant) -> Option<Instant> {
        let (ended, next) = {
            let mut table = self.lock();
            (table.remove_ended(now), table.ends.first().map(|(end, _)| *end))
        };
        drop(ended);
        next
    }

    /// The number of slots that are held.
    pub(super) fn len(&self) -> usize {
        self.lock().held.len()
    }

    fn id_of(&self, text: &str) -> Result<u128, Problem> {
        let parts = || {
            let (server, id) = text.strip_prefix(VERSION)?.split_once('-')?;
            let is_hex = |text: &str, len| text.len() == len && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            (is_hex(server, 16) && is_hex(id, 32)).then_some(())?;
            Some((u64::from_str_radix(server, 16).ok()?, u128::from_str_radix(id, 16).ok()?))
        };
        match parts() {
            None => Err(Problem::NotASlot),
            Some((server, _)) if server != self.server => Err(Problem::ForeignSlot),
            Some((_, id)) => Ok(id),
        }
    }

    fn full(&self) -> Problem {
        Problem::TooManySlots { most: self.max_slots }
    }

    fn lock(&self) -> MutexGuard<'_, SlotTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotTable {
    fn renew(&mut self, id: u128, end: Instant) -> Option<Arc<str>> {
        let held = self.held.get_mut(&id)?;
        self.ends.remove(&(held.end, id));
        held.end = end;
        self.ends.insert((end, id));
        Some(Arc::clone(&held.text))
    }

    fn remove(&mut self, id: u128) -> Option<HeldSlot> {
        let held = self.held.remove(&id)?;
        self.ends.remove(&(held.end, id));
        Some(held)
    }

    /// Removes and returns the slots that have ended. They are free when they are dropped, outside of the lock.
    fn remove_ended(&mut self, now: Instant) -> Vec<HeldSlot> {
        let mut ended = Vec::new();
        while let Some((end, id)) = self.ends.first().copied().filter(|(end, _)| *end <= now) {
            self.ends.remove(&(end, id));
            ended.extend(self.held.remove(&id));
        }
        ended
    }
}

/// Returns a number by the system's random source.
fn random() -> u64 {
    // The keys of a state are random, and each state of a thread has others.
    RandomState::new().hash_one(0_u8)
}
