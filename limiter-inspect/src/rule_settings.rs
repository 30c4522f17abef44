//! The limits and the overrides of a rule in a text.

use rate_limited::Limit;
use toml_edit::{Item, TableLike, Value};

/// The overrides in a rule.
pub const OVERRIDE: &str = "override";

/// A limit of a text, with the settings of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitText<'t> {
    /// Permits and window.
    pub limit: &'t str,
    /// The algorithm, if it is not that of the rule.
    pub algorithm: Option<&'t str>,
    /// The layout, if it is not that of the rule.
    pub layout: Option<&'t str>,
}

/// Returns the limits of a rule or an override.
#[must_use]
pub fn limits(settings: &dyn TableLike) -> Vec<LimitText<'_>> {
    let single = settings.get("limit").and_then(of_item);
    let several = match settings.get("limits") {
        Some(Item::Value(Value::Array(values))) => values.iter().filter_map(LimitText::of_value).collect(),
        Some(Item::ArrayOfTables(tables)) => tables.iter().filter_map(|table| LimitText::of_table(table)).collect(),
        _ => Vec::new(),
    };
    single.into_iter().chain(several).collect()
}

/// Returns two limits of a rule or an override that have one count, since window and algorithm are the same.
#[must_use]
pub fn shared_count(settings: &dyn TableLike) -> Option<(Limit, Limit)> {
    let counter = |text: &LimitText<'_>| Some((text.limit.parse::<Limit>().ok()?, text.algorithm.map(str::to_owned)));
    let counters: Vec<_> = limits(settings).iter().filter_map(counter).collect();
    let has_algorithm = settings.contains_key("algorithm");
    counters.iter().enumerate().find_map(|(index, (limit, algorithm))| {
        let is_same = |(other, other_algorithm): &&(Limit, Option<String>)| {
            other.window() == limit.window() && (has_algorithm || algorithm == other_algorithm)
        };
        let (earlier, _) = counters[..index].iter().find(is_same)?;
        Some((*earlier, *limit))
    })
}

fn of_item(item: &Item) -> Option<LimitText<'_>> {
    item.as_value().and_then(LimitText::of_value).or_else(|| LimitText::of_table(item.as_table()?))
}

impl<'t> LimitText<'t> {
    /// Reads a limit as a text or an inline table.
    #[must_use]
    pub fn of_value(value: &'t Value) -> Option<Self> {
        match value {
            Value::InlineTable(table) => Self::of_table(table),
            value => Some(Self { limit: value.as_str()?, algorithm: None, layout: None }),
        }
    }

    /// Reads a limit as a table.
    #[must_use]
    pub fn of_table(table: &'t dyn TableLike) -> Option<Self> {
        let field = |name: &str| table.get(name).and_then(Item::as_str);
        Some(Self { limit: field("limit")?, algorithm: field("algorithm"), layout: field("layout") })
    }
}

/// Returns the overrides of a rule.
#[must_use]
pub fn overrides(settings: &dyn TableLike) -> Vec<&dyn TableLike> {
    match settings.get(OVERRIDE) {
        Some(Item::ArrayOfTables(tables)) => tables.iter().map(|table| table as _).collect(),
        Some(Item::Value(Value::Array(tables))) => {
            tables.iter().filter_map(Value::as_inline_table).map(|table| table as _).collect()
        }
        _ => Vec::new(),
    }
}

/// The keys that an override applies to, for comparisons.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OverrideKeys {
    /// A whole key.
    Key(String),
    /// Names, each with the values of which a key has one, by name.
    Parts(Vec<(String, Vec<String>)>),
}

impl OverrideKeys {
    /// Creates those of parts, each with its values.
    #[must_use]
    pub fn parts(parts: impl Iterator<Item = (String, Vec<String>)>) -> Self {
        let mut parts: Vec<_> = parts.collect();
        parts.iter_mut().for_each(|(_, values)| {
            values.sort();
            values.dedup();
        });
        parts.sort();
        Self::Parts(parts)
    }

    /// Reads the keys of an override. `None` for an override without any.
    #[must_use]
    pub fn of(table: &dyn TableLike) -> Option<Self> {
        if let Some(key) = table.get("key") {
            return Some(Self::Key(key.as_str()?.to_owned()));
        }
        let parts = table.get("match")?.as_table_like()?.iter().map(|(name, value)| {
            let text = |value: &Value| {
                let text = value.as_str().map(str::to_owned).or_else(|| Some(value.as_integer()?.to_string()));
                text.unwrap_or_default()
            };
            let values = match value.as_value() {
                Some(Value::Array(list)) => list.iter().map(text).collect(),
                value => value.into_iter().map(text).collect(),
            };
            (name.to_owned(), values)
        });
        Some(Self::parts(parts))
    }
}
