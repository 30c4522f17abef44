//! Names of a text that no limiter that lives has: rules, parts of keys, and keys. Before them are rules that cannot be packed
//! beside what limiters have.
//!
//! They are warnings: rules may be published before a deploy, and at night a program may not run. A name that is nearly one
//! that lives is probably a mistake, which would leave the limit as it is.

use std::collections::BTreeSet;

use rate_limited::Key;
use toml_edit::{Document, DocumentMut, Item, TableLike};

use crate::fleet::{Fleet, fits, parts};
use crate::misspelling::{is_misspelt, similar_name};
use crate::nearest_keys::nearest_keys;
use crate::packed_conflicts::packed_conflicts;
use crate::rule_settings::{OverrideKeys, overrides};

/// The most warnings about one text.
const MAX_WARNINGS: usize = 20;

/// A warning about a text before it is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextWarning {
    /// The sentence, which names a fix if there is one.
    pub message: String,
    /// The line of the name, from 1.
    pub line: Option<usize>,
    /// The name that is probably meant: the text needs a consent then.
    pub suggestion: Option<String>,
}

/// Returns warnings about what a text changes. A text that is no TOML has none.
#[must_use]
pub fn text_warnings(fleet: &Fleet, old: &str, new: &str) -> Vec<TextWarning> {
    if !fleet.is_known() {
        let reason =
            if fleet.instances().is_empty() { "no limiter lives" } else { "not all rules of limiters are known" };
        let message = format!("the names of rules and keys are not checked: {reason}");
        return vec![TextWarning { message, line: None, suggestion: None }];
    }
    warnings(fleet, old, new)
}

fn warnings(fleet: &Fleet, old: &str, new: &str) -> Vec<TextWarning> {
    let (Ok(spans), Ok(after)) = (Document::parse(new), new.parse::<DocumentMut>()) else { return Vec::new() };
    let before = old.parse::<DocumentMut>().unwrap_or_default();
    let Some(rules) = spans.get("rules").and_then(Item::as_table_like) else { return Vec::new() };
    let mut warnings = Warnings { fleet, text: new, found: Vec::new() };
    for conflict in packed_conflicts(fleet, old, new).into_iter().take(MAX_WARNINGS) {
        let start = rules.key(&conflict.rule).and_then(|key| key.span()).map(|span| span.start);
        warnings.add(start, conflict.message, None);
    }
    for (name, rule) in rules.iter() {
        if warnings.is_full() {
            break;
        }
        let Some(rule) = rule.as_table_like() else { continue };
        let (old, new) = (excerpt(&before, name), excerpt(&after, name));
        if old != new {
            let start = rules.key(name).and_then(|key| key.span()).map(|span| span.start);
            warnings.of_rule(name, start, rule, old.is_none());
            let old = keys_of_overrides(&before, name);
            warnings.of_overrides(name, rule, &old);
        }
    }
    warnings.found
}

fn excerpt(document: &DocumentMut, name: &str) -> Option<String> {
    let rule = document.get("rules")?.get(name)?.clone();
    let mut only = DocumentMut::new();
    only.insert("rule", rule);
    Some(only.to_string().trim().to_owned())
}

fn keys_of_overrides(document: &DocumentMut, name: &str) -> BTreeSet<OverrideKeys> {
    let rule = document.get("rules").and_then(|rules| rules.get(name)?.as_table_like());
    rule.map(overrides).unwrap_or_default().into_iter().filter_map(OverrideKeys::of).collect()
}

struct Warnings<'w> {
    fleet: &'w Fleet,
    text: &'w str,
    found: Vec<TextWarning>,
}

impl Warnings<'_> {
    fn is_full(&self) -> bool {
        self.found.len() >= MAX_WARNINGS
    }

    fn add(&mut self, at: Option<usize>, message: String, suggestion: Option<String>) {
        let line = at.map(|at| self.text.get(..at).unwrap_or_default().matches('\n').count() + 1);
        let message = match &suggestion {
            Some(name) => format!("{message}: did you mean `{name}`?"),
            None => message,
        };
        self.found.push(TextWarning { message, line, suggestion });
    }

    fn of_rule(&mut self, name: &str, at: Option<usize>, rule: &dyn TableLike, is_new: bool) {
        if self.fleet.rule(name).is_some() {
            return;
        }
        let similar = self.fleet.rules().map(|(live, _)| live).find(|live| is_misspelt(name, live));
        let similar = similar.filter(|_| is_new).map(str::to_owned);
        // A hidden header has no place of its own.
        let of_override = || overrides(rule).first().and_then(|table| place(*table));
        let message = format!("no limiter that lives has the rule `{name}`");
        let message =
            if similar.is_some() { message } else { format!("{message}, so it changes nothing until one has") };
        self.add(at.or_else(of_override), message, similar);
    }

    /// Warns of overrides that no key has. Those of the old text are known.
    fn of_overrides(&mut self, name: &str, rule: &dyn TableLike, old: &BTreeSet<OverrideKeys>) {
        let live = self.fleet.rule(name).map(|live| live.keys.iter().map(String::as_str).collect::<Vec<_>>());
        let stated = rule.get("key").and_then(Item::as_str);
        // The parts of a direct call are those of the key that the text states, or else of the name.
        let templates = live.filter(|keys| !keys.is_empty()).unwrap_or_else(|| vec![stated.unwrap_or(name)]);
        let all_parts: BTreeSet<&str> = templates.iter().flat_map(|template| parts(template)).collect();
        let list = || templates.iter().map(|template| format!("`{template}`")).collect::<Vec<_>>().join(", ");
        for table in overrides(rule) {
            if self.is_full() {
                return;
            }
            let Some(keys) = OverrideKeys::of(table).filter(|keys| !old.contains(keys)) else { continue };
            match keys {
                OverrideKeys::Parts(_) if all_parts.is_empty() => {}
                OverrideKeys::Parts(names) => {
                    for (part, _) in &names {
                        let own = part.split(':').next().unwrap_or(part);
                        if !all_parts.contains(own) && !all_parts.contains(part.as_str()) {
                            let message = format!(
                                "no key of `{name}` has the part `{part}`, so the override changes nothing; its keys are {}",
                                list()
                            );
                            let similar = similar_name(own, all_parts.iter().copied()).map(str::to_owned);
                            self.add(place(table), message, similar);
                        }
                    }
                }
                OverrideKeys::Key(text) => {
                    let key = Key::from_encoded(&text);
                    let is_other = |template: &&str| match &key {
                        Ok(key) => fits(template, key) == Some(false),
                        Err(_) => true,
                    };
                    if !all_parts.is_empty() && templates.iter().all(is_other) {
                        let message = format!(
                            "no key of `{name}` is `{text}`, so the override changes nothing; its keys are {}",
                            list()
                        );
                        let nearest = nearest_keys(&text, templates.iter().copied()).into_iter().next();
                        self.add(place(table), message, nearest);
                    }
                }
            }
        }
    }
}

/// Returns the first byte of an override's keys.
fn place(table: &dyn TableLike) -> Option<usize> {
    Some(table.get("match").or_else(|| table.get("key"))?.span()?.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet() -> Fleet {
        Fleet::of_inventory(concat!(
            r#"{"rule":"user:{user_id}","keys":["user:{user_id}"],"limits":["5/10s"],"mode":"enforce","origin":"attribute"}"#,
            "\n",
            r#"{"rule":"upload","keys":[],"limits":["5/10s"],"mode":"enforce","origin":"call"}"#,
        ))
    }

    fn found(old: &str, new: &str) -> Vec<(Option<usize>, String, Option<String>)> {
        let found = warnings(&fleet(), old, new).into_iter();
        found.map(|one| (one.line, one.message, one.suggestion)).collect()
    }

    const USER: &str = "[rules.\"user:{user_id}\"]\nlimit = '5/10s'\n";

    #[test]
    fn a_name_that_lives_draws_no_warning() {
        let text =
            format!("{USER}[[rules.\"user:{{user_id}}\".override]]\nmatch = {{ user_id = '4711' }}\nmode = 'off'\n");
        for fine in [
            USER,
            &text,
            &text.replace("match = { user_id = '4711' }", "key = 'user:@4711'"),
            "",
            "#",
            "[",
            "rules = 1",
        ] {
            assert_eq!(found("", fine), [], "{fine}");
        }
        assert_eq!(found("", "[[rules.upload.override]]\nmatch = { id = '1' }\nmode = 'off'\n"), []);
    }

    #[test]
    fn an_unknown_name_draws_a_warning_with_the_one_that_is_meant() {
        let unknown = found(USER, &format!("{USER}\n[rules.userlimit]\nlimit = '9/10s'\n"));
        let message = "no limiter that lives has the rule `userlimit`, so it changes nothing until one has";
        assert_eq!(unknown, [(Some(4), message.to_owned(), None)]);
        let [(line, _, suggestion)] = &found("", "[rules.\"user:{userid}\"]\nlimit = '9/10s'\n")[..] else {
            panic!("one")
        };
        assert_eq!((*line, suggestion.as_deref()), (Some(1), Some("user:{user_id}")));
        for (keys, suggestion) in [
            ("match = { userid = '4711' }", Some("user_id")),
            ("match = { plan = 'pro' }", None),
            ("key = 'user:4711'", Some("user:@4711")),
            ("key = 'other'", Some("user:@other")),
        ] {
            let text = format!("{USER}[[rules.\"user:{{user_id}}\".override]]\n{keys}\nmode = 'off'\n");
            let [(line, message, name)] = &found(USER, &text)[..] else { panic!("{keys}: one warning") };
            assert_eq!((*line, name.as_deref()), (Some(4), suggestion), "{keys}");
            assert!(message.contains("so the override changes nothing; its keys are `user:{user_id}`"), "{message}");
            // What the text has already is known.
            assert_eq!(found(&text, &format!("{text}# again\n")), []);
        }
    }

    #[test]
    fn without_the_rules_of_all_limiters_no_name_is_checked() {
        let text = "[rules.user]\nlimit = '5/10s'\n";
        let [warning] = &text_warnings(&Fleet::of_inventory(""), "", text)[..] else { panic!("a warning") };
        assert!(warning.message.ends_with("not checked: no limiter lives") && warning.suggestion.is_none());
    }

    #[test]
    fn a_rule_that_cannot_be_packed_in_limiters_draws_a_warning() {
        let bucket =
            r#"{"rule":"a","keys":["a"],"limits":[{"limit":"5/s","algorithm":"token_bucket"}],"origin":"attribute"}"#;
        let found = warnings(&Fleet::of_inventory(bucket), "", "# Quotas.\n[rules.a]\npacked = 16384\n");
        let [TextWarning { message, line: Some(2), suggestion: None }] = &found[..] else { panic!("{found:?}") };
        assert!(message.starts_with("`a` is packed beside `token_bucket` in the limiters that live"), "{message}");
    }
}
