//! Changes of single settings in a text of rules.

use limiter_inspect::{OVERRIDE, OverrideKeys, overrides};
use toml_edit::{ArrayOfTables, InlineTable, Item, Table, TableLike, Value};

use crate::arguments::KeysArguments;
use crate::failure::Failure;

mod limits;

pub(super) use limits::{remove_replaced, set_limits};

/// Sets a field of a rule or an override. A comment beside the old value stays.
pub(super) fn set_field(settings: &mut dyn TableLike, field: &str, value: impl Into<Value>) {
    let mut value = value.into();
    match settings.get_mut(field) {
        Some(Item::Value(old)) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        _ => {
            settings.insert(field, Item::Value(value));
        }
    }
}

/// Gives a field another name, in its place.
fn rename_field(settings: &mut dyn TableLike, from: &str, to: &str) {
    if settings.get(from).is_none() || settings.get(to).is_some() {
        return;
    }
    // The fields are removed and added again, which keeps their order.
    let names: Vec<_> = settings.iter().map(|(name, _)| name.to_owned()).collect();
    for name in names {
        let Some(key) = settings.key(&name).cloned() else { continue };
        let Some(item) = settings.remove(&name) else { continue };
        let renamed = if name == from { to } else { &name };
        let decor = key.leaf_decor().clone();
        let key = if name == from { toml_edit::Key::new(renamed).with_leaf_decor(decor) } else { key };
        settings.entry_format(&key).or_insert(item);
    }
}

/// Returns the override of these keys for a change, and whether it was added.
pub(super) fn override_mut<'t>(
    settings: &'t mut dyn TableLike,
    keys: &KeysArguments,
) -> Result<(&'t mut dyn TableLike, bool), Failure> {
    let at = override_index(settings, keys);
    if settings.get(OVERRIDE).is_none() {
        settings.insert(OVERRIDE, Item::ArrayOfTables(ArrayOfTables::new()));
    }
    let is_new = at.is_none();
    let found: Option<&mut dyn TableLike> = match settings.get_mut(OVERRIDE) {
        Some(Item::ArrayOfTables(tables)) => {
            if is_new {
                let mut table = Table::new();
                table.decor_mut().set_prefix("\n");
                insert_keys(&mut table, keys);
                tables.push(table);
            }
            let at = at.unwrap_or(tables.len() - 1);
            tables.get_mut(at).map(|table| table as _)
        }
        Some(Item::Value(Value::Array(tables))) => {
            if is_new {
                let mut table = InlineTable::new();
                insert_keys(&mut table, keys);
                tables.push(table);
            }
            let at = at.unwrap_or(tables.len() - 1);
            tables.get_mut(at).and_then(Value::as_inline_table_mut).map(|table| table as _)
        }
        _ => None,
    };
    found.map(|found| (found, is_new)).ok_or_else(|| {
        Failure::usage(
            "the overrides of the rule must be tables, got another value: correct it with `limiter rules edit`",
        )
    })
}

/// Removes an override, and the list if it was the last one. Returns whether there was one.
pub(super) fn remove_override(settings: &mut dyn TableLike, keys: &KeysArguments) -> bool {
    let Some(at) = override_index(settings, keys) else { return false };
    let is_last = match settings.get_mut(OVERRIDE) {
        Some(Item::ArrayOfTables(tables)) => {
            tables.remove(at);
            tables.is_empty()
        }
        Some(Item::Value(Value::Array(tables))) => {
            tables.remove(at);
            tables.is_empty()
        }
        _ => return false,
    };
    if is_last {
        settings.remove(OVERRIDE);
    }
    true
}

/// Returns the position of the override with exactly these keys.
pub(super) fn override_index(settings: &dyn TableLike, keys: &KeysArguments) -> Option<usize> {
    let wanted = match &keys.key {
        Some(key) => OverrideKeys::Key(key.clone()),
        None => OverrideKeys::parts(keys.matches.iter().map(|(name, value)| (name.clone(), vec![value.clone()]))),
    };
    overrides(settings).into_iter().position(|table| OverrideKeys::of(table).as_ref() == Some(&wanted))
}

fn insert_keys(table: &mut dyn TableLike, keys: &KeysArguments) {
    if let Some(key) = &keys.key {
        table.insert("key", toml_edit::value(key));
        return;
    }
    let mut parts = InlineTable::new();
    for (name, value) in &keys.matches {
        parts.insert(name, value.into());
    }
    table.insert("match", toml_edit::value(parts));
}

#[cfg(test)]
mod tests {
    use rate_limited::Limit;

    use super::*;
    use crate::rules::rule_text::RuleText;

    fn limits(texts: &[&str]) -> Vec<Limit> {
        texts.iter().map(|text| text.parse().expect("valid")).collect()
    }

    fn keys(matches: &[(&str, &str)]) -> KeysArguments {
        let matches = matches.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        KeysArguments { matches: matches.collect(), key: None }
    }

    #[test]
    fn limits_keep_their_place_and_their_comments() {
        let text = "[rules.a]\n# Agreed in May.\nlimit = \"5/s\" # or 6\nmode = \"shadow\" # until June\n";
        let mut text = RuleText::parse(text).expect("valid");
        set_limits(text.rule_mut("a").expect("a table"), &limits(&["10/s"]));
        let one = "[rules.a]\n# Agreed in May.\nlimit = \"10/s\" # or 6\nmode = \"shadow\" # until June\n";
        assert_eq!(text.write(), one);
        set_limits(text.rule_mut("a").expect("a table"), &limits(&["10/s", "100/min"]));
        let two =
            "[rules.a]\n# Agreed in May.\nlimits = [\"10/s\", \"100/min\"] # or 6\nmode = \"shadow\" # until June\n";
        assert_eq!(text.write().replace("100/1min", "100/min"), two);
        set_limits(text.rule_mut("a").expect("a table"), &limits(&["10/s"]));
        assert_eq!(text.write(), one);
    }

    #[test]
    fn a_limit_with_an_algorithm_of_its_own_keeps_it() {
        let text = "[rules.a]\nlimit = { limit = \"5/s\", algorithm = \"token_bucket\", burst = 9 }\n";
        let mut text = RuleText::parse(text).expect("valid");
        set_limits(text.rule_mut("a").expect("a table"), &limits(&["6/s"]));
        let expected = "[rules.a]\nlimit = { limit = \"6/s\", algorithm = \"token_bucket\", burst = 9 }\n";
        assert_eq!(text.write(), expected);
    }

    #[test]
    fn overrides_are_found_by_their_keys_added_and_removed() {
        let text = "[rules.a]\nlimit = \"5/s\"\n\n[[rules.a.override]]\nmatch = { user = 42, tenant = \"x\" }\nlimit = \"9/s\"\n\
            \n[rules.b]\nlimit = \"1/s\"\n";
        let mut edited = RuleText::parse(text).expect("valid");
        let rule = edited.rule_mut("a").expect("a table");
        let (found, is_new) = override_mut(rule, &keys(&[("tenant", "x"), ("user", "42")])).expect("a table");
        assert!(!is_new);
        set_limits(found, &limits(&["8/s"]));
        let (added, is_new) = override_mut(rule, &keys(&[("user", "13")])).expect("a table");
        assert!(is_new);
        set_field(added, "mode", "deny");
        let expected = "[rules.a]\nlimit = \"5/s\"\n\n[[rules.a.override]]\nmatch = { user = 42, tenant = \"x\" }\n\
            limit = \"8/s\"\n\n[[rules.a.override]]\nmatch = { user = \"13\" }\nmode = \"deny\"\n\n[rules.b]\nlimit = \"1/s\"\n";
        assert_eq!(edited.write(), expected);
        let rule = edited.rule_mut("a").expect("a table");
        assert!(remove_override(rule, &keys(&[("user", "13")])));
        assert!(remove_override(rule, &keys(&[("user", "42"), ("tenant", "x")])));
        assert!(!remove_override(rule, &keys(&[("user", "42")])));
        assert_eq!(edited.write(), "[rules.a]\nlimit = \"5/s\"\n\n[rules.b]\nlimit = \"1/s\"\n");
    }
}
