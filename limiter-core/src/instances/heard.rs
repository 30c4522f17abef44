//! The numbers of live limiters that heartbeats have heard.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

use super::counters::{CounterFamilies, KeyShape, kind};
use crate::sync::{AtomicU64, Ordering, RwLock, read, write};
use crate::{Key, Limit};

/// The number of limiters with each inventory, by its digest.
pub(crate) type LiveCounts = BTreeMap<String, u32>;

/// The heartbeats after which a smaller number counts: a minute.
const KEPT_INTERVALS: u32 = 12;

/// The numbers of other limiters that one has heard.
///
/// A number rises when it is heard. It falls when only smaller ones were heard for a minute of connected time. So an outage, a
/// failover to an empty replica and a lost slot lower none.
#[derive(Debug)]
pub(crate) struct HeardInstances {
    interval: Duration,
    /// The most limiters of the prefix in a number that counts. 0 before the first one.
    most: AtomicU64,
    state: RwLock<HeardState>,
}

#[derive(Debug, Default)]
struct HeardState {
    /// The connected time so far.
    connected: Duration,
    /// The numbers that count, with the connected time at which each was heard first. The last one is the present.
    history: VecDeque<(Duration, LiveCounts)>,
    /// The counters of this limiter's own rules.
    own: CounterFamilies,
    /// Those of each inventory that was read.
    of_inventories: BTreeMap<String, CounterFamilies>,
    /// Numbers that were computed from these, by shape and kind.
    computed: HashMap<(KeyShape, u64), NonZeroU32>,
}

/// The most numbers that are kept computed.
const MAX_COMPUTED: usize = 10_000;

impl HeardInstances {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, most: AtomicU64::new(0), state: RwLock::default() }
    }

    /// The most limiters of the prefix. 0 before a number was heard.
    #[inline]
    pub(crate) fn most(&self) -> u32 {
        u32::try_from(self.most.load(Ordering::Relaxed)).unwrap_or(u32::MAX)
    }

    /// Sets the counters of this limiter's own rules, and those of its inventory.
    pub(crate) fn set_own(&self, inventory: &str, own: CounterFamilies) {
        let mut state = write(&self.state);
        state.of_inventories.insert(inventory.to_owned(), own.clone());
        state.own = own;
        state.computed.clear();
    }

    /// Hears how many limiters have each inventory, `passed` after the number before.
    pub(crate) fn hear(&self, counts: LiveCounts, passed: Duration) {
        let mut state = write(&self.state);
        // While it was cut off, or stood still, it has heard nothing.
        state.connected += passed.min(2 * self.interval);
        let now = state.connected;
        let numbers = state.history.len();
        let is_new = state.history.back().is_none_or(|(_, last)| *last != counts);
        if is_new {
            state.history.push_back((now, counts));
        }
        // A number counts until the next one is so old.
        while state.history.get(1).is_some_and(|(next, _)| now - *next >= KEPT_INTERVALS * self.interval) {
            state.history.pop_front();
        }
        if !is_new && state.history.len() == numbers {
            return;
        }
        let HeardState { history, of_inventories, .. } = &mut *state;
        of_inventories.retain(|inventory, _| history.iter().any(|(_, counts)| counts.contains_key(inventory)));
        let most = history.iter().map(|(_, counts)| total(counts)).max().unwrap_or(0);
        state.computed.clear();
        self.most.store(most, Ordering::Relaxed);
    }

    /// The inventories in the present number whose counters are unknown.
    pub(crate) fn unread(&self) -> Vec<String> {
        let state = read(&self.state);
        let present = state.history.back().into_iter().flat_map(|(_, counts)| counts.keys());
        present.filter(|inventory| !state.of_inventories.contains_key(*inventory)).cloned().collect()
    }

    /// Sets the counters of an inventory.
    pub(crate) fn set_counters(&self, inventory: &str, counters: CounterFamilies) {
        let mut state = write(&self.state);
        state.of_inventories.insert(inventory.to_owned(), counters);
        state.computed.clear();
    }

    /// The limiters that may count this key by this limit. All of the prefix for a key that no own rule makes.
    pub(super) fn sharing(&self, key: &Key, limit: &Limit) -> NonZeroU32 {
        let of_all = NonZeroU32::new(self.most()).unwrap_or(NonZeroU32::MIN);
        let (Some(shape), kind) = (KeyShape::of(key), kind(limit)) else { return of_all };
        let state = read(&self.state);
        if let Some(number) = state.computed.get(&(shape, kind)) {
            return *number;
        }
        let Some(rules) = state.own.rules_of(shape, kind) else { return of_all };
        drop(state);
        let mut state = write(&self.state);
        let number = state.sharing(shape, kind, &rules);
        if state.computed.len() < MAX_COMPUTED {
            state.computed.insert((shape, kind), number);
        }
        number
    }
}

impl HeardState {
    /// The most limiters of a number that counts whose inventory may have these counters, which own rules make.
    fn sharing(&self, shape: KeyShape, kind: u64, rules: &BTreeSet<u64>) -> NonZeroU32 {
        let may_count = |inventory: &str| {
            // One that was not read may have any.
            self.of_inventories.get(inventory).is_none_or(|counters| counters.may_count(shape, kind, rules))
        };
        let in_number = |counts: &LiveCounts| {
            counts
                .iter()
                .filter(|(inventory, _)| may_count(inventory))
                .map(|(_, number)| u64::from(*number))
                .sum::<u64>()
        };
        let most = self.history.iter().map(|(_, counts)| in_number(counts)).max().unwrap_or(0);
        NonZeroU32::new(u32::try_from(most).unwrap_or(u32::MAX)).unwrap_or(NonZeroU32::MIN)
    }
}

fn total(counts: &LiveCounts) -> u64 {
    counts.values().map(|number| u64::from(*number)).sum()
}
