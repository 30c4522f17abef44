//! The most frequent keys of a stream of decisions.

use std::borrow::Cow;

/// A space-saving sketch (Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data
/// Streams", 2005): a fixed number of counters for any number of keys.
///
/// A key without a counter takes over the least one. It continues that count, which is then its error. With m counters and
/// n added keys, each key that occurs more than n/m times has a counter. The number of times that a key was added is at most
/// its count, and at least its count less its error, which is at most n/m.
///
/// A key is recognised by a hash of 64 bits under the seed of the process.
pub(super) struct SpaceSaving {
    capacity: usize,
    /// The counters in the order in which they were made.
    counters: Vec<KeyCounter>,
    /// The counters in the order of their counts, the least one first, and their counts in the same order. A count grows by 1,
    /// so its counter changes places with the last one of those that had the same count.
    order: Vec<usize>,
    counts: Vec<u64>,
    /// The identities of keys with the numbers of their counters, at four times as many places as there are counters. One is
    /// at the first free place from that of its hash on.
    index: Box<[Option<(u64, usize)>]>,
}

/// The counter of one key.
#[derive(Clone, Debug)]
pub(super) struct KeyCounter {
    pub(super) id: u64,
    pub(super) rule: &'static str,
    /// The encoded key.
    pub(super) key: String,
    /// Set in the counters that [`SpaceSaving::top`] returns.
    pub(super) count: u64,
    /// The part of the count that may be of other keys.
    pub(super) error: u64,
    /// The count that the store has, and the number of the entry with it. 0 if it has none of this key.
    pub(super) written: (u64, u64),
    /// Its place in the order.
    place: usize,
}

/// Returns the identity of a key under a rule, by the hashes of both.
#[inline]
pub(super) fn id_of(rule_hash: u64, key_hash: u64) -> u64 {
    key_hash ^ rule_hash.rotate_left(32)
}

impl SpaceSaving {
    /// Creates a sketch with this number of counters, which are made as they are needed.
    pub(super) fn new(capacity: usize) -> Self {
        let index = vec![None; (4 * capacity).next_power_of_two()].into();
        Self { capacity, counters: Vec::new(), order: Vec::new(), counts: Vec::new(), index }
    }

    /// Adds a key once. `encoding` is called for one that had no counter.
    #[inline]
    pub(super) fn add<'k>(&mut self, id: u64, rule: &'static str, encoding: impl FnOnce() -> Cow<'k, [u8]>) {
        let place = match self.find(id) {
            Some(number) => self.counters[number].place,
            None => {
                let encoding = encoding();
                // An encoding has ASCII letters alone.
                let key = std::str::from_utf8(&encoding).unwrap_or_default();
                if self.counters.len() < self.capacity {
                    return self.push(id, rule, key);
                }
                let Some(number) = self.order.first().copied() else { return };
                self.remove(self.counters[number].id);
                self.insert(id, number);
                let least = &mut self.counters[number];
                (least.id, least.rule, least.error, least.written) = (id, rule, self.counts[0], (0, 0));
                least.key.clear();
                least.key.push_str(key);
                0
            }
        };
        self.increment(place);
    }

    /// Adds a counter with a count of 1, before all others.
    #[cold]
    fn push(&mut self, id: u64, rule: &'static str, key: &str) {
        let number = self.counters.len();
        self.counters.iter_mut().for_each(|counter| counter.place += 1);
        let key = key.to_owned();
        self.counters.push(KeyCounter { id, rule, key, count: 0, error: 0, written: (0, 0), place: 0 });
        self.order.insert(0, number);
        self.counts.insert(0, 1);
        self.insert(id, number);
    }

    /// Adds 1 to the count at a place.
    #[inline]
    fn increment(&mut self, place: usize) {
        let count = self.counts[place];
        let last = place + self.counts[place..].partition_point(|other| *other <= count) - 1;
        self.order.swap(place, last);
        self.counters[self.order[place]].place = place;
        self.counters[self.order[last]].place = last;
        self.counts[last] += 1;
    }

    /// Records the count of a key that the store has, with the number of the entry.
    #[cfg(feature = "redis")]
    pub(super) fn set_written(&mut self, id: u64, written: (u64, u64)) {
        if let Some(number) = self.find(id) {
            self.counters[number].written = written;
        }
    }

    /// Returns the counters with the greatest counts, the greatest first.
    #[cfg(feature = "redis")]
    pub(super) fn top(&self, number: usize) -> Vec<KeyCounter> {
        let greatest = self.order.iter().zip(&self.counts).rev().take(number);
        greatest.map(|(number, count)| KeyCounter { count: *count, ..self.counters[*number].clone() }).collect()
    }
}

// The counters by the identities of their keys.

impl SpaceSaving {
    /// The place of an identity, whose bits are those of a hash.
    #[inline]
    fn home(&self, id: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits select a place")]
        let place = id as usize;
        place & (self.index.len() - 1)
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.index.len() - 1)
    }

    #[inline]
    fn find(&self, id: u64) -> Option<usize> {
        let mut place = self.home(id);
        while let Some((other, number)) = self.index[place] {
            if other == id {
                return Some(number);
            }
            place = self.after(place);
        }
        None
    }

    fn insert(&mut self, id: u64, number: usize) {
        let mut place = self.home(id);
        while self.index[place].is_some() {
            place = self.after(place);
        }
        self.index[place] = Some((id, number));
    }

    /// Removes the identity of a counter.
    fn remove(&mut self, id: u64) {
        let mut free = self.home(id);
        while self.index[free].is_some_and(|(other, _)| other != id) {
            free = self.after(free);
        }
        self.index[free] = None;
        // Those behind it move up, unless that is before their own place.
        let mut place = self.after(free);
        while let Some((other, _)) = self.index[place] {
            let distance = |from: usize| place.wrapping_sub(from) & (self.index.len() - 1);
            if distance(self.home(other)) >= distance(free) {
                self.index[free] = self.index[place].take();
                free = place;
            }
            place = self.after(place);
        }
    }
}

#[cfg(all(test, feature = "redis", not(limiter_loom)))]
mod tests {
    use std::collections::BTreeMap;
    use std::hash::BuildHasher;

    use super::*;
    use crate::sync::seed;

    /// Numbers that look random, and are the same in each run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % end
        }

        /// Returns a number from 0 on, each about half as often as the one of half its size: Zipf's law.
        fn zipf(&mut self, numbers: u64) -> u64 {
            // The inverse of the distribution function of 1/x.
            let (range, share) = (numbers + 1, self.below(1 << 20));
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "small"
            )]
            let drawn = (range as f64).powf(share as f64 / f64::from(1 << 20)) as u64;
            drawn.clamp(1, numbers) - 1
        }
    }

    fn add(sketch: &mut SpaceSaving, key: u64) {
        let text = format!("user:@{key}");
        sketch.add(id_of(3, seed().hash_one(&text)), "rule", || Cow::Owned(text.clone().into_bytes()));
    }

    #[test]
    fn counts_are_within_the_guaranteed_bounds_of_an_exact_count() {
        for (capacity, keys, added) in [(1, 5, 1_000_u64), (8, 200, 5_000), (160, 50_000, 200_000), (160, 100, 10_000)]
        {
            let (mut sketch, mut exact, mut random) =
                (SpaceSaving::new(capacity), BTreeMap::<String, u64>::new(), Random(7));
            for _ in 0..added {
                let key = random.zipf(keys);
                *exact.entry(format!("user:@{key}")).or_default() += 1;
                add(&mut sketch, key);
            }
            let (counted, bound) = (sketch.top(usize::MAX), added / u64::try_from(capacity).expect("few"));
            assert_eq!(
                counted.iter().map(|counter| counter.count).sum::<u64>(),
                added,
                "each addition is in one count"
            );
            for counter in &counted {
                let real = exact.get(&counter.key).copied().unwrap_or(0);
                assert!(counter.count - counter.error <= real && real <= counter.count, "{counter:?}: {real}");
                assert!(counter.error <= bound, "{counter:?}: {bound}");
            }
            for (key, _) in exact.iter().filter(|(_, count)| **count > bound) {
                assert!(counted.iter().any(|counter| counter.key == *key), "{key} has a counter");
            }
        }
    }

    #[test]
    fn the_top_of_a_zipf_load_is_right() {
        let (mut sketch, mut exact, mut random) = (SpaceSaving::new(160), BTreeMap::<u64, u64>::new(), Random(1));
        for _ in 0..300_000 {
            let key = random.zipf(100_000);
            *exact.entry(key).or_default() += 1;
            add(&mut sketch, key);
        }
        let mut expected: Vec<_> = exact.into_iter().collect();
        expected.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let expected: Vec<_> = expected.iter().take(10).map(|(key, _)| format!("user:@{key}")).collect();
        let top: Vec<_> = sketch.top(10).into_iter().map(|counter| counter.key).collect();
        assert_eq!(top, expected);
    }

    #[test]
    fn equal_keys_of_two_rules_are_two() {
        let mut sketch = SpaceSaving::new(4);
        for (hash, rule) in [(1, "one rule"), (2, "another rule"), (1, "one rule")] {
            sketch.add(id_of(hash, 7), rule, || Cow::Borrowed(b"key"));
        }
        let counts: Vec<_> = sketch.top(4).into_iter().map(|counter| (counter.rule, counter.count)).collect();
        assert_eq!(counts, [("one rule", 2), ("another rule", 1)]);
        let mut none = SpaceSaving::new(0);
        none.add(1, "rule", || Cow::Borrowed(b"key"));
        assert!(none.top(1).is_empty());
    }
}
