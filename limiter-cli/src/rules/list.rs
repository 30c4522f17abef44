//! `limiter rules list`.

use comfy_table::{Cell, CellAlignment};
use rate_limited::Published;
use serde_json::{Map, Value, json};
use toml_edit::{Item, TableLike};

use super::rule_text::{PLANS, RuleText};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, Style, visible};
use crate::time_text;
use limiter_inspect::{LimitText, OVERRIDE, OverrideKeys, overrides};

/// The most values of a part that the table has.
const MAX_VALUES: usize = 3;

/// The most overrides of a rule that the table has.
const MAX_OVERRIDES: usize = 20;

/// Writes the rules in force.
pub(super) fn run(published: &Published, output: &Output) -> Result<Exit, Failure> {
    let text = RuleText::parse(&published.toml)?;
    if output.is_json() {
        let rules = text.rules().into_iter().map(|(name, rule)| rule_json(name, rule)).collect::<Vec<_>>();
        let mut list = version_json(published);
        list.insert("rules".to_owned(), rules.into());
        let plan = |(name, plan): (&str, &dyn TableLike)| {
            let mut fields = Map::from_iter([("name".to_owned(), json!(name))]);
            fields.extend(settings_json(plan));
            Value::Object(fields)
        };
        list.insert("plans".to_owned(), text.plans().into_iter().map(plan).collect());
        output.json(&list.into())?;
        return Ok(Exit::SUCCESS);
    }
    if published.version == 0 {
        output.line("no shared rules are published")?;
        return Ok(Exit::SUCCESS);
    }
    output.line(output.paint(Style::Dim, version_line(published)))?;
    let rules = text.rules();
    if rules.is_empty() && text.plans().is_empty() {
        output.line("the text has no rules")?;
        return Ok(Exit::SUCCESS);
    }
    let mut table =
        output.table(&["RULE", "LIMITS", "ALGORITHM", "MODE", "ON ERROR", "DEADLINE", "PLANS", "OVERRIDES"]);
    for (name, rule) in rules {
        let overrides = overrides(rule);
        let mut row = row(visible(name), rule);
        row.push(Cell::new(plans_text(rule)));
        row.push(Cell::new(overrides.len()).set_alignment(CellAlignment::Right));
        table.add_row(row);
        for settings in overrides.iter().take(MAX_OVERRIDES) {
            table.add_row(self::row(format!("  {}", keys_text(*settings)), *settings));
        }
        if overrides.len() > MAX_OVERRIDES {
            table.add_row([format!("  and {} more", overrides.len() - MAX_OVERRIDES)]);
        }
    }
    for (name, plan) in text.plans() {
        table.add_row(row(format!("plan {}", visible(name)), plan));
    }
    output.print(table)?;
    Ok(Exit::SUCCESS)
}

/// Returns the plans that a rule names.
fn plans_text(rule: &dyn TableLike) -> String {
    let plans = rule.get(PLANS).and_then(Item::as_array).into_iter().flatten();
    let plans: Vec<_> = plans.filter_map(|plan| plan.as_str()).map(visible).collect();
    if plans.is_empty() { "-".to_owned() } else { plans.join(", ") }
}

/// Returns the cells of a rule or an override, apart from the number of overrides.
fn row(name: String, settings: &dyn TableLike) -> Vec<Cell> {
    let field = |name: &str| settings.get(name).and_then(Item::as_str).map_or("-".to_owned(), visible);
    let limits = limits(settings);
    let limits = if limits.is_empty() { "-".to_owned() } else { visible(&limits.join(", ")) };
    let texts = [name, limits, field("algorithm"), field("mode"), field("on_error"), field("deadline")];
    texts.into_iter().map(Cell::new).collect()
}

/// Returns the keys of an override, such as `user_id=42`.
fn keys_text(settings: &dyn TableLike) -> String {
    match OverrideKeys::of(settings) {
        Some(OverrideKeys::Key(key)) => visible(&key),
        Some(OverrideKeys::Parts(parts)) => {
            let part = |(name, values): &(String, Vec<String>)| {
                let shown = values.iter().take(MAX_VALUES).map(String::as_str).collect::<Vec<_>>().join(",");
                match values.len().saturating_sub(MAX_VALUES) {
                    0 => visible(&format!("{name}={shown}")),
                    more => visible(&format!("{name}={shown} and {more} more")),
                }
            };
            parts.iter().map(part).collect::<Vec<_>>().join(" ")
        }
        None => "-".to_owned(),
    }
}

/// Returns the line about a version: number, author, time and reason.
pub(super) fn version_line(published: &Published) -> String {
    let Published { version, who, when, why, .. } = published;
    let why = if why.is_empty() { String::new() } else { format!(": {}", visible(why)) };
    format!("version {version} of {}, {}{why}", visible(who), time_text::with_age(*when))
}

/// Returns the fields of a version, without its text.
pub(super) fn version_json(published: &Published) -> Map<String, Value> {
    let Published { version, who, when, why, .. } = published;
    let when = (*version > 0).then(|| limiter_inspect::rfc3339(*when));
    Map::from_iter([
        ("version".to_owned(), json!(version)),
        ("who".to_owned(), json!(who)),
        ("when".to_owned(), json!(when)),
        ("why".to_owned(), json!(why)),
    ])
}

/// Returns the settings of a rule, with its limits as a list.
pub(super) fn rule_json(name: &str, rule: &dyn TableLike) -> Value {
    let mut fields = Map::from_iter([("name".to_owned(), json!(name))]);
    fields.extend(settings_json(rule));
    let overrides = overrides(rule).into_iter().map(|table| Value::Object(settings_json(table)));
    fields.insert("overrides".to_owned(), overrides.collect());
    fields.into()
}

fn settings_json(settings: &dyn TableLike) -> Map<String, Value> {
    let mut fields = Map::from_iter([("limits".to_owned(), json!(limits(settings)))]);
    for (name, item) in settings.iter().filter(|(name, _)| !["limit", "limits", OVERRIDE].contains(name)) {
        fields.insert(name.to_owned(), item_json(item));
    }
    fields
}

fn item_json(item: &Item) -> Value {
    if let Some(text) = item.as_str() {
        return text.into();
    }
    if let Some(number) = item.as_integer() {
        return number.into();
    }
    if let Some(flag) = item.as_bool() {
        return flag.into();
    }
    if let Some(list) = item.as_array() {
        return list.iter().map(|value| item_json(&Item::Value(value.clone()))).collect();
    }
    let entries = item.as_table_like().into_iter().flat_map(TableLike::iter);
    entries.map(|(name, item)| (name.to_owned(), item_json(item))).collect::<Map<_, _>>().into()
}

/// Returns the limits of a rule as texts. One with an algorithm of its own has it in parentheses.
fn limits(rule: &dyn TableLike) -> Vec<String> {
    let text = |text: LimitText<'_>| match text.algorithm {
        Some(algorithm) => format!("{} ({algorithm})", text.limit),
        None => text.limit.to_owned(),
    };
    limiter_inspect::limits(rule).into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use toml_edit::DocumentMut;

    use super::*;

    #[test]
    fn a_setting_has_its_own_type_in_json() {
        let text = "[rules.a]\nlimit = \"5/s\"\nburst = 7\nleases = false\n";
        let document: DocumentMut = text.parse().expect("TOML");
        let rule = document["rules"]["a"].as_table_like().expect("a table");
        let expected = json!({ "name": "a", "limits": ["5/s"], "burst": 7, "leases": false, "overrides": [] });
        assert_eq!(rule_json("a", rule), expected);
    }

    #[test]
    fn a_list_is_shown_by_its_first_values() {
        let text = "[[override]]\nmatch = { ip = ['10.0.0.0/8', '::/0', 7, '9', '9'], path = '/api/*' }\n";
        let document: DocumentMut = text.parse().expect("TOML");
        let of_keys = overrides(document.as_table())[0];
        assert_eq!(keys_text(of_keys), "ip=10.0.0.0/8,7,9 and 1 more path=/api/*");
        let listed = json!({ "ip": ["10.0.0.0/8", "::/0", 7, "9", "9"], "path": "/api/*" });
        assert_eq!(settings_json(of_keys)["match"], listed);
    }
}
