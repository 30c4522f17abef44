//! The most frequent keys of a stream of decisions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A space-saving sketch (Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data
/// Streams", 2005): a fixed number of counters for any number of keys.
///
/// A key without a counter takes over the least one. It continues that count, which is then its error. With m counters and
/// n added keys, each key that occurs more than n/m times has a counter. The number of times that a key was added is at most
/// its count, and at least its count less its error, which is at most n/m.
///
/// A key is recognised by a hash of 64 bits under the seed of the process.
pub(super) struct SpaceSaving {
    counters: Vec<KeyCounter>,
    capacity: usize,
    /// The counters as a binary heap, the least one first.
    heap: Vec<u32>,
    /// The counter of each key.
    index: HashMap<u64, u32, BuildHasherDefault<GivenHash>>,
}

/// The counter of one key.
#[derive(Clone, Debug)]
pub(super) struct KeyCounter {
    pub(super) id: u64,
    pub(super) rule: &'static str,
    /// The encoded key.
    pub(super) key: String,
    pub(super) count: u64,
    /// The part of the count that may be of other keys.
    pub(super) error: u64,
    /// The count that the store has, and the number of the entry with it. 0 if it has none of this key.
    pub(super) written: (u64, u64),
    /// Its place in the heap.
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
        Self { counters: Vec::new(), capacity, heap: Vec::new(), index: HashMap::default() }
    }

    /// Adds a key once. `encoding` is called for one that had no counter.
    #[inline]
    pub(super) fn add<'k>(&mut self, id: u64, rule: &'static str, encoding: impl FnOnce() -> Cow<'k, [u8]>) {
        let place = match self.index.get(&id) {
            Some(counter) => {
                let counter = &mut self.counters[index_of(*counter)];
                counter.count += 1;
                counter.place
            }
            None => match self.replace_least(id, rule, &encoding()) {
                Some(place) => place,
                None => return,
            },
        };
        self.sift_down(place);
    }

    /// Gives a key a counter, and returns its place in the heap. `None` without counters.
    fn replace_least(&mut self, id: u64, rule: &'static str, encoding: &[u8]) -> Option<usize> {
        // An encoding has ASCII letters alone.
        let encoding = std::str::from_utf8(encoding).unwrap_or_default();
        if self.counters.len() < self.capacity {
            let (number, place) = (u32::try_from(self.counters.len()).ok()?, self.heap.len());
            self.counters.push(KeyCounter {
                id,
                rule,
                key: encoding.to_owned(),
                count: 1,
                error: 0,
                written: (0, 0),
                place,
            });
            self.heap.push(number);
            self.index.insert(id, number);
            self.sift_up(place);
            return Some(self.counters[index_of(number)].place);
        }
        let number = *self.heap.first()?;
        let least = &mut self.counters[index_of(number)];
        self.index.remove(&least.id);
        self.index.insert(id, number);
        (least.id, least.rule, least.error, least.written) = (id, rule, least.count, (0, 0));
        least.count += 1;
        least.key.clear();
        least.key.push_str(encoding);
        Some(0)
    }

    fn count_at(&self, place: usize) -> u64 {
        self.counters[index_of(self.heap[place])].count
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for place in [one, other] {
            self.counters[index_of(self.heap[place])].place = place;
        }
    }

    #[inline]
    fn sift_down(&mut self, mut place: usize) {
        loop {
            let first_child = 2 * place + 1;
            let children = first_child..(first_child + 2).min(self.heap.len());
            let Some(least) = children.min_by_key(|child| self.count_at(*child)) else { return };
            if self.count_at(place) <= self.count_at(least) {
                return;
            }
            self.swap(place, least);
            place = least;
        }
    }

    fn sift_up(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.count_at(parent) <= self.count_at(place) {
                return;
            }
            self.swap(place, parent);
            place = parent;
        }
    }

    /// Records the count of a key that the store has, with the number of the entry.
    #[cfg(feature = "redis")]
    pub(super) fn set_written(&mut self, id: u64, written: (u64, u64)) {
        if let Some(counter) = self.index.get(&id) {
            self.counters[index_of(*counter)].written = written;
        }
    }

    /// Returns the counters with the greatest counts, the greatest first.
    #[cfg(feature = "redis")]
    pub(super) fn top(&self, number: usize) -> Vec<KeyCounter> {
        let mut order: Vec<_> = self.counters.iter().collect();
        order.sort_unstable_by_key(|counter| std::cmp::Reverse(counter.count));
        order.into_iter().take(number).cloned().collect()
    }
}

fn index_of(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A hasher of hashes.
#[derive(Default)]
struct GivenHash(u64);

impl Hasher for GivenHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
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
