//! The activity of all limiters, as a reader of the stream has it.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::counters::ActivityCounts;
use super::entry::{ActivityEntry, KeyKind, KeyLine, RuleLine, shortened};
use crate::store::redis::{StreamId, StreamPart};

/// The activity of all limiters that share a store, as far as it was read by
/// [`Limiter::activity`](crate::Limiter::activity).
///
/// A new log reads what the stream has: the last 15 minutes, or less of a busy fleet. Each further call reads what has come
/// since. A limiter is left out 15 minutes after its last entry. Times are those of the server, whatever the clocks of the
/// programs are.
///
/// All texts are those that other limiters have written. They may contain any characters, and so may those of others that
/// can write the stream. A log has at most 4 096 limiters and 200 000 rules and keys: those without an entry for the longest
/// time are left out.
#[derive(Clone, Debug, Default)]
pub struct ActivityLog {
    last: Option<StreamId>,
    now_millis: u64,
    limiters: BTreeMap<String, LimiterActivity>,
}

/// The activity of one limiter.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct LimiterActivity {
    /// The random id of the limiter, as in [`Instance`](crate::Instance): 16 hex digits.
    pub id: String,
    /// The name of [`Activity::new`](crate::Activity::new).
    pub name: String,
    /// The name of its host. `-` if it is unknown.
    pub host: String,
    /// The id of its process.
    pub pid: u32,
    /// The time of its last entry, by the clock of the server.
    pub last_seen: SystemTime,
    /// Its rules, by their names.
    pub rules: Vec<RuleActivity>,
    /// The keys that it denies most often, the most denied first.
    pub denied: Vec<KeyActivity>,
    /// The keys that it allows most often, the most allowed first.
    pub allowed: Vec<KeyActivity>,
}

/// The decisions of one limiter by a rule.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct RuleActivity {
    /// The name of the rule: of one with more than 100 bytes the beginning, `~` and a digest. `-` for direct calls, `(others)` for rules above 3 072.
    pub rule: String,
    /// The decisions since the start of the limiter.
    pub total: ActivityCounts,
    /// The time of its last entry, by the clock of the server.
    pub last_seen: SystemTime,
    /// The entries of the last minute, the newest last: the time of each, the time in which its calls were decided, both in
    /// milliseconds, and their number.
    recent: VecDeque<(u64, u64, ActivityCounts)>,
    /// The denials of its keys that its total does not have yet.
    ahead: u64,
    /// The time at which the log was read.
    read_at: SystemTime,
}

/// The decisions about one key by one limiter.
///
/// The counts are of a space-saving sketch: the true number is at most `count`, and at least `count - error`, less what was
/// lost where threads met.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq)]
pub struct KeyActivity {
    /// The name of the rule, as in [`RuleActivity`].
    pub rule: String,
    /// The key as Redis has it: encoded, or a digest with `hash_keys`.
    pub key: String,
    /// The decisions about the key since the start of the limiter.
    pub count: u64,
    /// The part of `count` that may be of other keys.
    pub error: u64,
    /// The time of its last entry, by the clock of the server.
    pub last_seen: SystemTime,
}

/// Denials that one limiter has written in one entry: those of a key, or of a rule's keys that are not known.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq)]
pub struct DenialBurst {
    /// The time of the entry, by the clock of the server.
    pub at: SystemTime,
    /// The id of the limiter.
    pub limiter: String,
    /// The name of [`Activity::new`](crate::Activity::new).
    pub name: String,
    /// The name of its host.
    pub host: String,
    /// The id of its process.
    pub pid: u32,
    /// The name of the rule.
    pub rule: String,
    /// The key as Redis has it. `None` for all keys that are not among the most denied ones.
    pub key: Option<String>,
    /// The denials since the entry before.
    pub denials: u64,
}

/// Shows no key.
impl fmt::Debug for KeyActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, key: _, count, error, last_seen } = self;
        let mut debug = f.debug_struct("KeyActivity");
        debug.field("rule", rule).field("count", count).field("error", error).field("last_seen", last_seen);
        debug.finish_non_exhaustive()
    }
}

/// Shows no key.
impl fmt::Debug for DenialBurst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, limiter, name, host, pid, rule, key: _, denials } = self;
        let mut debug = f.debug_struct("DenialBurst");
        debug.field("at", at).field("limiter", limiter).field("name", name).field("host", host).field("pid", pid);
        debug.field("rule", rule).field("denials", denials).finish_non_exhaustive()
    }
}

/// The most limiters of a log.
const MAX_LIMITERS: usize = 4096;
/// The most rules and keys of all limiters of a log.
const MAX_ITEMS: usize = 200_000;
/// The most rules of one limiter, and the most keys of each kind.
const MAX_RULES: usize = 4096;
const MAX_KEYS: usize = 200;
/// The time after its last entry at which a limiter is left out.
const MAX_AGE: Duration = Duration::from_millis(MAX_AGE_MILLIS);
const MAX_AGE_MILLIS: u64 = 15 * 60 * 1_000;
/// The time of which a rate is made, if entries come so often.
const RATE_WINDOW_MILLIS: u64 = 5_000;
/// The time for which the additions of entries are kept, and the most of them.
const RECENT_MILLIS: u64 = 60_000;
const MAX_RECENT: usize = 64;

impl ActivityLog {
    /// Creates an empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The limiters, in the order of their ids.
    pub fn limiters(&self) -> impl Iterator<Item = &LimiterActivity> {
        self.limiters.values()
    }

    /// Returns the name that a log has for a rule: of one with more than 100 bytes the beginning, `~` and a digest.
    #[must_use]
    pub fn name_of_rule(name: &str) -> Cow<'_, str> {
        shortened(name)
    }

    /// The time at which the log was read last, by the clock of the server. The Unix epoch before that.
    #[must_use]
    pub fn read_at(&self) -> SystemTime {
        time(self.now_millis)
    }

    /// The last entry that was read.
    pub(crate) fn last(&self) -> Option<StreamId> {
        self.last
    }

    /// Adds entries that were read after the last ones, and returns their denials in the order of time.
    pub(crate) fn add(&mut self, part: StreamPart) -> Vec<DenialBurst> {
        let StreamPart { now_millis, entries, last } = part;
        self.now_millis = now_millis.max(self.now_millis);
        // An id that is far ahead of the server's time is no time: the next entry of a limiter removes the stream with it, and
        // those of the new stream are behind it.
        let latest = self.now_millis.saturating_add(MAX_AGE_MILLIS);
        let of_entries = entries.iter().map(|(id, _)| *id).chain(last);
        self.last = of_entries.filter(|id| id.millis <= latest).max().max(self.last);
        let mut bursts = Vec::new();
        for (id, text) in entries.into_iter().filter(|(id, _)| id.millis <= latest) {
            let at_millis = id.millis.min(self.now_millis);
            if let Some(entry) = ActivityEntry::parse(&text) {
                self.add_entry(entry, at_millis, &mut bursts);
            }
        }
        self.leave_out_old();
        bursts
    }

    fn add_entry(&mut self, entry: ActivityEntry, at_millis: u64, bursts: &mut Vec<DenialBurst>) {
        if self.limiters.len() >= MAX_LIMITERS && !self.limiters.contains_key(&entry.id) {
            self.remove_oldest();
        }
        let ActivityEntry { id, host, pid, name, rules, keys } = entry;
        let at = time(at_millis);
        let limiter = self.limiters.entry(id).or_insert_with_key(|id| LimiterActivity {
            id: id.clone(),
            name: String::new(),
            host: String::new(),
            pid: 0,
            last_seen: at,
            rules: Vec::new(),
            denied: Vec::new(),
            allowed: Vec::new(),
        });
        (limiter.name, limiter.host, limiter.pid, limiter.last_seen) = (name, host, pid, at);
        let burst = |limiter: &LimiterActivity, rule: &str, key: Option<&str>, denials| DenialBurst {
            at,
            limiter: limiter.id.clone(),
            name: limiter.name.clone(),
            host: limiter.host.clone(),
            pid: limiter.pid,
            rule: rule.to_owned(),
            key: key.map(str::to_owned),
            denials,
        };
        let added: Vec<_> = rules.iter().map(|rule| limiter.add_rule(rule, at_millis).denied).collect();
        let mut of_keys = vec![0_u64; rules.len()];
        for key in &keys {
            let rule = &rules[key.rule].rule;
            let added = limiter.add_key(key, rule, at);
            if key.kind == KeyKind::Denied && added > 0 {
                of_keys[key.rule] = of_keys[key.rule].saturating_add(added);
                bursts.push(burst(limiter, rule, Some(&key.key), added));
            }
        }
        for ((rule, added), of_keys) in rules.iter().zip(added).zip(of_keys) {
            let unknown = limiter.unknown_denials(&rule.rule, added, of_keys);
            if unknown > 0 {
                bursts.push(burst(limiter, &rule.rule, None, unknown));
            }
        }
        limiter.sort_keys();
    }

    fn leave_out_old(&mut self) {
        let (now, read_at) = (self.now_millis, time(self.now_millis));
        self.limiters.retain(|_, limiter| read_at.duration_since(limiter.last_seen).is_ok_and(|age| age <= MAX_AGE));
        for rule in self.limiters.values_mut().flat_map(|limiter| &mut limiter.rules) {
            rule.read_at = read_at;
            let is_old = |(at_millis, ..): &(u64, u64, ActivityCounts)| now - now.min(*at_millis) > RECENT_MILLIS;
            while rule.recent.len() > 1 && rule.recent.front().is_some_and(is_old) {
                rule.recent.pop_front();
            }
        }
        let items = |limiter: &LimiterActivity| limiter.rules.len() + limiter.denied.len() + limiter.allowed.len();
        while self.limiters.values().map(items).sum::<usize>() > MAX_ITEMS {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        let oldest = self.limiters.values().min_by_key(|limiter| limiter.last_seen).map(|limiter| limiter.id.clone());
        oldest.into_iter().for_each(|id| drop(self.limiters.remove(&id)));
    }
}

impl LimiterActivity {
    /// Sets the totals of a rule, and returns what they have added.
    fn add_rule(&mut self, line: &RuleLine, at_millis: u64) -> ActivityCounts {
        let RuleLine { rule, millis, total, added } = line;
        let at = time(at_millis);
        let recent = (at_millis, *millis, *added);
        match self.rules.binary_search_by(|known| known.rule.cmp(rule)) {
            Ok(place) => {
                let known = &mut self.rules[place];
                let since_last = *total - known.total;
                (known.total, known.last_seen) = (*total, at);
                known.recent.push_back(recent);
                if known.recent.len() > MAX_RECENT {
                    known.recent.pop_front();
                }
                since_last
            }
            Err(place) if self.rules.len() < MAX_RULES => {
                let (rule, recent) = (rule.clone(), VecDeque::from([recent]));
                self.rules
                    .insert(place, RuleActivity { rule, total: *total, last_seen: at, recent, ahead: 0, read_at: at });
                *added
            }
            Err(_) => ActivityCounts::default(),
        }
    }

    /// Sets the count of a key, and returns what it has added.
    fn add_key(&mut self, line: &KeyLine, rule: &str, at: SystemTime) -> u64 {
        let KeyLine { kind, key, total, added, error, .. } = line;
        let keys = match kind {
            KeyKind::Denied => &mut self.denied,
            KeyKind::Allowed => &mut self.allowed,
        };
        let new = KeyActivity { rule: rule.to_owned(), key: key.clone(), count: *total, error: *error, last_seen: at };
        match keys.iter_mut().find(|known| known.key == *key && known.rule == rule) {
            Some(known) => {
                // Of a counter that the key has got again, the error is of others.
                let before = known.count.max(*error);
                *known = new;
                total.saturating_sub(before)
            }
            None => {
                keys.push(new);
                *added
            }
        }
    }

    /// Returns the denials of a rule in an entry that none of its keys has.
    fn unknown_denials(&mut self, rule: &str, added: u64, of_keys: u64) -> u64 {
        let Some(known) = self.rules.iter_mut().find(|known| known.rule == rule) else { return 0 };
        let beside = added.saturating_sub(known.ahead);
        let still_ahead = known.ahead.saturating_sub(added);
        known.ahead = still_ahead.saturating_add(of_keys.saturating_sub(beside));
        beside.saturating_sub(of_keys)
    }

    /// Sorts the keys, and leaves out the least ones above the bound.
    fn sort_keys(&mut self) {
        for keys in [&mut self.denied, &mut self.allowed] {
            keys.sort_by_key(|key| Reverse(key.count));
            keys.truncate(MAX_KEYS);
        }
    }
}

impl RuleActivity {
    /// Returns the calls a second of one count, such as `|counts| counts.denied`: over the last 5 s, or over the last entry
    /// if entries come less often. 0 if no call was decided in that time.
    #[must_use]
    pub fn per_second(&self, count: impl Fn(&ActivityCounts) -> u64) -> f64 {
        let Some((last_at, last_millis, _)) = self.recent.back().copied() else { return 0.0 };
        let (now, usual) = (millis(self.read_at), last_millis.clamp(1_000, RECENT_MILLIS * 15));
        let age = now.saturating_sub(last_at);
        if age > (2 * usual).max(RATE_WINDOW_MILLIS) {
            return 0.0;
        }
        // While the next entry is not late, the time behind the last one is not known.
        let end = if age > usual + usual / 2 { now } else { last_at };
        let (mut added, mut time) = (0_u64, 0_u64);
        for (at_millis, millis, recent) in self.recent.iter().rev() {
            if time >= RATE_WINDOW_MILLIS {
                break;
            }
            added = added.saturating_add(count(recent));
            time = end.saturating_sub(*at_millis).saturating_add(*millis);
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = added as f64 * 1_000.0 / time.max(1) as f64;
        rate
    }
}

fn millis(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// The latest time that is shown, in milliseconds: beyond any that a server has.
const MAX_MILLIS: u64 = 1_000_000_000_000_000;

fn time(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis.min(MAX_MILLIS))
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;

    fn part(now_millis: u64, ids: &[&str]) -> StreamPart {
        let id = |id: &str| StreamId::parse(id.as_bytes()).expect("an id");
        let text = |id: &str| format!("1 0123456789abcdef web-1 12 test\nr search 1000 d{}+1\n", id.len()).into_bytes();
        let entries: Vec<_> = ids.iter().map(|text_of| (id(text_of), text(text_of))).collect();
        let last = entries.iter().map(|(id, _)| *id).max();
        StreamPart { now_millis, entries, last }
    }

    /// Limiters remove such a stream. The ids of the next one are behind that of the old one, and no reader saw them.
    #[test]
    fn an_id_of_the_far_future_hides_no_later_entry() {
        let mut log = ActivityLog::new();
        let now = 1_800_000_000_000;
        assert_eq!(log.add(part(now, &["1799999999999-0", "99999999999999-0"])).len(), 1);
        assert_eq!(log.last().map(|id| id.to_string()).as_deref(), Some("1799999999999-0"));
        // A clock that a failover has set back is no such id.
        log.add(part(now, &["1800000060000-0"]));
        assert_eq!(log.last().map(|id| id.to_string()).as_deref(), Some("1800000060000-0"));
    }
}
