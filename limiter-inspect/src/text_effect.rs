//! The effect of a text of rules in words: which limit which keys get.
//!
//! What the texts leave out is taken from the limiters that live. So the windows of the source are known too.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rate_limited::{Algorithm, Layout, Limit};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, value};

use crate::fleet::{Fleet, LiveLimits, LiveRule};
use crate::new_counts::{NewCounts, new_counts};
use crate::rule_settings::{OverrideKeys, limits, overrides};
use crate::rule_words::{Settings, keys_in_words, other_changes};

/// The most changes that are listed.
const MAX_CHANGES: usize = 100;

/// A change for some keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitChange {
    /// The keys, such as ``all keys of `user:{user_id}` ``.
    pub keys: String,
    /// The limits and the mode that apply to them now.
    pub before: String,
    /// The limits and the mode after the publication.
    pub after: String,
    /// Returns whether each of the keys has its full quota again.
    pub starts_new_counts: bool,
}

/// The effect of a text in place of another one.
#[derive(Debug, Default)]
pub struct TextEffect {
    /// The changes for keys, at most 100.
    pub changes: Vec<LimitChange>,
    /// The changes that are left out.
    pub left_out: usize,
    /// The rules whose counts begin anew.
    pub new_counts: Vec<NewCounts>,
}

impl TextEffect {
    /// Compares two texts of rules. A text that is no TOML has no rules. Without the limiters that live the limits of the
    /// source are unknown.
    #[must_use]
    pub fn of(fleet: Option<&Fleet>, old: &str, new: &str) -> Self {
        let Ok(mut new) = new.parse::<DocumentMut>() else { return Self::default() };
        let mut old = old.parse::<DocumentMut>().unwrap_or_default();
        let names: BTreeSet<String> = [&old, &new].into_iter().flat_map(|document| names(document, "rules")).collect();
        if let Some(fleet) = fleet {
            for name in &names {
                if let Some((most, _)) = fleet.rule(name).and_then(LiveRule::by_limiters) {
                    complete(&mut old, &mut new, name, most);
                }
            }
        }
        let mut effect = Self { new_counts: new_counts(fleet, &old, &new), ..Self::default() };
        for name in &names {
            of_rule(name, find(&old, "rules", name), find(&new, "rules", name), &mut effect);
        }
        for kind in ["plans", "defaults"] {
            of_others(kind, &old, &new, &mut effect);
        }
        effect
    }

    /// Adds a change, if there is room for it.
    fn add(&mut self, change: impl FnOnce() -> Option<LimitChange>) {
        if self.changes.len() < MAX_CHANGES {
            self.changes.extend(change());
        } else {
            self.left_out += 1;
        }
    }
}

fn names(document: &DocumentMut, kind: &str) -> Vec<String> {
    let tables = document.get(kind).and_then(Item::as_table_like).into_iter().flat_map(TableLike::iter);
    tables.filter(|(_, item)| item.is_table_like()).map(|(name, _)| name.to_owned()).collect()
}

fn find<'t>(document: &'t DocumentMut, kind: &str, name: &str) -> Option<&'t dyn TableLike> {
    document.get(kind)?.as_table_like()?.get(name)?.as_table_like()
}

/// Adds what limiters have of a rule to both texts where the old one leaves it to the source, or to a level below.
pub(crate) fn complete(old: &mut DocumentMut, new: &mut DocumentMut, name: &str, live: &LiveLimits) {
    let lacks = |field: &str| find(old, "rules", name).is_none_or(|rule| rule.get(field).is_none());
    let has_algorithm = find(old, "rules", name)
        .is_some_and(|rule| limits(rule).iter().any(|limit| limit.algorithm.is_some() || limit.layout.is_some()));
    let mut fields: Vec<(&str, Item)> = Vec::new();
    let is_read = live.unread.is_empty() && !live.limits.is_empty();
    if is_read && lacks("limit") && lacks("limits") {
        fields.push(("limits", value(live.limits.iter().map(Limit::to_string).collect::<Array>())));
    }
    let mut counted = live.limits.iter().filter(|limit| !is_in_text(limit));
    if let Some(first) = counted.next()
        && is_read
        && !has_algorithm
        && counted.all(|limit| (limit.algorithm(), limit.layout()) == (first.algorithm(), first.layout()))
    {
        let layout = if first.layout() == Layout::Zset { "zset" } else { "compact" };
        let algorithm = first.algorithm().to_string();
        fields.extend(
            [("algorithm", value(algorithm)), ("layout", value(layout))].into_iter().filter(|(field, _)| lacks(field)),
        );
    }
    if let Some(buckets) = live.packed.filter(|_| lacks("packed")) {
        fields.push(("packed", value(i64::from(buckets))));
    }
    if let Some(block) = live.block.as_ref().filter(|_| lacks("block")) {
        fields.push(("block", value(block)));
    }
    if lacks("mode") {
        fields.push(("mode", value(live.mode.as_str())));
    }
    for document in [old, new] {
        let rules = document.entry("rules").or_insert(Item::Table(Table::new()));
        let Some(rules) = rules.as_table_like_mut() else { continue };
        let rule = rules.entry(name).or_insert(value(InlineTable::new()));
        let Some(rule) = rule.as_table_like_mut() else { continue };
        let own: Vec<_> = limits(rule).iter().map(|limit| limit.algorithm.is_some()).collect();
        for (field, item) in &fields {
            let is_set = rule.get(field).is_some()
                || (*field == "limits" && !own.is_empty())
                || (*field == "algorithm" && own.contains(&true));
            if !is_set {
                rule.insert(field, item.clone());
            }
        }
    }
}

/// Returns whether the text of a limit has its algorithm.
fn is_in_text(limit: &Limit) -> bool {
    matches!(limit.algorithm(), Algorithm::Concurrent | Algorithm::Calendar)
}

fn of_rule(name: &str, old: Option<&dyn TableLike>, new: Option<&dyn TableLike>, effect: &mut TextEffect) {
    let (old_rule, new_rule) = (RuleSettings::of(old), RuleSettings::of(new));
    let all = if new_rule.overrides.is_empty() { "all keys" } else { "all other keys" };
    if old_rule.base != new_rule.base {
        effect.add(|| change(format!("{all} of `{name}`"), &old_rule.base, &new_rule.base));
    }
    let others = other_changes(old, new);
    if !others.is_empty() {
        let list = others.into_iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", ");
        effect.add(|| {
            let (keys, after) = (format!("other settings of `{name}`"), format!("{list} changes"));
            Some(LimitChange { keys, before: String::new(), after, starts_new_counts: false })
        });
    }
    let all: BTreeSet<_> = old_rule.overrides.keys().chain(new_rule.overrides.keys()).collect();
    for keys in all {
        // A change of the rule for all keys has a line of its own.
        if old_rule.overrides.get(keys) != new_rule.overrides.get(keys) {
            let text = || format!("{} of `{name}`", keys_in_words(keys));
            effect.add(|| change(text(), &old_rule.for_keys(keys), &new_rule.for_keys(keys)));
        }
    }
}

/// The settings of a rule in one text.
struct RuleSettings {
    base: Settings,
    overrides: BTreeMap<OverrideKeys, Settings>,
}

impl RuleSettings {
    fn of(rule: Option<&dyn TableLike>) -> Self {
        let mut own = BTreeMap::new();
        for table in rule.map(overrides).unwrap_or_default() {
            if let Some(keys) = OverrideKeys::of(table) {
                own.entry(keys).or_insert_with(|| Settings::of(table));
            }
        }
        Self { base: rule.map(Settings::of).unwrap_or_default(), overrides: own }
    }

    /// Returns the settings of an override's keys: its own, or those of an override that has them among others.
    fn for_keys(&self, keys: &OverrideKeys) -> Settings {
        let among = || {
            let wider = self.overrides.iter().filter(|(other, _)| has_among(other, keys));
            wider.max_by_key(|(other, _)| parts_of(other).len()).map(|(_, settings)| settings)
        };
        let found = self.overrides.get(keys).or_else(among);
        found.map_or_else(|| self.base.clone(), |settings| settings.clone().over(&self.base))
    }
}

fn parts_of(keys: &OverrideKeys) -> &[(String, Vec<String>)] {
    match keys {
        OverrideKeys::Parts(parts) => parts,
        OverrideKeys::Key(_) => &[],
    }
}

/// Returns whether the keys of an override of single values are among those of another one.
fn has_among(other: &OverrideKeys, keys: &OverrideKeys) -> bool {
    let has = |(name, values): &(String, Vec<String>)| {
        let own = parts_of(keys).iter().find(|(own, _)| own == name);
        own.is_some_and(|(_, own)| matches!(&own[..], [own] if values.iter().any(|value| value_has(value, own))))
    };
    !parts_of(other).is_empty() && parts_of(other).iter().all(has)
}

/// Returns whether a value of an override is a text, a beginning of it, or a network that has it.
fn value_has(value: &str, text: &str) -> bool {
    let is_beginning = value.strip_suffix('*').is_some_and(|start| text.starts_with(start));
    value == text || is_beginning || is_in_network(value, text).unwrap_or(false)
}

fn is_in_network(network: &str, address: &str) -> Option<bool> {
    let (start, prefix) = network.split_once('/')?;
    let bits = |text: &str| {
        text.parse::<IpAddr>().ok().map(|address| match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        })
    };
    let ((start, length), (address, own), prefix) = (bits(start)?, bits(address)?, prefix.parse::<u32>().ok()?);
    Some(length == own && prefix <= own && (start ^ address).leading_zeros() >= prefix)
}

/// Returns the change from some settings to others, if keys get other limits by it.
fn change(keys: String, before: &Settings, after: &Settings) -> Option<LimitChange> {
    let has_same_algorithm = before.has_same_algorithm(after);
    if before.is_same(after) && has_same_algorithm {
        return None;
    }
    let words = |settings: &Settings| match has_same_algorithm {
        true => settings.in_words(),
        false => format!("{}, {}", settings.in_words(), settings.algorithm_in_words()),
    };
    let starts_new_counts = before.starts_new_counts(after);
    Some(LimitChange { keys, before: words(before), after: words(after), starts_new_counts })
}

/// Adds the plans that change, or the fields of the defaults.
fn of_others(kind: &str, old: &DocumentMut, new: &DocumentMut, effect: &mut TextEffect) {
    let table = |document: &DocumentMut| {
        document.get(kind).and_then(Item::as_table_like).map(|table| {
            table
                .iter()
                .map(|(name, item)| (name.to_owned(), item.to_string().trim().to_owned()))
                .collect::<BTreeSet<_>>()
        })
    };
    let (old_fields, new_fields) = (table(old).unwrap_or_default(), table(new).unwrap_or_default());
    let names: BTreeSet<_> = old_fields.symmetric_difference(&new_fields).map(|(name, _)| name.clone()).collect();
    for name in names {
        let text = |document: &DocumentMut| match find(document, kind, &name) {
            Some(plan) => Settings::of(plan).in_words(),
            None => {
                let field = document.get(kind).and_then(|table| table.get(&name));
                field.map_or_else(|| "none".to_owned(), |item| item.to_string().trim().to_owned())
            }
        };
        effect.add(|| {
            let keys = match kind {
                "plans" => format!("customers of the plan `{name}`"),
                _ => format!("`{name}` of rules without one"),
            };
            Some(LimitChange { keys, before: text(old), after: text(new), starts_new_counts: false })
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn changes(fleet: Option<&Fleet>, old: &str, new: &str) -> Vec<String> {
        let text = |change: LimitChange| {
            let note = if change.starts_new_counts { "; new counts" } else { "" };
            format!("{}: {} -> {}{note}", change.keys, change.before, change.after)
        };
        TextEffect::of(fleet, old, new).changes.into_iter().map(text).collect()
    }

    fn live(limits: &str) -> Fleet {
        Fleet::of_inventory(&format!(
            r#"{{"rule":"a","keys":["a:{{b}}"],"limits":[{limits}],"mode":"enforce","origin":"attribute"}}"#
        ))
    }

    #[test]
    fn a_change_says_which_keys_get_which_limit() {
        let rule = |fields: &str| format!("[rules.a]\n{fields}\n");
        let of = |keys: &str, fields: &str| format!("[[rules.a.override]]\nmatch = {{ b = '{keys}' }}\n{fields}\n");
        let base = rule("limit = '5/10s'");
        for (old, new, expected) in [
            (&*base, rule("limit = '100/10s'"), &["all keys of `a`: 5/10s -> 100/10s"][..]),
            (&base, rule("limit = '5/10000ms' # same"), &[]),
            (&base, rule("limit = '5/min'"), &["all keys of `a`: 5/10s -> 5/min; new counts"]),
            (&base, rule("limit = '5/10s'\nmode = 'deny'"), &["all keys of `a`: 5/10s -> each call is denied"]),
            (&base, rule("limit = '5/10s'\nburst = 3"), &["other settings of `a`:  -> `burst` changes"]),
            (&base, format!("{base}{}", of("7", "limit = '9/10s'")), &["`b` = 7 of `a`: 5/10s -> 9/10s"]),
            (&base, format!("{base}{}", of("7", "limit = '9/h'")), &["`b` = 7 of `a`: 5/10s -> 9/h; new counts"]),
            (&base, String::new(), &["all keys of `a`: 5/10s -> the limit of the source"]),
            (
                "[plans.pro]\nlimit = '5/d'\n",
                "[plans.pro]\nlimit = '9/d'\n".to_owned(),
                &["customers of the plan `pro`: 5/d -> 9/d"],
            ),
            ("", "[defaults]\nmode = 'shadow'\n".to_owned(), &["`mode` of rules without one: none -> \"shadow\""]),
        ] {
            let expected: Vec<_> = expected.iter().map(|text| text.replace("\"shadow\"", "'shadow'")).collect();
            assert_eq!(changes(None, old, &new), expected, "{new}");
        }
        let with = format!("{base}{}", of("7", "limit = '9/10s'"));
        assert_eq!(changes(None, &with, &base), ["`b` = 7 of `a`: 9/10s -> 5/10s"]);
        let wider = format!("{base}{}{}", of("4*", "limit = '9/10s'"), of("10.0.0.0/8", "limit = '8/10s'"));
        for (key, before) in [("47", "9/10s"), ("10.1.2.3", "8/10s"), ("11.1.2.3", "5/10s")] {
            let new = format!("{wider}{}", of(key, "limit = '7/10s'"));
            assert_eq!(changes(None, &wider, &new), [format!("`b` = {key} of `a`: {before} -> 7/10s")]);
        }
        let both = rule("limit = '6/10s'") + &of("7", "limit = '9/10s'");
        assert_eq!(changes(None, &with, &both), ["all other keys of `a`: 5/10s -> 6/10s"]);
    }

    #[test]
    fn the_effect_of_many_overrides_takes_a_time_in_proportion() {
        let text = |first: usize| -> String {
            let one = |number| format!("[[rules.a.override]]\nmatch = {{ b = '{number}' }}\nlimit = '5/s'\n");
            (first..first + 20_000).map(one).collect()
        };
        let began = Instant::now();
        let effect = TextEffect::of(None, &text(0), &text(20_000));
        assert_eq!((effect.changes.len(), effect.left_out), (100, 39_900));
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[test]
    fn the_limits_of_the_source_are_those_of_the_limiters_that_live() {
        let fleet = live(r#""5/10s""#);
        let effect = |new: &str| changes(Some(&fleet), "", new);
        assert_eq!(effect("[rules.a]\nlimit = '100/10s'\n"), ["all keys of `a`: 5/10s -> 100/10s"]);
        assert_eq!(effect("[rules.a]\nlimit = '100/min'\n"), ["all keys of `a`: 5/10s -> 100/min; new counts"]);
        assert_eq!(
            effect("[[rules.a.override]]\nmatch = { b = '7' }\nlimit = '9/10s'\n"),
            ["`b` = 7 of `a`: 5/10s -> 9/10s"]
        );
        assert_eq!(effect("[rules.a]\nlimit = '5/10s'\nalgorithm = 'sliding_window'\n"), [""; 0]);
        assert_eq!(effect("[rules.b]\nlimit = '5/10s'\n"), ["all keys of `b`: the limit of the source -> 5/10s"]);
        let notes = |new: &str| TextEffect::of(Some(&fleet), "", new).new_counts;
        assert!(notes("[rules.a]\nlimit = '100/10s'\n").is_empty());
        let [note] = &notes("[rules.a]\nlimit = '100/min'\n")[..] else { panic!("a note") };
        assert!(note.is_certain && note.message.ends_with("the window changes from 10 s to 1 min"), "{}", note.message);
        let bucket = live(r#"{"limit":"5/s","algorithm":"token_bucket","burst":9}"#);
        let new = "[rules.a]\nlimit = '6/s'\n";
        assert_eq!(changes(Some(&bucket), "", new), ["all keys of `a`: 5/s -> 6/s"]);
        assert!(TextEffect::of(Some(&bucket), "", new).new_counts.is_empty());
    }

    #[test]
    fn a_change_of_packed_counts_starts_new_ones() {
        let rule = |fields: &str| format!("[rules.a]\nlimit = '5/10s'\n{fields}\n");
        let of = |fields: &str| rule(&format!("[[rules.a.override]]\nmatch = {{ b = '7' }}\n{fields}"));
        let packed = "5/10s, packed = 16384";
        for (old, new, expected) in [
            (rule(""), rule("packed = 16384"), format!("all keys of `a`: 5/10s -> {packed}; new counts")),
            (rule("packed = 16384"), rule(""), format!("all keys of `a`: {packed} -> 5/10s; new counts")),
            (rule(""), of("packed = 16384"), format!("`b` = 7 of `a`: 5/10s -> {packed}; new counts")),
        ] {
            assert_eq!(changes(None, &old, &new), [expected], "{new}");
        }
        let packed_plan = "[plans.pro]\nlimit = '5/d'\npacked = 16384\n";
        assert_eq!(
            changes(None, "[plans.pro]\nlimit = '5/d'\n", packed_plan),
            ["customers of the plan `pro`: 5/d -> 5/d, packed = 16384"]
        );
        // A text without the setting leaves it to the level below.
        let fleet = Fleet::of_inventory(
            r#"{"rule":"a","keys":["a:{b}"],"limits":["5/10s"],"mode":"enforce","origin":"file","packed":16384}"#,
        );
        let effect = |new: &str| changes(Some(&fleet), "", new);
        assert_eq!(effect("[rules.a]\npacked = 16384\n"), [""; 0]);
        assert_eq!(
            effect("[rules.a]\nlimit = '6/10s'\n"),
            [format!("all keys of `a`: {packed} -> 6/10s, packed = 16384")]
        );
        let other = "[rules.a]\npacked = 32768\n";
        assert_eq!(effect(other), [format!("all keys of `a`: {packed} -> 5/10s, packed = 32768; new counts")]);
        let notes = |fleet: &Fleet, new: &str| TextEffect::of(Some(fleet), "", new).new_counts.len();
        assert_eq!((notes(&fleet, other), notes(&fleet, "[rules.a]\npacked = 16384\n")), (1, 0));
        assert_eq!(notes(&live(r#""5/10s""#), other), 1);
    }

    #[test]
    fn a_block_that_limiters_have_changes_with_its_meaning_alone() {
        let line =
            r#"{"rule":"a","keys":["a:{b}"],"limits":["5/10s"],"mode":"enforce","origin":"attribute","block":"10m"}"#;
        let fleet = Fleet::of_inventory(line);
        let effect = |block: &str| changes(Some(&fleet), "", &format!("[rules.a]\nblock = {block}\n"));
        for same in ["'10m'", "\"10min\"", "'600s'"] {
            assert_eq!(effect(same), [""; 0], "{same}");
        }
        assert_eq!(effect("'11m'"), ["other settings of `a`:  -> `block` changes"]);
    }
}
