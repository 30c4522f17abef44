//! The cases of the comparison.

use crate::contestant::Rate;
use crate::order::Order;

/// One table of the report.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The name for `--cases`.
    pub name: &'static str,
    /// The heading in the report.
    pub title: &'static str,
    /// True if a quick comparison includes it.
    pub quick: bool,
    /// The way it is measured.
    pub how: How,
}

/// The way a case is measured.
#[derive(Debug, Clone, Copy)]
pub enum How {
    /// Threads on limiters in this process.
    Spin {
        /// The number of threads.
        threads: usize,
        /// The number of keys, each with the same probability.
        keys: usize,
        /// The limit of each.
        rate: Rate,
    },
    /// The attribute with a constant key, a function without the attribute, and the peer of the bar.
    Attribute,
    /// Tasks on limiters in Redis.
    Load {
        /// The number of tasks.
        tasks: usize,
        /// The spread of the calls over keys.
        spread: Spread,
        /// The limit of each key.
        rate: Rate,
    },
    /// Tasks on several instances that may take permits of one key ahead.
    #[cfg(feature = "leases")]
    Leased {
        /// The number of tasks of each instance.
        tasks: usize,
        /// The number of instances.
        instances: usize,
        /// The limit of the key.
        rate: Rate,
    },
    /// A check that limits hold: a burst and a stream of calls, by two instances at once on Redis.
    Exactness,
    /// The memory of a number of permits on a number of keys in Redis.
    Bytes {
        /// The number of keys.
        keys: usize,
        /// Permits on each.
        permits: u32,
    },
    /// 10 000 tasks that wait on as many keys.
    Waiting,
    /// Instructions a decision, by callgrind.
    Instructions,
}

/// The spread of calls over keys.
#[derive(Debug, Clone, Copy)]
pub enum Spread {
    /// A random one of a number of keys.
    Random(usize),
    /// Each of a number of keys in turn, a number of times in a row.
    InTurn(usize, usize),
}

impl Spread {
    /// Returns the number of keys.
    #[must_use]
    pub fn keys(self) -> usize {
        match self {
            Self::Random(keys) | Self::InTurn(keys, _) => keys,
        }
    }

    /// Returns a new order of calls.
    #[must_use]
    pub fn order(self) -> Order {
        match self {
            Self::Random(keys) => Order::Random { keys },
            Self::InTurn(keys, times) => Order::in_turn(keys, times),
        }
    }
}

/// The rate 5 in 10 seconds.
const FEW: Rate = Rate { max: 5, seconds: 10 };
/// The rate 100 a second.
const SOME: Rate = Rate { max: 100, seconds: 1 };
/// The rate 100 000 a second.
const MANY: Rate = Rate { max: 100_000, seconds: 1 };
/// A rate that no contestant reaches.
pub(crate) const ENDLESS: Rate = Rate { max: 1_000_000_000, seconds: 1 };

const fn load(name: &'static str, title: &'static str, tasks: usize, spread: Spread, rate: Rate) -> Case {
    Case { name, title, quick: false, how: How::Load { tasks, spread, rate } }
}

#[cfg(feature = "leases")]
const fn leased(name: &'static str, title: &'static str, tasks: usize, instances: usize, rate: Rate) -> Case {
    Case { name, title, quick: false, how: How::Leased { tasks, instances, rate } }
}

const fn spin(name: &'static str, title: &'static str, threads: usize, keys: usize, rate: Rate) -> Case {
    Case { name, title, quick: false, how: How::Spin { threads, keys, rate } }
}

const fn quick(case: Case) -> Case {
    Case { quick: true, ..case }
}

const fn other(name: &'static str, title: &'static str, how: How) -> Case {
    Case { name, title, quick: true, how }
}

/// The case that finds the exact contestants.
pub const EXACT: Case =
    other("exact", "Exactness: a limit of 5 a second, with 64 calls at once and then 40 a second", How::Exactness);

/// The rate 1 000 000 a second.
#[cfg(feature = "leases")]
const MILLION: Rate = Rate { max: 1_000_000, seconds: 1 };

/// All cases, in the order of the report. Cases of fixed length come first: a run that is late shortens the others.
pub const ALL: [Case; if cfg!(feature = "leases") { 29 } else { 25 }] = [
    EXACT,
    quick(spin("local-keys", "In process, 1 000 keys, 1 thread, 100 000/s", 1, 1_000, MANY)),
    spin("local-keys-2", "In process, 1 000 keys, 2 threads, 100 000/s", 2, 1_000, MANY),
    spin("local-denied", "In process, one key, 1 thread, 100/s, denied", 1, 1, SOME),
    quick(spin("local-denied-2", "In process, one key, 2 threads, 100/s, denied", 2, 1, SOME)),
    other("attribute", "In process, a constant key through the attribute on an async fn", How::Attribute),
    other("instructions", "In process, instructions a decision", How::Instructions).full_only(),
    other("bytes-5", "Redis, bytes a key with 5 permits, on 10 000 keys", How::Bytes { keys: 10_000, permits: 5 }),
    other("bytes-1000", "Redis, bytes of a key with 1 000 permits", How::Bytes { keys: 1, permits: 1_000 }).full_only(),
    other("bytes-10000", "Redis, bytes of a key with 10 000 permits", How::Bytes { keys: 1, permits: 10_000 })
        .full_only(),
    other("bytes-100000", "Redis, bytes of a key with 100 000 permits", How::Bytes { keys: 1, permits: 100_000 }),
    other("waiting", "10 000 tasks that wait on 10 000 keys", How::Waiting),
    quick(load("tasks-1", "Redis, 1 task, 1 000 keys, 100 000/s", 1, Spread::Random(1_000), MANY)),
    load("tasks-8", "Redis, 8 tasks, 1 000 keys, 100 000/s", 8, Spread::Random(1_000), MANY),
    quick(load("tasks-64", "Redis, 64 tasks, 1 000 keys, 100 000/s", 64, Spread::Random(1_000), MANY)),
    load("tasks-512", "Redis, 512 tasks, 1 000 keys, 100 000/s", 512, Spread::Random(1_000), MANY),
    load("keys-200000", "Redis, 64 tasks, 200 000 keys, 100 000/s", 64, Spread::Random(200_000), MANY),
    quick(load("many-keys", "Redis, 512 tasks, 200 000 keys, 5/10 s", 512, Spread::Random(200_000), FEW)),
    quick(load("one-key-64", "Redis, 64 tasks, one key, limit never reached", 64, Spread::Random(1), ENDLESS)),
    quick(load("one-key-512", "Redis, 512 tasks, one key, limit never reached", 512, Spread::Random(1), ENDLESS)),
    quick(load(
        "denied-50",
        "Redis, 64 tasks, 5/10 s, each key 10 times in a row: 50 % denied",
        64,
        Spread::InTurn(200_000, 10),
        FEW,
    )),
    quick(load("denied-99", "Redis, 64 tasks, one key, 100/s: 99 % denied", 64, Spread::Random(1), SOME)),
    load("max-1000", "Redis, 64 tasks, one key, 1 000/s", 64, Spread::Random(1), Rate { max: 1_000, seconds: 1 }),
    load("max-10000", "Redis, 64 tasks, one key, 10 000/s", 64, Spread::Random(1), Rate { max: 10_000, seconds: 1 }),
    load("max-100000", "Redis, 64 tasks, one key, 100 000/s", 64, Spread::Random(1), MANY),
    #[cfg(feature = "leases")]
    leased("lease-1", "Redis with leases, 1 task, one key, limit never reached", 1, 1, ENDLESS),
    #[cfg(feature = "leases")]
    leased("lease-64", "Redis with leases, 64 tasks, one key, limit never reached", 64, 1, ENDLESS),
    #[cfg(feature = "leases")]
    leased("lease-512", "Redis with leases, 512 tasks, one key, limit never reached", 512, 1, ENDLESS),
    #[cfg(feature = "leases")]
    leased("lease-4-instances", "Redis with leases, 4 instances of 16 tasks, one key, 1 000 000/s", 16, 4, MILLION),
];

impl Case {
    const fn full_only(self) -> Self {
        Self { quick: false, ..self }
    }

    /// Returns whether the case needs a server.
    #[must_use]
    pub fn needs_redis(&self) -> bool {
        #[cfg(feature = "leases")]
        if matches!(self.how, How::Leased { .. }) {
            return true;
        }
        matches!(self.how, How::Load { .. } | How::Bytes { .. })
    }

    /// Returns whether other contestants take part.
    #[must_use]
    pub fn has_peers(&self) -> bool {
        !matches!(self.how, How::Waiting | How::Instructions)
    }
}

/// Returns the cases of these names, in the order of the report, and the names that no case has.
#[must_use]
pub fn named(names: &[String]) -> (Vec<Case>, Vec<&String>) {
    let unknown = names.iter().filter(|name| ALL.iter().all(|case| case.name != *name)).collect();
    (ALL.into_iter().filter(|case| names.iter().any(|name| name == case.name)).collect(), unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_unknown_ones_are_returned() {
        let names: Vec<_> = ALL.iter().map(|case| case.name.to_owned()).collect();
        let (all, unknown) = named(&names);
        assert_eq!((all.len(), unknown.len()), (ALL.len(), 0));
        let mut sorted = names.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), ALL.len());
        let names = ["nonsense".to_owned(), "tasks-1".to_owned()];
        let (some, unknown) = named(&names);
        assert_eq!((some.len(), unknown), (1, vec![&names[0]]));
    }
}
