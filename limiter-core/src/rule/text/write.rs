//! The text of a set, written.

use std::fmt::{self, Formatter, Write};

use crate::rule::KeyPattern;
use crate::rule::format::{FIELDS, WrittenValue, parts_beside_text, whole_millis, written_limits};
use crate::{KeyMatch, Limit, Rule, RuleSet};

/// Writes a set of rules as TOML.
pub(super) fn rule_set(set: &RuleSet, f: &mut Formatter<'_>) -> fmt::Result {
    let RuleSet { defaults, rules, plans, is_strict, is_shared, .. } = set;
    let mut separator = "";
    if *is_strict {
        f.write_str("strict = true\n")?;
        separator = "\n";
    }
    if *is_shared {
        f.write_str("shared = true\n")?;
        separator = "\n";
    }
    if !defaults.is_empty() {
        write!(f, "{separator}[defaults]\n{}", RuleFields(defaults))?;
        separator = "\n";
    }
    for (name, plan) in plans {
        write!(f, "{separator}[plans.{}]\n{}", TomlKey(name), RuleFields(plan))?;
        separator = "\n";
    }
    for (name, rule) in rules {
        write!(f, "{separator}[rules.{}]\n{}", TomlKey(name), RuleFields(rule))?;
        separator = "\n";
        for (keys, rule) in &rule.overrides {
            let fields = OverrideFields(keys, rule);
            write!(f, "\n[[rules.{}.override]]\n{fields}", TomlKey(name))?;
        }
    }
    Ok(())
}

/// Writes the settings of a rule, one in a line.
struct RuleFields<'r>(&'r Rule);

impl fmt::Display for RuleFields<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rule = self.0;
        if let Some(key) = &rule.key {
            writeln!(f, "key = {}", TomlText(key))?;
        }
        if let Some(plans) = &rule.plans {
            let names: Vec<_> = plans.iter().map(|name| TomlText(name).to_string()).collect();
            writeln!(f, "plans = [{}]", names.join(", "))?;
        }
        if let Some((name, limits)) = written_limits(rule) {
            let values: Vec<_> = limits.iter().map(|limit| LimitValue(*limit).to_string()).collect();
            match &values[..] {
                [limit] => writeln!(f, "{name} = {limit}")?,
                limits => writeln!(f, "{name} = [{}]", limits.join(", "))?,
            }
        }
        for field in &FIELDS {
            if let Some(value) = (field.written)(rule) {
                writeln!(f, "{} = {}", field.name, TomlValue(&value))?;
            }
        }
        Ok(())
    }
}

/// Writes the value of a field.
struct TomlValue<'v>(&'v WrittenValue);

impl fmt::Display for TomlValue<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            WrittenValue::Word(word) => write!(f, "\"{word}\""),
            WrittenValue::Number(number) => write!(f, "{number}"),
            WrittenValue::Flag(flag) => write!(f, "{flag}"),
            WrittenValue::Block(block) => write!(f, "\"{block}\""),
            WrittenValue::Time(time) => write!(f, "\"{}ms\"", whole_millis(*time)),
        }
    }
}

/// Writes the keys and the settings of an override.
struct OverrideFields<'r>(&'r KeyMatch, &'r Rule);

impl fmt::Display for OverrideFields<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(keys, rule) = self;
        match &keys.pattern {
            KeyPattern::Parts(parts) => {
                let part = |(name, values): &(String, Vec<String>)| match &values[..] {
                    [value] => format!("{} = {}", TomlKey(name), TomlText(value)),
                    values => {
                        let values: Vec<_> = values.iter().map(|value| TomlText(value).to_string()).collect();
                        format!("{} = [{}]", TomlKey(name), values.join(", "))
                    }
                };
                let parts: Vec<_> = parts.iter().map(part).collect();
                writeln!(f, "match = {{ {} }}", parts.join(", "))?;
            }
            KeyPattern::Key(key) => writeln!(f, "key = {}", TomlText(&key.encoded()))?,
        }
        write!(f, "{}", RuleFields(rule))?;
        // No text has them, so the set does not parse.
        if rule.overrides.is_empty() { Ok(()) } else { f.write_str("override = []\n") }
    }
}

/// Writes a limit: its text, or a table where the text would lose a part of it.
struct LimitValue(Limit);

impl fmt::Display for LimitValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(limit) = self;
        let mut parts = parts_beside_text(*limit).peekable();
        if parts.peek().is_none() {
            return write!(f, "\"{limit}\"");
        }
        write!(f, "{{ limit = \"{limit}\"")?;
        for (name, value) in parts {
            write!(f, ", {name} = {}", TomlValue(&value))?;
        }
        f.write_str(" }")
    }
}

/// Writes a key, in quotes if it needs them.
pub(super) struct TomlKey<'k>(pub(super) &'k str);

impl fmt::Display for TomlKey<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() && self.0.bytes().all(is_bare) { f.write_str(self.0) } else { TomlText(self.0).fmt(f) }
    }
}

/// Returns whether a key may have this byte without quotes.
pub(super) fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(&byte)
}

/// Writes a text in quotes.
struct TomlText<'t>(&'t str);

impl fmt::Display for TomlText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for letter in self.0.chars() {
            match letter {
                '"' | '\\' => write!(f, "\\{letter}")?,
                control if control.is_control() => write!(f, "\\u{:04x}", u32::from(control))?,
                letter => f.write_char(letter)?,
            }
        }
        f.write_char('"')
    }
}
