//! The entries of a limiter: what has changed since the last one that the store has.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::vec;

use super::counters::ActivityCounts;
use super::entry::{EntryText, KeyKind, KeyLine, RuleLine};
use super::sketch::{KeyCounter, SpaceSaving};
use super::{Recorder, TopKeys};
use crate::store::redis::ActivitySource;

/// The totals of a limiter as the store has them.
pub(super) struct Publication {
    rules: BTreeMap<&'static str, WrittenRule>,
    /// The rules of the last entry with their totals, while its reply is not known.
    pending_rules: Vec<(&'static str, ActivityCounts)>,
    /// The keys of that entry by their identities in the sketches, with their counts.
    pending_keys: Vec<(KeyKind, u64, u64)>,
    /// The number of entries so far.
    entries: u64,
    /// The last time at which the totals were read.
    read_at: Instant,
}

/// The totals of a rule in the store.
struct WrittenRule {
    total: ActivityCounts,
    /// The number of the entry that has them.
    entry: u64,
    /// The last time at which they were those of the limiter.
    held_until: Instant,
}

impl Publication {
    /// Creates that of a limiter which begins to count now.
    pub(super) fn new() -> Self {
        let (pending_rules, pending_keys) = (Vec::new(), Vec::new());
        Self { rules: BTreeMap::new(), pending_rules, pending_keys, entries: 0, read_at: Instant::now() }
    }

    /// Returns the rules with other totals than the store has, those first that were written longest ago: rules that have no
    /// room in an entry come in a later one.
    fn changed_rules(&mut self, totals: BTreeMap<&'static str, ActivityCounts>) -> Vec<(&'static str, RuleLine)> {
        let now = Instant::now();
        let mut changed = Vec::new();
        for (rule, total) in totals {
            let new = WrittenRule { total: ActivityCounts::default(), entry: 0, held_until: self.read_at };
            let written = self.rules.entry(rule).or_insert(new);
            if written.total == total {
                written.held_until = now;
                continue;
            }
            let millis = u64::try_from(now.duration_since(written.held_until).as_millis()).unwrap_or(u64::MAX);
            let (added, name) = (total - written.total, rule.to_owned());
            changed.push((written.entry, rule, RuleLine { rule: name, millis, total, added }));
        }
        self.read_at = now;
        changed.sort_by_key(|(entry, _, line)| (*entry, Reverse((line.added.denied, line.added.allowed))));
        changed.into_iter().map(|(_, rule, line)| (rule, line)).collect()
    }
}

impl ActivitySource for Recorder {
    fn interval(&self) -> Duration {
        self.options.entry_interval
    }

    fn next_entry(&self, place: &str, shown: &dyn Fn(&str) -> String) -> Option<String> {
        let mut publication = self.publication();
        // Rules before keys, which are counted in the other order: what a key has beyond its rule, the rule has in the next entry.
        let rules = publication.changed_rules(self.totals());
        if rules.is_empty() {
            return None;
        }
        let mut lists = self.keys.as_ref().map_or_else(Vec::new, |keys| {
            [KeyKind::Denied, KeyKind::Allowed].map(|kind| (kind, self.changed_keys(sketch_of(keys, kind)))).into()
        });
        publication.pending_rules.clear();
        publication.pending_keys.clear();
        publication.entries += 1;
        let has_keys = lists.iter().any(|(_, list)| list.len() > 0);
        let mut entry = EntryText::new(place, &self.options.name, has_keys);
        let mut numbers = BTreeMap::new();
        for (rule, line) in rules {
            if let Some(number) = entry.add_rule(&line) {
                numbers.insert(rule, number);
                publication.pending_rules.push((rule, line.total));
            }
        }
        // Those of both kinds alternate, so that each has room.
        while lists.iter().any(|(_, list)| list.len() > 0) {
            for (kind, list) in &mut lists {
                let Some(counter) = list.next() else { continue };
                let Some(number) = numbers.get(counter.rule) else { continue };
                // What the counter has from other keys was not added to this one.
                let added = counter.count - counter.written.0.max(counter.error);
                let (key, total, error) = (shown(&counter.key), counter.count, counter.error);
                if entry.add_key(&KeyLine { kind: *kind, rule: *number, key, total, added, error }) {
                    publication.pending_keys.push((*kind, counter.id, total));
                }
            }
        }
        entry.finish()
    }

    fn confirm_entry(&self) {
        let mut publication = self.publication();
        let Publication { rules, pending_rules, pending_keys, entries, read_at } = &mut *publication;
        for (rule, total) in pending_rules.drain(..) {
            rules.insert(rule, WrittenRule { total, entry: *entries, held_until: *read_at });
        }
        if let Some(keys) = &self.keys {
            for (kind, id, total) in pending_keys.drain(..) {
                lock(sketch_of(keys, kind)).set_written(id, (total, *entries));
            }
        }
    }
}

fn sketch_of([denied, allowed]: &TopKeys, kind: KeyKind) -> &Mutex<SpaceSaving> {
    match kind {
        KeyKind::Denied => denied,
        KeyKind::Allowed => allowed,
    }
}

impl Recorder {
    fn publication(&self) -> MutexGuard<'_, Publication> {
        lock(&self.publication)
    }

    /// The totals of the rules that have any.
    fn totals(&self) -> BTreeMap<&'static str, ActivityCounts> {
        let mut totals = BTreeMap::<&'static str, ActivityCounts>::new();
        for rule in self.rules.iter() {
            let counted = rule.totals();
            if counted != ActivityCounts::default() {
                let total = totals.entry(rule.shown_name()).or_default();
                *total = *total + counted;
            }
        }
        totals
    }

    /// Returns the keys among the first with other counts than the store has, those first that were written longest ago.
    fn changed_keys(&self, sketch: &Mutex<SpaceSaving>) -> vec::IntoIter<KeyCounter> {
        let shown = usize::try_from(self.options.top_keys).unwrap_or(0);
        let mut keys = lock(sketch).top(shown);
        keys.retain(|counter| counter.count != counter.written.0);
        keys.sort_by_key(|counter| (counter.written.1, Reverse(counter.count)));
        keys.into_iter()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;
    use crate::activity::entry::ActivityEntry;
    use crate::{Activity, Key, KeyMatch, Limit, Limiter, Mode, Rule, RuleSet};

    const PLACE: &str = "0123456789abcdef web-1 12";

    fn limiter(top_keys: u32) -> Limiter {
        Limiter::builder().activity(Activity::new("test").top_keys(top_keys)).build().expect("valid")
    }

    fn next(limiter: &Limiter) -> Option<ActivityEntry> {
        let recorder = limiter.inside().observers.activity().expect("it is on");
        let text = recorder.next_entry(PLACE, &str::to_owned)?;
        Some(ActivityEntry::parse(text.as_bytes()).expect("an entry"))
    }

    fn confirm(limiter: &Limiter) {
        limiter.inside().observers.activity().expect("it is on").confirm_entry();
    }

    fn call(limiter: &Limiter, rule: &str, key: &str, times: u32) {
        let limit: Limit = "1/1h".parse().expect("a limit");
        for _ in 0..times {
            let _ = limiter.named(rule).check_blocking(&Key::new("user:").part(key), &limit).expect("in memory");
        }
    }

    #[test]
    fn an_entry_that_is_lost_loses_nothing() {
        let limiter = limiter(5);
        assert_eq!(next(&limiter), None);
        call(&limiter, "search", "a", 3);
        let first = next(&limiter).expect("something has changed");
        let counts = |entry: &ActivityEntry| (entry.rules[0].total.denied, entry.rules[0].added.denied);
        assert_eq!((first.rules[0].rule.as_str(), counts(&first)), ("search", (2, 2)));
        let keys = |entry: &ActivityEntry| -> Vec<_> {
            entry.keys.iter().map(|key| (key.kind, key.key.clone(), key.total, key.added)).collect()
        };
        let key = || "user:@a".to_owned();
        assert_eq!(keys(&first), [(KeyKind::Denied, key(), 2, 2), (KeyKind::Allowed, key(), 1, 1)]);
        // It is lost.
        call(&limiter, "search", "a", 5);
        let second = next(&limiter).expect("something has changed");
        assert_eq!((counts(&second), keys(&second)[0].clone()), ((7, 7), (KeyKind::Denied, key(), 7, 7)));
        confirm(&limiter);
        assert_eq!(next(&limiter), None);
        call(&limiter, "search", "a", 1);
        let third = next(&limiter).expect("something has changed");
        assert_eq!((counts(&third), keys(&third)), ((8, 1), vec![(KeyKind::Denied, key(), 8, 1)]));
    }

    /// A customer who is blocked had no key.
    #[test]
    fn a_call_that_a_mode_denies_has_its_key() {
        let deny = Rule::new().mode(Mode::Deny);
        let rule = Rule::new().limit("9/1h".parse().expect("a limit"));
        let rule = rule.overriding(KeyMatch::key(&Key::new("user:").part("a")), deny);
        let limiter = limiter(5);
        limiter.set_rules(RuleSet::new().rule("search", rule)).expect("valid");
        call(&limiter, "search", "a", 3);
        let entry = next(&limiter).expect("something has changed");
        let keys: Vec<_> = entry.keys.iter().map(|key| (key.kind, &*key.key, key.total)).collect();
        assert_eq!((entry.rules[0].total.denied, keys), (3, vec![(KeyKind::Denied, "user:@a", 3)]));
    }

    #[test]
    fn without_top_keys_no_key_is_kept() {
        let limiter = limiter(0);
        call(&limiter, "search", "a", 3);
        assert!(next(&limiter).expect("something has changed").keys.is_empty());
        assert!(limiter.inside().observers.activity().expect("it is on").keys.is_none());
    }

    #[test]
    fn rules_without_room_come_in_later_entries() {
        let limiter = limiter(2);
        for number in 0..300 {
            call(&limiter, &format!("a rule with a long name and the number {number}"), &number.to_string(), 2);
        }
        let mut written = BTreeMap::new();
        let mut entries = 0;
        while let Some(entry) = next(&limiter) {
            entries += 1;
            written.extend(entry.rules.into_iter().map(|rule| (rule.rule, rule.total.denied)));
            confirm(&limiter);
        }
        assert_eq!((written.len(), written.values().sum::<u64>()), (300, 300));
        assert!((5..20).contains(&entries), "{entries}");
    }
}
