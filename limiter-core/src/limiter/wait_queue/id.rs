//! The identity of a queue.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::request::Request;

/// The hash of the set of counters that a decision takes permits from. Calls with equal sets wait in one queue.
///
/// Sharing one counter is not enough: a waiter on its own counter would block unrelated calls. Calls with another `max`
/// or burst have another queue as well: they share the counter but not the number of free permits.
///
/// The hash has 128 bits, by random keys of this process, so it identifies a set as a digest does. No set is stored,
/// however many calls wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueId([u64; 2]);

impl QueueId {
    pub(crate) const FIRST: Self = Self([0; 2]);
    pub(crate) const LAST: Self = Self([u64::MAX; 2]);
}
/// The keys of the hash.
#[derive(Debug, Default)]
pub(crate) struct QueueIds([RandomState; 2]);

impl QueueIds {
    pub(crate) fn id(&self, requests: &[Request<'_>]) -> QueueId {
        if let [request] = requests {
            return self.id_of_one(request);
        }
        let mut ids: Vec<_> = requests.iter().map(|request| self.id_of_one(request)).collect();
        // The order of the limits in a decision makes no difference.
        ids.sort_unstable();
        QueueId(self.0.each_ref().map(|keys| keys.hash_one(&ids)))
    }

    fn id_of_one(&self, Request { key, limit, .. }: &Request<'_>) -> QueueId {
        let (encoding, algorithm, layout) = (key.encoding(), limit.algorithm(), limit.layout());
        let count = (encoding, algorithm, layout, limit.window_millis(), limit.max(), limit.burst());
        QueueId(self.0.each_ref().map(|keys| keys.hash_one(&count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Key, Layout, Limit};

    fn ids<const N: usize>(sets: [&[(&Key, Limit)]; N]) -> [QueueId; N] {
        let ids = QueueIds::default();
        sets.map(|set| {
            let requests: Vec<_> = set.iter().map(|&(key, limit)| Request::new(key, limit, 1)).collect();
            ids.id(&requests)
        })
    }

    #[test]
    fn another_key_or_part_of_a_limit_makes_another_queue() {
        let (a, b) = (Key::new("a"), Key::new("b"));
        let limit: Limit = "5/10s".parse().expect("a limit");
        let bucket = limit.with_algorithm(Algorithm::TokenBucket);
        let ids = ids([
            &[(&a, limit)],
            &[(&b, limit)],
            &[(&a, "6/10s".parse().expect("a limit"))],
            &[(&a, "5/11s".parse().expect("a limit"))],
            &[(&a, limit.with_layout(Layout::Zset).expect("a sliding window"))],
            &[(&a, bucket)],
            &[(&a, bucket.with_burst(6).expect("a bucket"))],
            &[(&a, limit), (&b, limit)],
            &[(&a, limit), (&a, limit)],
        ]);
        for (index, id) in ids.iter().enumerate() {
            assert!(!ids[..index].contains(id), "{index}");
        }
    }

    #[test]
    fn neither_the_order_of_limits_nor_an_explicit_default_burst_makes_another_queue() {
        let (a, b) = (Key::new("a"), Key::new("b"));
        let limit: Limit = "5/10s".parse().expect("a limit");
        let bucket = limit.with_algorithm(Algorithm::TokenBucket);
        let [one, other] = ids([&[(&a, limit), (&b, limit)], &[(&b, limit), (&a, limit)]]);
        assert_eq!(one, other);
        let [one, other] = ids([&[(&a, bucket)], &[(&a, bucket.with_burst(5).expect("a bucket"))]]);
        assert_eq!(one, other);
    }
}
