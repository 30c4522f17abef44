//! The limits of a rule or an override: `limit` and `limits`, as values and as tables.

use limiter_inspect::LimitText;
use rate_limited::Limit;
use toml_edit::{Array, ArrayOfTables, Item, Table, TableLike, Value};

use super::{rename_field, set_field};

/// Sets the limits of a rule or an override, in the places of the old ones. A table keeps its other settings.
pub(in crate::rules) fn set_limits(settings: &mut dyn TableLike, wanted: &[Limit]) {
    if wanted.is_empty() {
        return;
    }
    if let ([limit], Some(single)) = (wanted, settings.get_mut("limit")) {
        set_item(single, *limit);
        return;
    }
    make_list(settings);
    match settings.get_mut("limits") {
        Some(Item::Value(Value::Array(values))) => set_values(values, wanted),
        Some(Item::ArrayOfTables(tables)) => set_tables(tables, wanted),
        _ => {
            let value = match wanted {
                [limit] => return set_field(settings, "limit", limit.to_string()),
                limits => limits.iter().map(Limit::to_string).collect::<Array>(),
            };
            return set_field(settings, "limits", value);
        }
    }
    make_single(settings);
}

/// Removes the algorithms and the bursts of single limits that those of their rule replace.
pub(in crate::rules) fn remove_replaced(settings: &mut dyn TableLike, algorithm: Option<&str>, has_burst: bool) {
    let remove = |table: &mut dyn TableLike, is_inline: bool| {
        let old = table.len();
        let own = table.get("algorithm").and_then(Item::as_str);
        let is_other = algorithm.is_some_and(|algorithm| own.is_some_and(|own| own != algorithm));
        if is_other {
            table.remove("algorithm");
        }
        if is_other || has_burst {
            table.remove("burst");
        }
        if is_inline && table.len() < old {
            table.fmt();
        }
    };
    if let Some(item) = settings.get_mut("limit") {
        let is_inline = item.is_inline_table();
        item.as_table_like_mut().into_iter().for_each(|table| remove(table, is_inline));
    }
    match settings.get_mut("limits") {
        Some(Item::Value(Value::Array(values))) => {
            values.iter_mut().filter_map(Value::as_inline_table_mut).for_each(|table| remove(table, true));
        }
        Some(Item::ArrayOfTables(tables)) => tables.iter_mut().for_each(|table| remove(table, false)),
        _ => {}
    }
}

/// Makes a list of a single limit.
fn make_list(settings: &mut dyn TableLike) {
    let Some(single) = settings.get_mut("limit") else { return };
    match single {
        Item::Value(value) => {
            let decor = value.decor().clone();
            let mut only = value.clone();
            only.decor_mut().clear();
            let mut values = Array::new();
            values.push_formatted(only);
            *value = values.into();
            *value.decor_mut() = decor;
        }
        Item::Table(table) => {
            let mut tables = ArrayOfTables::new();
            let mut table = table.clone();
            table.set_dotted(false);
            tables.push(table);
            *single = Item::ArrayOfTables(tables);
        }
        _ => return,
    }
    rename_field(settings, "limit", "limits");
}

/// Makes a single limit of a list of one value. One with comments stays a list.
fn make_single(settings: &mut dyn TableLike) {
    let Some(Item::Value(list)) = settings.get_mut("limits") else { return };
    let Value::Array(values) = &list else { return };
    let mut inside = values.clone();
    inside.decor_mut().clear();
    let has_comments = inside.to_string().contains('#');
    let Some(only) = values.get(0).filter(|_| values.len() == 1 && !has_comments) else { return };
    let mut only = only.clone();
    *only.decor_mut() = values.decor().clone();
    *list = only;
    rename_field(settings, "limits", "limit");
}

fn set_item(item: &mut Item, limit: Limit) {
    match item {
        Item::Value(value) => set_value(value, limit),
        Item::Table(table) => set_field(table, "limit", limit.to_string()),
        _ => {}
    }
}

fn set_value(value: &mut Value, limit: Limit) {
    if let Value::InlineTable(table) = value {
        return set_field(table, "limit", limit.to_string());
    }
    let decor = value.decor().clone();
    *value = limit.to_string().into();
    *value.decor_mut() = decor;
}

fn set_values(values: &mut Array, wanted: &[Limit]) {
    let old: Vec<_> = values.iter().map(|value| Some(LimitText::of_value(value)?.limit)).collect();
    let (places, added) = places(&old, wanted);
    for (at, limit) in places.iter().enumerate().rev() {
        match (limit, values.get_mut(at)) {
            (Some(limit), Some(value)) => set_value(value, *limit),
            _ => remove_value(values, at),
        }
    }
    for limit in added {
        add_value(values, limit);
    }
}

/// Removes a value. The comments before it stay.
fn remove_value(values: &mut Array, at: usize) {
    let removed = values.remove(at);
    let prefix = removed.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
    let Some(comments) = prefix.rfind('\n').filter(|_| prefix.contains('#')).map(|end| &prefix[..end]) else { return };
    match values.get_mut(at) {
        Some(next) => {
            let own = next.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
            let joined = format!("{comments}{}{own}", if own.contains('\n') { "" } else { "\n" });
            next.decor_mut().set_prefix(joined);
        }
        None => {
            let own = values.trailing().as_str().unwrap_or_default();
            let joined = format!("{comments}{}{own}", if own.contains('\n') { "" } else { "\n" });
            values.set_trailing(joined);
        }
    }
}

/// Adds a value at the end: on a line of its own if the last one has one.
fn add_value(values: &mut Array, limit: Limit) {
    let last = values.len().checked_sub(1).and_then(|last| values.get_mut(last));
    let prefix = last.as_ref().and_then(|last| last.decor().prefix()?.as_str()).unwrap_or_default().to_owned();
    let Some(indent) = prefix.rsplit_once('\n').map(|(_, indent)| indent) else {
        values.push(limit.to_string());
        return;
    };
    // The comment after the last value, without its comma or behind it.
    let suffix = last.as_ref().and_then(|last| last.decor().suffix()?.as_str()).unwrap_or_default().to_owned();
    if let Some(last) = last {
        last.decor_mut().set_suffix("");
    }
    let trailing = values.trailing().as_str().unwrap_or_default().to_owned();
    let (comments, end) = match format!("{suffix}{trailing}") {
        behind if behind.contains('\n') => {
            behind.rsplit_once('\n').map(|(comments, end)| (comments.to_owned(), end.to_owned()))
        }
        _ => None,
    }
    .unwrap_or_default();
    let mut value = Value::from(limit.to_string());
    value.decor_mut().set_prefix(format!("{comments}\n{indent}"));
    values.push_formatted(value);
    values.set_trailing(format!("\n{end}"));
}

fn set_tables(tables: &mut ArrayOfTables, wanted: &[Limit]) {
    let old: Vec<_> = tables.iter().map(|table| Some(LimitText::of_table(table)?.limit)).collect();
    let (places, added) = places(&old, wanted);
    for (at, limit) in places.iter().enumerate().rev() {
        match (limit, tables.get_mut(at)) {
            (Some(limit), Some(table)) => set_field(table, "limit", limit.to_string()),
            _ => drop(tables.remove(at)),
        }
    }
    for limit in added {
        let mut table = Table::new();
        table.decor_mut().set_prefix("\n");
        set_field(&mut table, "limit", limit.to_string());
        tables.push(table);
    }
}

/// Returns the new limit in the place of each old one, by its window and then in order, and those that are left.
fn places(old: &[Option<&str>], wanted: &[Limit]) -> (Vec<Option<Limit>>, Vec<Limit>) {
    let windows: Vec<_> = old.iter().map(|text| Some((*text)?.parse::<Limit>().ok()?.window())).collect();
    let mut places = vec![None; old.len()];
    let mut left = Vec::new();
    for limit in wanted {
        match (0..old.len()).find(|at| places[*at].is_none() && windows[*at] == Some(limit.window())) {
            Some(at) => places[at] = Some(*limit),
            None => left.push(*limit),
        }
    }
    let mut left = left.into_iter();
    for place in places.iter_mut().filter(|place| place.is_none()) {
        *place = left.next();
    }
    (places, left.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::rule_text::RuleText;

    fn set(text: &str, wanted: &[&str]) -> String {
        let mut text = RuleText::parse(text).expect("valid");
        let wanted: Vec<Limit> = wanted.iter().map(|text| text.parse().expect("valid")).collect();
        set_limits(text.rule_mut("a").expect("a table"), &wanted);
        let written = text.write();
        crate::rules::validity::check(&written).expect("valid");
        written
    }

    #[test]
    fn comments_in_a_list_stay() {
        let text =
            "[rules.a]\nlimits = [\n    # Short.\n    \"5/s\", # burst\n    \"50/min\", # May\n    # End.\n] # all\n";
        assert_eq!(set(text, &["60/min", "6/s"]), text.replace("5/s", "6/s").replace("50/min", "60/min"));
        let added = text.replace("    # End.\n", "    # End.\n    \"9/h\"\n").replace("\"9/h\"\n", "\"9/h\",\n");
        assert_eq!(set(text, &["5/s", "50/min", "9/h"]).replace("\"9/h\"\n", "\"9/h\",\n"), added);
        let one = set(text, &["50/min"]);
        for comment in ["# Short.", "# May", "# End.", "# all"] {
            assert!(one.contains(comment), "{one}");
        }
    }

    #[test]
    fn a_limit_keeps_its_settings_in_a_list() {
        let text = "[rules.a]\nlimits = [{ limit = \"5/s\", algorithm = \"token_bucket\" }, \"50/min\"]\n";
        assert_eq!(set(text, &["60/min", "6/s"]), text.replace("5/s", "6/s").replace("50/min", "60/min"));
        let single = "[rules.a]\nlimit = { limit = \"6/s\", algorithm = \"token_bucket\" }\n";
        assert_eq!(set(text, &["6/s"]), single);
        assert_eq!(set(single, &["5/s", "50/min"]), text);
    }

    #[test]
    fn a_table_of_a_limit_becomes_a_list_of_tables() {
        let text = "[rules.a]\nmode = \"off\"\n[rules.a.limit]\nlimit = \"5/s\" # May\nlayout = \"compact\"\n";
        let expected = "[rules.a]\nmode = \"off\"\n[[rules.a.limits]]\nlimit = \"6/s\" # May\nlayout = \"compact\"\n\n\
                        [[rules.a.limits]]\nlimit = \"9/min\"\n";
        assert_eq!(set(text, &["9/min", "6/s"]), expected);
        assert_eq!(set("[rules.a]\nlimit.limit = \"5/s\"\n", &["6/s"]), "[rules.a]\nlimit.limit = \"6/s\"\n");
    }

    #[test]
    fn settings_that_those_of_the_rule_replace_are_removed() {
        let text = "[rules.a]\nlimit = { limit = \"5/s\", algorithm = \"token_bucket\", burst = 9 }\n";
        let removed = |algorithm, has_burst| {
            let mut text = RuleText::parse(text).expect("valid");
            remove_replaced(text.rule_mut("a").expect("a table"), algorithm, has_burst);
            text.write()
        };
        assert_eq!(removed(Some("fixed_window"), false), "[rules.a]\nlimit = { limit = \"5/s\" }\n");
        assert_eq!(removed(Some("token_bucket"), false), text);
        assert_eq!(removed(None, true), text.replace(", burst = 9", ""));
    }
}
