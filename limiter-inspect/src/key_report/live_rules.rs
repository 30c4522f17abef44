//! The rules of a limiter that reads the counts of limiters that live.

use std::collections::BTreeMap;
use std::time::Duration;

use rate_limited::{Block, Error, Key, Rule, RuleSet};
use toml_edit::{Document, DocumentMut, Item, value};

use crate::fleet::{Fleet, fits};
use crate::rule_settings::settings_of_some;
use crate::rules_alone::rules_alone;

/// Returns the rule that most limiters have. A peek under a rule with a block sees that of the key, whatever its length. Packed
/// counts have no block.
pub(super) fn of_limiters(fleet: &Fleet, name: &str, toml: &str) -> Option<Rule> {
    let live = fleet.rule(name)?;
    let (rule, (most, _)) = (live.in_most()?, live.by_limiters()?);
    let may_block = most.packed.is_none() && !packs_some(toml, name);
    let has_window = most.limits.iter().any(|limit| !limit.is_concurrent());
    let any = Block::new(Duration::from_millis(1)).ok().filter(|_| has_window && may_block);
    Some(any.map_or(rule.clone(), |any| rule.block(any)))
}

/// Returns whether the shared rules pack the counts of some keys of a rule, by an override or a plan.
fn packs_some(toml: &str, name: &str) -> bool {
    let Ok(document) = Document::parse(toml) else { return false };
    settings_of_some(document.as_table(), name).into_iter().any(|settings| settings.contains_key("packed"))
}

/// The settings of a rule that limiters have, whatever level those come from.
const OF_LIMITERS: [&str; 9] =
    ["limit", "limits", "algorithm", "burst", "layout", "packed", "mode", "block", "postpaid"];

/// Returns the shared rules for a limiter that has these `rules` already, with what they have of the shared rules: their
/// overrides and plans alone.
pub(super) fn shared_beside(
    toml: &str,
    rules: &BTreeMap<&str, Rule>,
    fleet: &Fleet,
    key: &Key,
) -> Result<RuleSet, Error> {
    let Ok(mut document) = toml.parse::<DocumentMut>() else { return rules_alone(toml) };
    let tables = document.get_mut("rules").and_then(Item::as_table_like_mut);
    for (name, table) in tables.into_iter().flat_map(|tables| tables.iter_mut()) {
        let (Some(table), true) = (table.as_table_like_mut(), rules.contains_key(name.get())) else { continue };
        for setting in OF_LIMITERS {
            table.remove(setting);
        }
        // Overrides match the parts of the key that the program states.
        let live = fleet.rule(name.get()).into_iter().flat_map(|live| &live.keys);
        let template = live.into_iter().find(|template| fits(template, key) == Some(true));
        if let (None, Some(template)) = (table.get("key"), template) {
            table.insert("key", value(template.as_str()));
        }
    }
    rules_alone(&document.to_string())
}

#[cfg(test)]
mod tests {
    use rate_limited::Limiter;

    use super::*;
    use crate::rule_settings::settings_of_rules;
    use crate::rules_alone::POLICIES;

    fn fleet(packed: &str) -> Fleet {
        Fleet::of_inventory(&format!(
            r#"{{"rule":"a","keys":["a:{{b}}"],"limits":["5/10s"],"mode":"enforce","origin":"file"{packed}}}"#
        ))
    }

    /// Each rule got a block, which a packed one cannot have, so a report of its keys failed.
    #[test]
    fn a_live_packed_rule_is_one_that_a_limiter_accepts() {
        let of_override = "[[rules.a.override]]\nmatch = { b = 7 }\npacked = 16384\n";
        let of_plan = "[rules.a]\nplans = ['pro']\n[plans.pro]\nlimit = '9/s'\npacked = 16384\n";
        let bare = "[rules.a]\nlimit = '9/s'\n";
        for (packed, toml, has_block) in [
            (r#","packed":16384"#, "", false),
            ("", "", true),
            ("", bare, true),
            ("", of_override, false),
            ("", of_plan, false),
        ] {
            let fleet = fleet(packed);
            let rule = of_limiters(&fleet, "a", toml).expect("it lives");
            let limiter = Limiter::memory();
            limiter.set_rules(RuleSet::new().rule("a", rule.clone())).expect("valid");
            assert_eq!(limiter.rules()[0].block().is_some(), has_block, "{packed}, {toml}");
            let limiter = Limiter::builder().rules(RuleSet::new().rule("a", rule.clone())).build().expect("valid");
            let key = Key::new("a:").part(7);
            let shared = shared_beside(toml, &BTreeMap::from([("a", rule)]), &fleet, &key).expect("valid");
            limiter.set_rules(shared).expect("valid");
            let decision = limiter
                .named("a")
                .plan("pro")
                .peek_blocking(&key, &"1/s".parse().expect("a limit"))
                .expect("valid limits");
            assert!(decision.is_allowed());
        }
    }

    /// The limiters have all settings of the rule itself, whatever level those come from.
    #[test]
    fn a_live_rule_has_nothing_else_of_the_shared_rules_than_overrides_and_plans() {
        let fleet = fleet("");
        let key = Key::new("a:").part(7);
        let rules = BTreeMap::from([("a", of_limiters(&fleet, "a", "").expect("it lives"))]);
        let toml =
            "[rules.a]\nlimit = '5/10s'\npacked = 16384\n[[rules.a.override]]\nmatch = { b = 7 }\npacked = 32768\n";
        let shared = shared_beside(toml, &rules, &fleet, &key).expect("valid");
        assert_eq!(shared.to_string().matches("packed").collect::<Vec<_>>().len(), 1, "{shared}");
        let limiter = Limiter::memory();
        limiter.set_rules(shared).expect("valid");
        assert_eq!(limiter.rules()[0].packed(), None);
    }

    /// A setting that is in no list would be taken from the shared rules, and not from the limiters.
    #[test]
    fn each_setting_of_a_rule_has_its_source() {
        let others = ["key", "plans", "override"];
        let mut known: Vec<_> = OF_LIMITERS.into_iter().chain(POLICIES).chain(others).map(str::to_owned).collect();
        let mut all = settings_of_rules();
        known.sort();
        all.sort();
        assert_eq!(known, all);
    }
}
