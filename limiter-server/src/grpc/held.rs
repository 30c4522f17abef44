//! The hits that a later request may give back: slots, and receipts of permits, by the descriptor that took them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most hits that are held. The oldest of a further one's descriptor cannot be given back.
const MAX_HELD: usize = 100_000;

/// The rule of a descriptor and the values of its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeldKey {
    pub(super) rule: Box<str>,
    pub(super) values: Box<[Box<str>]>,
}

/// Hits of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hits {
    /// A slot, by its text.
    Slot(Arc<str>),
    /// Permits, by the receipt of their call.
    Permits { receipt: Box<str>, cost: u32 },
}

/// The hits that requests hold, in this server. A clone is another handle.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldHits(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    by_key: HashMap<HeldKey, VecDeque<(Instant, Hits)>>,
    len: usize,
    /// The length at which the ended ones are removed.
    sweep_at: usize,
}

impl HeldHits {
    /// Holds hits for a time. What is full holds no more: those hits end by themselves.
    pub(super) fn hold(&self, key: HeldKey, hits: Hits, time: Duration, now: Instant) {
        let mut table = self.lock();
        if table.len >= table.sweep_at.max(1_024) {
            table.sweep(now);
            table.sweep_at = table.len * 2;
        }
        if table.len < MAX_HELD {
            table.by_key.entry(key).or_default().push_back((now + time, hits));
            table.len += 1;
        }
    }

    /// Holds hits again that were taken, as the oldest of their descriptor, until their end.
    pub(super) fn put_back(&self, key: HeldKey, end: Instant, hits: Hits) {
        let mut table = self.lock();
        table.by_key.entry(key).or_default().push_front((end, hits));
        table.len += 1;
    }

    /// Takes the oldest hits of a descriptor that have not ended, with their end.
    pub(super) fn take(&self, key: &HeldKey, now: Instant) -> Option<(Instant, Hits)> {
        let mut table = self.lock();
        let queue = table.by_key.get_mut(key)?;
        let before = queue.len();
        let mut found = None;
        while let Some((end, hits)) = queue.pop_front() {
            if end > now {
                found = Some((end, hits));
                break;
            }
        }
        let (is_empty, removed) = (queue.is_empty(), before - queue.len());
        if is_empty {
            table.by_key.remove(key);
        }
        table.len -= removed;
        found
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn sweep(&mut self, now: Instant) {
        self.by_key.retain(|_, queue| {
            queue.retain(|(end, _)| *end > now);
            !queue.is_empty()
        });
        self.len = self.by_key.values().map(VecDeque::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_given_back_oldest_first_until_they_end() {
        let (held, now) = (HeldHits::default(), Instant::now());
        let key = |value: &str| HeldKey { rule: "a.b".into(), values: [value.into()].into() };
        let permits = |cost| Hits::Permits { receipt: "r".into(), cost };
        held.hold(key("1"), permits(1), Duration::from_secs(1), now);
        held.hold(key("1"), permits(2), Duration::from_secs(3), now);
        held.hold(key("1"), Hits::Slot("s".into()), Duration::from_secs(3), now);
        let later = now + Duration::from_secs(2);
        let end = now + Duration::from_secs(3);
        assert_eq!(held.take(&key("2"), later), None);
        assert_eq!(held.take(&key("1"), later), Some((end, permits(2))));
        held.put_back(key("1"), end, permits(2));
        assert_eq!(held.take(&key("1"), later), Some((end, permits(2))));
        assert_eq!(held.take(&key("1"), later), Some((end, Hits::Slot("s".into()))));
        assert_eq!(held.take(&key("1"), later), None);
        assert_eq!(held.lock().len, 0);
    }

    #[test]
    fn the_held_hits_are_bounded() {
        let (held, now) = (HeldHits::default(), Instant::now());
        let hold = |number: usize, time, now| {
            let key = HeldKey { rule: "a".into(), values: [number.to_string().into()].into() };
            held.hold(key, Hits::Slot("s".into()), time, now);
        };
        for number in 0..MAX_HELD + 10 {
            hold(number, Duration::from_secs(1), now);
        }
        assert_eq!(held.lock().len, MAX_HELD);
        let mut table = held.lock();
        table.sweep(now + Duration::from_secs(2));
        assert_eq!((table.len, table.by_key.len()), (0, 0));
    }
}
