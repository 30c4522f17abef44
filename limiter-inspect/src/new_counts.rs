//! Changes that start new counts: a counter belongs to a key, an algorithm and a window.

use std::collections::{BTreeMap, BTreeSet};

use rate_limited::Limit;
use toml_edit::{DocumentMut, Item, TableLike};

use crate::duration_text::write_duration;
use crate::fleet::{Fleet, LiveRule};
use crate::rule_settings::{LimitText, OverrideKeys, limits, overrides};

/// A rule whose counts begin anew when a text replaces another one.
#[derive(Debug, PartialEq, Eq)]
pub struct NewCounts {
    /// The sentence about it.
    pub message: String,
    /// Returns `false` if it depends on the limits in the source of a program.
    pub is_certain: bool,
}

/// The counters of a rule, apart from its keys. `None` is that of the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counters {
    limits: BTreeSet<(Option<String>, u128, Option<String>)>,
    algorithm: Option<String>,
    layout: Option<String>,
    /// The number of hashes that the counts share. A source has none.
    packed: Option<i64>,
}

/// Returns the rules whose counts begin anew. Of a rule that the old text lacks nothing is known but the number of hashes in the
/// limiters that live.
#[must_use]
pub fn new_counts(fleet: Option<&Fleet>, old: &DocumentMut, new: &DocumentMut) -> Vec<NewCounts> {
    let live = |name: &str| packed_in_most(fleet?.rule(name)?);
    let in_new = tables(new, "rules").filter_map(|(name, new)| match settings(old, "rules", name) {
        Some(old) => of_rule(name, Some(old), Some(new), live(name).flatten()),
        None => newly_packed(name, new, live(name)?),
    });
    let removed = tables(old, "rules").filter(|(name, _)| settings(new, "rules", name).is_none());
    let removed = removed.filter_map(|(name, old)| of_rule(name, Some(old), None, live(name).flatten()));
    let of_plans = tables(new, "plans").filter_map(|(name, plan)| {
        let old = settings(old, "plans", name)?;
        of_rule(&format!("plan {name}"), Some(old), Some(plan), None)
    });
    let mut found: Vec<_> = in_new.chain(removed).chain(of_plans).collect();
    // Those that need a confirmation first.
    found.sort_by_key(|counts| !counts.is_certain);
    found
}

/// Returns the tables below one at the top, in the order of the text.
fn tables<'t>(document: &'t DocumentMut, kind: &str) -> impl Iterator<Item = (&'t str, &'t dyn TableLike)> {
    let tables = document.get(kind).and_then(Item::as_table_like).into_iter().flat_map(TableLike::iter);
    tables.filter_map(|(name, table)| Some((name, table.as_table_like()?)))
}

/// Returns one of these tables by its name.
fn settings<'t>(document: &'t DocumentMut, kind: &str, name: &str) -> Option<&'t dyn TableLike> {
    document.get(kind)?.as_table_like()?.get(name)?.as_table_like()
}

/// The number of hashes that most limiters have for a rule, and `None` without a limiter.
fn packed_in_most(rule: &LiveRule) -> Option<Option<i64>> {
    rule.by_limiters().map(|(most, _)| most.packed.map(i64::from))
}

/// The keys of a rule that new counts begin for.
const OF_OVERRIDE: &str = " for the keys of an override";

/// `packed` is the number of hashes in the limiters that live.
fn of_rule(
    name: &str,
    old: Option<&dyn TableLike>,
    new: Option<&dyn TableLike>,
    packed: Option<i64>,
) -> Option<NewCounts> {
    let found = |keys: &str, old: &Counters, new: &Counters| {
        let (change, is_certain) = change(old, new)?;
        Some(NewCounts { message: message(name, keys, &change, is_certain), is_certain })
    };
    // A level below sets it if the old text does not.
    let below = packed.filter(|_| old.is_some_and(|old| !old.contains_key("packed")));
    let of = |rule, of_override| Counters::of(rule, of_override).packed_below(below);
    let base = found("", &of(old, None), &of(new, None));
    let (of_old, of_new) = (counters_of_overrides(old), counters_of_overrides(new));
    let find = |rule, of_overrides: &BTreeMap<OverrideKeys, Counters>, keys| of(rule, of_overrides.get(keys).cloned());
    let of_keys = of_new
        .keys()
        .chain(of_old.keys())
        .filter_map(|keys| found(OF_OVERRIDE, &find(old, &of_old, keys), &find(new, &of_new, keys)));
    // The first of those that are certain.
    base.into_iter().chain(of_keys).min_by_key(|counts| !counts.is_certain)
}

/// Returns the new counts of a rule that limiters have, and the old text lacks: those with another number of hashes.
fn newly_packed(name: &str, new: &dyn TableLike, live: Option<i64>) -> Option<NewCounts> {
    let found = |keys: &str, packed: Option<i64>| {
        let change = change_of_packed(live, Some(packed?))?;
        Some(NewCounts { message: message(name, keys, &change, true), is_certain: true })
    };
    let of_keys = overrides(new).into_iter().find_map(|table| found(OF_OVERRIDE, packed_of(table)));
    found("", packed_of(new)).or(of_keys)
}

fn counters_of_overrides(rule: Option<&dyn TableLike>) -> BTreeMap<OverrideKeys, Counters> {
    let tables = rule.map(overrides).unwrap_or_default();
    tables.into_iter().filter_map(|table| Some((OverrideKeys::of(table)?, own_counters(table)))).collect()
}

fn message(name: &str, keys: &str, change: &str, is_certain: bool) -> String {
    let escape =
        |letter: char| if letter.is_control() { letter.escape_default().to_string() } else { letter.to_string() };
    let name: String = name.chars().map(escape).collect();
    if is_certain {
        format!("`{name}` starts new counts{keys}, so each key has its full quota again: {change}")
    } else {
        format!("`{name}` may start new counts{keys}: {change}")
    }
}

/// Returns the difference of counters, and whether it is certain.
fn change(old: &Counters, new: &Counters) -> Option<(String, bool)> {
    // It is certain whatever the source has.
    if let Some(change) = change_of_packed(old.packed, new.packed) {
        return Some((change, true));
    }
    let word = |name: &Option<String>| name.as_deref().unwrap_or("the one of the source").to_owned();
    // Those of the source have its algorithm, which is unknown here.
    let is_of_source = new.algorithm.is_none() && new.limits.is_empty();
    if old.algorithm != new.algorithm && !is_of_source {
        // The text had no limits and no algorithm: those of the source are unknown. The default is probably theirs.
        let is_default = new.algorithm.is_none() && old.algorithm.as_deref() == Some("sliding_window");
        let is_certain = (old.algorithm.is_some() || !old.limits.is_empty()) && !is_default;
        let (old, new) = (word(&old.algorithm), word(&new.algorithm));
        return Some((format!("the algorithm changes from {old} to {new}"), is_certain));
    }
    if old.layout != new.layout {
        return Some(("the layout changes".to_owned(), true));
    }
    match (old.limits.is_empty(), new.limits.is_empty()) {
        (true, true) if old.algorithm.is_some() => {
            return Some(("the algorithm of the source applies again".to_owned(), false));
        }
        (true, true) => return None,
        (true, false) => {
            return Some(("it replaces limits of the source, which may have other windows".to_owned(), false));
        }
        (false, true) => return Some(("the limits of the source apply again".to_owned(), false)),
        (false, false) => {}
    }
    let added: Vec<_> = new.limits.difference(&old.limits).collect();
    let removed: Vec<_> = old.limits.difference(&new.limits).collect();
    let (_, window, _) = added.first()?;
    let write =
        |millis: u128| write_duration(std::time::Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)));
    let windows = |limits: &BTreeSet<(Option<String>, u128, Option<String>)>| -> BTreeSet<u128> {
        limits.iter().map(|(_, window, _)| *window).collect()
    };
    let change = match &removed[..] {
        _ if *window == CONCURRENT_WINDOW => "the limit of calls at once is new".to_owned(),
        [(_, old, _)] if added.len() == 1 && ![*window, CONCURRENT_WINDOW].contains(old) => {
            format!("the window changes from {} to {}", write(*old), write(*window))
        }
        _ if windows(&old.limits).contains(window) => format!("the algorithm of the window {} changes", write(*window)),
        _ => format!("the window {} is new", write(*window)),
    };
    Some((change, true))
}

fn change_of_packed(old: Option<i64>, new: Option<i64>) -> Option<String> {
    let write = |packed: Option<i64>| packed.map_or_else(|| "none".to_owned(), |number| number.to_string());
    (old != new).then(|| format!("`packed` changes from {} to {}", write(old), write(new)))
}

/// The window of calls at once, which have none.
const CONCURRENT_WINDOW: u128 = 0;

impl Counters {
    /// Returns the counters of a rule, with the settings of one of its overrides before its own.
    fn of(rule: Option<&dyn TableLike>, of_override: Option<Self>) -> Self {
        let base = rule.map(own_counters).unwrap_or_default();
        let Some(Self { limits, algorithm, layout, packed }) = of_override else { return base.with_one_algorithm() };
        let joined = Self {
            limits: if limits.is_empty() { base.limits } else { limits },
            algorithm: algorithm.or(base.algorithm),
            layout: layout.or(base.layout),
            packed: packed.or(base.packed),
        };
        joined.with_one_algorithm()
    }

    /// Returns these counters with the number of hashes of a level below, unless they have one.
    fn packed_below(self, below: Option<i64>) -> Self {
        Self { packed: self.packed.or(below), ..self }
    }

    /// Returns these counters with the algorithm that all limits have, as that of the rule: that one is before theirs.
    fn with_one_algorithm(mut self) -> Self {
        if self.algorithm.is_none() {
            let first = self.limits.first().and_then(|(algorithm, ..)| algorithm.clone());
            if !self.limits.iter().all(|(algorithm, ..)| *algorithm == first) {
                return self;
            }
            self.algorithm = first;
        }
        self.limits = self.limits.into_iter().map(|(_, window, layout)| (None, window, layout)).collect();
        self
    }
}

fn own_counters(settings: &dyn TableLike) -> Counters {
    let text = |name: &str| settings.get(name).and_then(Item::as_str).map(str::to_owned);
    let of_limit = |text: LimitText<'_>| {
        let limit = text.limit.parse::<Limit>().ok()?;
        let (window, concurrent) = (limit.window().as_millis(), limit.is_concurrent().then_some("concurrent"));
        // The default algorithm gives way to that of the source.
        let algorithm = text.algorithm.or(concurrent).filter(|algorithm| *algorithm != "sliding_window");
        Some((algorithm.map(str::to_owned), window, text.layout.map(str::to_owned)))
    };
    Counters {
        limits: limits(settings).into_iter().filter_map(of_limit).collect(),
        algorithm: text("algorithm"),
        layout: text("layout"),
        packed: packed_of(settings),
    }
}

fn packed_of(settings: &dyn TableLike) -> Option<i64> {
    settings.get("packed").and_then(Item::as_integer)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn found(old: &str, new: &str) -> Vec<(String, bool)> {
        let parse = |text: &str| text.parse().expect("valid");
        let found = new_counts(None, &parse(old), &parse(new)).into_iter();
        found.map(|NewCounts { message, is_certain }| (message, is_certain)).collect()
    }

    #[test]
    fn another_window_of_a_plan_starts_new_counts() {
        let plan = |limit: &str| format!("[plans.pro]\nlimit = \"{limit}\"\n");
        let message =
            "`plan pro` starts new counts, so each key has its full quota again: the window changes from 1 d to 1 h";
        assert_eq!(found(&plan("100/d"), &plan("100/h")), [(message.to_owned(), true)]);
        assert_eq!(found(&plan("100/d"), &plan("500/d")), []);
        assert_eq!(found("", &plan("500/d")), []);
    }

    #[test]
    fn another_window_or_algorithm_starts_new_counts() {
        let rule = |fields: &str| format!("[rules.a]\n{fields}\n");
        let certain = |change: &str| {
            let message = format!("`a` starts new counts, so each key has its full quota again: {change}");
            vec![(message, true)]
        };
        let unsure = |change: &str| vec![(format!("`a` may start new counts: {change}"), false)];
        let cases = [
            ("limit = '5/10s'", "limit = '50/10s'", vec![]),
            ("limit = '5/10s'", "limits = ['50/10s']\nmode = 'deny'", vec![]),
            ("limit = '5/60s'", "limit = '50/min'", vec![]),
            ("limit = '5/10s'", "limit = '5/min'", certain("the window changes from 10 s to 1 min")),
            ("limits = ['5/10s', '9/h']", "limit = '5/10s'", vec![]),
            ("limit = '5/10s'", "limits = ['5/10s', '9/h']", certain("the window 1 h is new")),
            (
                "limit = '5/10s'",
                "limit = '5/10s'\nalgorithm = 'token_bucket'",
                certain("the algorithm changes from the one of the source to token_bucket"),
            ),
            (
                "limit = { limit = '5/10s', algorithm = 'token_bucket' }",
                "limit = '5/10s'",
                certain("the algorithm changes from token_bucket to the one of the source"),
            ),
            (
                "limit = { limit = '5/10s', algorithm = 'token_bucket' }",
                "limit = '5/10s'\nalgorithm = 'token_bucket'",
                vec![],
            ),
            (
                "limit = { limit = '5/10s', algorithm = 'token_bucket' }",
                "limit = '5/10s'\nalgorithm = 'fixed_window'",
                certain("the algorithm changes from token_bucket to fixed_window"),
            ),
            (
                "limits = [{ limit = '5/10s', algorithm = 'token_bucket' }, '9/h']",
                "limits = ['5/10s', '9/h']",
                certain("the algorithm of the window 10 s changes"),
            ),
            ("limits = [{ limit = '5/10s' }]", "[[rules.a.limits]]\nlimit = '5/10s'", vec![]),
            ("limit = '5/10s'", "[rules.a.limit]\nlimit = '5/min'", certain("the window changes from 10 s to 1 min")),
            ("limit = '50 concurrent'", "limit = '9 concurrent'", vec![]),
            (
                "limit = '5/10s'",
                "limit = '50 concurrent'",
                certain("the algorithm changes from the one of the source to concurrent"),
            ),
            ("limit = '5/10s'", "limits = ['5/10s', '9 concurrent']", certain("the limit of calls at once is new")),
            ("limits = ['5/10s', '9 concurrent']", "limits = ['5/10s', '5/min']", certain("the window 1 min is new")),
            (
                "mode = 'off'",
                "limit = '5/10s'",
                unsure("it replaces limits of the source, which may have other windows"),
            ),
            ("limit = '5/10s'", "mode = 'off'", unsure("the limits of the source apply again")),
            (
                "limit = '5/10s'\nalgorithm = 'token_bucket'",
                "mode = 'off'",
                unsure("the limits of the source apply again"),
            ),
            ("limit = '9 concurrent'", "mode = 'off'", unsure("the limits of the source apply again")),
            ("algorithm = 'token_bucket'", "mode = 'off'", unsure("the algorithm of the source applies again")),
            (
                "limit = '5/10s'\nalgorithm = 'sliding_window'",
                "limit = '5/10s'",
                unsure("the algorithm changes from sliding_window to the one of the source"),
            ),
        ];
        for (old, new, expected) in cases {
            assert_eq!(found(&rule(old), &rule(new)), expected, "{old} -> {new}");
        }
    }

    /// A change of one of many rules took 18 s.
    #[test]
    fn the_time_grows_in_proportion_to_the_rules() {
        let text: String = (0..30_000).map(|number| format!("[rules.rule-{number}]\nlimit = '5/s'\n")).collect();
        let (old, new) =
            (text.parse().expect("valid"), format!("{text}[plans.pro]\nlimit = '5/s'\n").parse().expect("valid"));
        let began = Instant::now();
        assert_eq!(new_counts(None, &old, &new), []);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }

    /// A new rule was said to start new counts, although it may have been in no program before.
    #[test]
    fn a_new_rule_starts_no_counts_anew() {
        let rules = "[rules.a]\nlimit = '5/10s'\n";
        for new in ["limit = '5/s'", "limit = '5/s'\nlayout = 'zset'", "algorithm = 'token_bucket'"] {
            assert_eq!(found(rules, &format!("{rules}[rules.b]\n{new}\n")), [], "{new}");
            assert_eq!(found("", &format!("[rules.b]\n{new}\n")), [], "{new}");
        }
    }

    #[test]
    fn a_certain_change_of_an_override_is_found_beside_an_uncertain_one_of_the_rule() {
        let with = |limit: &str| format!("[[rules.a.override]]\nmatch = {{ user = '42' }}\nlimit = '{limit}'\n");
        let old = with("9/10s");
        let new = format!("[rules.a]\nlimit = '1/s'\n{}", with("9/h"));
        assert!(matches!(&found(&old, &new)[..], [(_, true)]));
    }

    #[test]
    fn overrides_are_compared_with_what_applied_to_their_keys() {
        let base = "[rules.a]\nlimit = '5/10s'\n";
        let with = |fields: &str| format!("{base}[[rules.a.override]]\nmatch = {{ user = '42' }}\n{fields}\n");
        let message =
            "`a` starts new counts for the keys of an override, so each key has its full quota again: the window";
        assert_eq!(found(base, &with("limit = '9/10s'")), []);
        assert_eq!(found(base, &with("limit = '9/h'")), [(format!("{message} changes from 10 s to 1 h"), true)]);
        assert_eq!(found(&with("limit = '9/h'"), base), [(format!("{message} changes from 1 h to 10 s"), true)]);
        assert_eq!(found(&with("limit = '9/h'"), &with("limit = '10/h'\nmode = 'shadow'")), []);
    }

    /// The settings of a packed rule were no counters, so a change of them was published without a word.
    #[test]
    fn another_number_of_hashes_starts_new_counts() {
        let of = |name: &str, keys: &str, change: &str| {
            let again = "so each key has its full quota again";
            vec![(format!("`{name}` starts new counts{keys}, {again}: `packed` changes from {change}"), true)]
        };
        let rule = |fields: &str| format!("[rules.a]\nlimit = '5/10s'\n{fields}\n");
        let with = |fields: &str| format!("{}[[rules.a.override]]\nkey = 'a'\n{fields}\n", rule("packed = 16384"));
        let plan = |fields: &str| format!("[plans.pro]\nlimit = '5/d'\n{fields}\n");
        let of_override = " for the keys of an override";
        for (old, new, expected) in [
            (rule(""), rule("packed = 16384"), of("a", "", "none to 16384")),
            (rule("packed = 16384"), rule(""), of("a", "", "16384 to none")),
            (rule("packed = 16384"), rule("packed = 32768"), of("a", "", "16384 to 32768")),
            (rule("packed = 16384"), rule("packed = 16_384\nmode = 'shadow'"), vec![]),
            (rule("packed = 16384"), String::new(), of("a", "", "16384 to none")),
            // The number is certain, whatever the algorithm of the source is.
            (rule("algorithm = 'sliding_window'"), rule("packed = 16384"), of("a", "", "none to 16384")),
            (with("mode = 'shadow'"), with("packed = 32768"), of("a", of_override, "16384 to 32768")),
            (with("packed = 32768"), rule("packed = 16384"), of("a", of_override, "32768 to 16384")),
            (with("packed = 16384"), with("mode = 'shadow'"), vec![]),
            (plan(""), plan("packed = 16384"), of("plan pro", "", "none to 16384")),
        ] {
            assert_eq!(found(&old, &new), expected, "{old} -> {new}");
        }
    }

    #[test]
    fn a_rule_that_lives_has_the_number_of_hashes_of_its_limiters() {
        let line = |packed: &str| {
            Fleet::of_inventory(&format!(
                r#"{{"rule":"a","keys":["a"],"limits":["5/10s"],"mode":"enforce","origin":"file"{packed}}}"#
            ))
        };
        let found = |packed: &str, old: &str, new: &str| {
            let (old, new) = (old.parse().expect("valid"), new.parse().expect("valid"));
            let found = new_counts(Some(&line(packed)), &old, &new).into_iter().next()?;
            let (_, change) = found.message.rsplit_once(": ").expect("a change");
            Some(change.to_owned())
        };
        let (packed, bare) = ("[rules.a]\nlimit = '5/10s'\npacked = 16384\n", "[rules.a]\nlimit = '5/10s'\n");
        let of_override = format!("{bare}[[rules.a.override]]\nkey = 'a'\npacked = 16384\n");
        let change = |from: &str| Some(format!("`packed` changes from {from} to 16384"));
        for (live, expected) in
            [("", change("none")), (r#","packed":16384"#, None), (r#","packed":32768"#, change("32768"))]
        {
            for old in ["", bare] {
                assert_eq!(found(live, old, packed), expected, "{live}, {old}");
                assert_eq!(found(live, old, &of_override).is_some(), expected.is_some(), "{live}, {old}");
            }
            assert_eq!(found(live, "", bare), None, "it keeps what is below");
            assert_eq!(found(live, "", &packed.replace(".a", ".b")), None, "no limiter has it");
            assert_eq!(found(live, packed, bare), Some("`packed` changes from 16384 to none".to_owned()));
        }
    }
}
