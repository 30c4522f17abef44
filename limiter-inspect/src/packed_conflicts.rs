//! Packed rules of a text beside what limiters have that live, as far as their counts cannot be packed.
//!
//! A text that contradicts itself is no valid one. What a level below contradicts, the limiters alone know.

use std::collections::BTreeSet;

use rate_limited::{Algorithm, Limit};
use toml_edit::{DocumentMut, Item, TableLike};

use crate::fleet::{Fleet, LiveRule};
use crate::rule_settings::{limits, settings_of_some};
use crate::text_effect::complete;

/// A rule whose counts cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedConflict {
    /// The name of the rule.
    pub rule: String,
    /// The sentence about it.
    pub message: String,
}

/// Returns the rules of a text that would be packed beside a setting which packed counts cannot have: one of both is in the
/// limiters that live. What the old text has already is left out.
#[must_use]
pub fn packed_conflicts(fleet: &Fleet, old: &str, new: &str) -> Vec<PackedConflict> {
    let Ok(mut new) = new.parse::<DocumentMut>() else { return Vec::new() };
    let mut old = old.parse::<DocumentMut>().unwrap_or_default();
    let rules = new.get("rules").and_then(Item::as_table_like).into_iter().flat_map(TableLike::iter);
    let names: Vec<_> = rules.map(|(name, _)| name.to_owned()).collect();
    let mut found = Vec::new();
    for name in names {
        let Some((most, _)) = fleet.rule(&name).and_then(LiveRule::by_limiters) else { continue };
        complete(&mut old, &mut new, &name, most);
        let (before, after) = (conflicts(&old, &name), conflicts(&new, &name));
        if let Some(other) = after.difference(&before).next() {
            let message = format!(
                "`{}` is packed beside {other} in the limiters that live: they reject the text, or its calls fail; leave out one \
                 of both",
                name.escape_debug()
            );
            found.push(PackedConflict { rule: name, message });
        }
    }
    found
}

/// Returns the settings that contradict `packed` for some calls of a rule: those with an override, with a plan, or with neither.
fn conflicts(document: &DocumentMut, name: &str) -> BTreeSet<String> {
    let rules = document.get("rules").and_then(Item::as_table_like);
    let Some(rule) = rules.and_then(|rules| rules.get(name)?.as_table_like()) else { return BTreeSet::new() };
    let of_some = settings_of_some(document.as_table(), name).into_iter().map(|settings| vec![settings, rule]);
    [vec![rule]].into_iter().chain(of_some).filter_map(|levels| conflict(&levels)).collect()
}

/// Returns the setting that contradicts `packed` in these levels, the first of which applies before the others.
fn conflict(levels: &[&dyn TableLike]) -> Option<String> {
    let find = |name: &str| levels.iter().find_map(|settings| settings.get(name));
    find("packed")?;
    if find("block").is_some() {
        return Some("`block`".to_owned());
    }
    let level = levels.iter().position(|settings| !limits(*settings).is_empty());
    let own = level.and_then(|level| levels.get(level)).map(|settings| limits(*settings)).unwrap_or_default();
    let is_zset = |layout: Option<&str>| layout == Some("zset");
    if is_zset(find("layout").and_then(Item::as_str)) || own.iter().any(|limit| is_zset(limit.layout)) {
        return Some("`layout = \"zset\"`".to_owned());
    }
    // An algorithm beside the limits, or before them, comes before that of a limit; one of a level below after it.
    let (before, below) = levels.split_at(level.map_or(levels.len(), |level| level + 1));
    let of = |levels: &[&dyn TableLike]| {
        let named = levels.iter().find_map(|settings| settings.get("algorithm").and_then(Item::as_str));
        named.map(str::to_owned)
    };
    let (before, below) = (of(before), of(below));
    let algorithms = own.iter().filter_map(|text| {
        let limit: Limit = text.limit.parse().ok()?;
        match limit.algorithm() {
            Algorithm::Concurrent => Some(limit.algorithm().to_string()),
            Algorithm::Calendar => None,
            _ => {
                let named = text.algorithm.filter(|name| *name != "sliding_window").map(str::to_owned);
                before.clone().or(named).or_else(|| below.clone())
            }
        }
    });
    let is_bucket = |name: &String| ["token_bucket", "leaky_bucket", "concurrent"].contains(&name.as_str());
    let of_source = before.clone().filter(|_| own.is_empty());
    algorithms.chain(of_source).find(is_bucket).map(|name| format!("`{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str, old: &str, new: &str) -> Vec<String> {
        let fleet = Fleet::of_inventory(&format!(r#"{{"rule":"a","keys":["a:{{b}}"],"mode":"enforce",{line}}}"#));
        let message = |conflict: PackedConflict| {
            let (start, _) = conflict.message.split_once(" in the limiters that live: ").expect("a place");
            start.to_owned()
        };
        packed_conflicts(&fleet, old, new).into_iter().map(message).collect()
    }

    const BUCKET: &str = r#""limits":[{"limit":"5/s","algorithm":"token_bucket"}],"origin":"attribute""#;
    const PACKED: &str = r#""limits":["5/10s"],"origin":"file","packed":16384"#;
    const WINDOW: &str = r#""limits":["5/10s"],"origin":"attribute""#;
    const BLOCK: &str = r#""limits":["5/10s"],"origin":"attribute","block":"10m""#;
    const OVERRIDE: &str = "[[rules.a.override]]\nmatch = { b = 7 }\n";

    #[test]
    fn a_packed_rule_beside_what_limiters_have_is_found() {
        let rule = |fields: &str| format!("[rules.a]\n{fields}\n");
        let zset = r#""limits":[{"limit":"5/s","algorithm":"sliding_window","layout":"zset"}],"origin":"file""#;
        let slots = r#""limits":["5 concurrent"],"origin":"attribute""#;
        let packed = rule("packed = 16384");
        for (line, new, other) in [
            (BUCKET, packed.clone(), "`token_bucket`"),
            (BUCKET, rule("limit = '6/s'\npacked = 16384"), "`token_bucket`"),
            (BUCKET, format!("{OVERRIDE}packed = 16384\n"), "`token_bucket`"),
            (
                BUCKET,
                "[rules.a]\nplans = ['pro']\n[plans.pro]\nlimit = '9/s'\npacked = 16384\n".into(),
                "`token_bucket`",
            ),
            (zset, packed.clone(), "`layout = \"zset\"`"),
            (slots, packed.clone(), "`concurrent`"),
            (BLOCK, packed, "`block`"),
            (BLOCK, format!("{OVERRIDE}packed = 16384\n"), "`block`"),
            (PACKED, rule("block = '1h'"), "`block`"),
            (PACKED, rule("algorithm = 'leaky_bucket'"), "`leaky_bucket`"),
            (PACKED, rule("limit = { limit = '5/s', algorithm = 'token_bucket' }"), "`token_bucket`"),
            (PACKED, rule("limits = ['5/s', '9 concurrent']"), "`concurrent`"),
            (PACKED, rule("layout = 'zset'"), "`layout = \"zset\"`"),
            (PACKED, format!("{OVERRIDE}block = '1h'\n"), "`block`"),
        ] {
            assert_eq!(found(line, "", &new), [format!("`a` is packed beside {other}")], "{line}: {new}");
            assert_eq!(found(line, &new, &format!("{new}# again\n")), [""; 0], "{line}: {new}");
        }
    }

    #[test]
    fn what_may_be_packed_beside_what_limiters_have_draws_no_warning() {
        for (line, new) in [
            (WINDOW, "[rules.a]\npacked = 16384\n"),
            (WINDOW, "[rules.a]\nblock = '1h'\n"),
            (BUCKET, "[rules.a]\npacked = 16384\nalgorithm = 'fixed_window'\n"),
            (BUCKET, "[rules.a]\npacked = 16384\nlimit = { limit = '5/s', algorithm = 'fixed_window' }\n"),
            (BUCKET, "[rules.a]\npacked = 16384\nlimit = '100/month'\n"),
            (BUCKET, "[rules.b]\npacked = 16384\n"),
            (BUCKET, "["),
            (PACKED, "[rules.a]\nlimit = '5/h'\npacked = 32768\n"),
        ] {
            assert_eq!(found(line, "", new), [""; 0], "{line}: {new}");
        }
        // The limiters have the setting of the old text, which the new one lacks.
        let shared = PACKED.replace("file", "shared");
        assert_eq!(found(&shared, "[rules.a]\npacked = 16384\n", "[rules.a]\nblock = '1h'\n"), [""; 0]);
    }
}
