//! The serialised form of a rule: a map as in a file of rules.

use std::collections::HashMap;

use serde_core::ser;
use serde_core::{Serialize, Serializer};

use super::written_fields::{FieldValue, settings, write_fields};
use crate::rule::fields::{MAX_OVERRIDES, empty_match_problem, equal_match_problem, too_many_overrides_problem};
use crate::rule::key_match::KeyPattern;
use crate::rule::message_text::cut;
use crate::{KeyMatch, Rule};

mod read;

/// Writes the map that a rule is in the [file of rules](crate::Builder::rules_file), with the fields that are set:
/// `limit` or `limits`, `algorithm`, `burst`, `layout`, `mode`, `on_error`, `deadline`, `leases` and `override`. Needs
/// the feature `serde`.
///
/// Each rule that is written is read back as an equal one. So the error is that of a rule that
/// [`build`](crate::Builder::build) rejects, or of a deadline with a fraction of a millisecond.
impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.check("the rule").map_err(ser::Error::custom)?;
        check_overrides(&self.overrides).map_err(ser::Error::custom)?;
        let mut rules = self.overrides.iter().map(|(_, rule)| rule).chain([self]);
        rules.try_for_each(check_deadline).map_err(ser::Error::custom)?;
        let key = self.key.as_deref().map(|key| ("key", FieldValue::Text(key)));
        let mut fields: Vec<_> = key.into_iter().chain(settings(self)).collect();
        if !self.overrides.is_empty() {
            fields.push(("override", FieldValue::Overrides(&self.overrides)));
        }
        write_fields(serializer, &fields)
    }
}

/// Checks the number of overrides, and the keys that they match.
#[expect(clippy::mutable_key_type, reason = "the caches of a key are in no hash and no comparison")]
fn check_overrides(overrides: &[(KeyMatch, Rule)]) -> Result<(), String> {
    if overrides.len() > MAX_OVERRIDES {
        return Err(too_many_overrides_problem());
    }
    let mut seen = HashMap::new();
    for (number, (keys, _)) in (1..).zip(overrides) {
        check_parts(keys)?;
        if let Some(earlier) = seen.insert(keys, number) {
            return Err(equal_match_problem(format_args!("override {earlier}")));
        }
    }
    Ok(())
}

fn check_parts(keys: &KeyMatch) -> Result<(), String> {
    match &keys.pattern {
        KeyPattern::Parts(parts) if parts.is_empty() => Err(empty_match_problem()),
        KeyPattern::Parts(parts) => {
            let names = parts.iter().zip(parts.iter().skip(1)).find(|((name, _), (next, _))| name == next);
            names.map_or(Ok(()), |((name, _), _)| {
                Err(format!("`{}` must be set once in `match`, got two: remove one", cut(name)))
            })
        }
        KeyPattern::Key(_) => Ok(()),
    }
}

fn check_deadline(rule: &Rule) -> Result<(), String> {
    match rule.deadline {
        Some(deadline) if deadline.subsec_nanos() % 1_000_000 != 0 => Err(format!(
            "`deadline` must be whole milliseconds to be written, got {deadline:?}: write one such as \
             `Duration::from_millis(50)`"
        )),
        _ => Ok(()),
    }
}
