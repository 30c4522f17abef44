//! The overrides of one rule, indexed by the keys that they match.

use std::cmp::Reverse;
use std::fmt;

use crate::Key;
use crate::rule::KeyMatch;

mod methods;
mod named_parts;
mod sorted_blocks;
mod nested_sets;
mod networks;
mod outline_parts;
mod part_value;
mod match_table;
mod pattern_group;
mod builder;

use builder::IndexBuilder;
use match_table::{ExactGroup, MatchTable};
pub(crate) use named_parts::without_kinds;
use named_parts::{OverrideProblem, override_problem};
use outline_parts::{OutlineParts, OutlineShape};
#[cfg(feature = "rules")]
pub(crate) use part_value::{value_problem, values_problem};
use pattern_group::{PatternGroup, Ranks};

/// The overrides of one rule. A look-up takes one hash for each set of parts that the overrides name by exact values, and
/// a binary search for each part that they name by networks or beginnings.
///
/// After the hash the whole text is compared, so no other key matches. A piece longer than 200 bytes is compared by its
/// SHA-256 digest, as such keys are in the stores, and by its beginning.
pub(crate) struct OverrideIndex {
    /// The overrides of one key, by its encoding. An override that names all parts is one of these.
    keys: MatchTable,
    /// The overrides of some parts by exact values, those of the most parts first.
    groups: Vec<ExactGroup>,
    /// The overrides with a network or the beginning of a text as a value, those of the most parts first.
    patterns: Vec<PatternGroup>,
    /// False if all overrides are of one key each.
    any_by_parts: bool,
    /// The outline of the rule's keys. Empty if no override is found by parts.
    shape: OutlineShape,
}

/// An override that cannot be in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidOverride {
    /// The index of the override in the list.
    pub(crate) index: usize,
    /// The message of the [`ErrorKind::Config`](crate::ErrorKind::Config) error.
    pub(crate) message: String,
    /// True if the key has all parts that the override names, but never with one of its values.
    pub(crate) is_by_value: bool,
    /// True if the key lacks parts that the override names.
    pub(crate) lacks_parts: bool,
}

impl InvalidOverride {
    /// Returns the message with the rule and the number of the override in front.
    pub(crate) fn in_rule(&self, name: &str) -> String {
        let Self { index, message, .. } = self;
        format!("override {} of the rule `{name}`: {message}", index + 1)
    }
}

impl OverrideIndex {
    /// Creates the index of a list of overrides.
    ///
    /// `template` is the attribute's key as written there; `None` if it is an expression.
    ///
    /// # Errors
    /// The first override that cannot match a key of this template, or is equal to an earlier one.
    pub(crate) fn new<'a>(
        template: Option<&str>,
        overrides: impl IntoIterator<Item = &'a KeyMatch>,
    ) -> Result<Self, InvalidOverride> {
        Self::build(template, overrides, Err)
    }

    /// Creates the index of the overrides that can be in it, with the others.
    pub(crate) fn of_valid<'a>(
        template: Option<&str>,
        overrides: impl IntoIterator<Item = &'a KeyMatch>,
    ) -> (Self, Vec<InvalidOverride>) {
        let mut invalid = Vec::new();
        let collect = |other| {
            invalid.push(other);
            Ok(())
        };
        let index = Self::build(template, overrides, collect).unwrap_or_else(|_| Self::empty());
        (index, invalid)
    }

    fn empty() -> Self {
        IndexBuilder::new(None).build()
    }

    /// Creates the index. `on_invalid` decides whether an override that cannot be in it is an error.
    fn build<'a>(
        template: Option<&str>,
        overrides: impl IntoIterator<Item = &'a KeyMatch>,
        mut on_invalid: impl FnMut(InvalidOverride) -> Result<(), InvalidOverride>,
    ) -> Result<Self, InvalidOverride> {
        let mut builder = IndexBuilder::new(template);
        for (index, key_match) in overrides.into_iter().enumerate() {
            if let Err(problem) = builder.add(key_match, index) {
                on_invalid(InvalidOverride {
                    index,
                    message: override_problem(template, &problem),
                    is_by_value: matches!(problem, OverrideProblem::Value(_)),
                    lacks_parts: matches!(problem, OverrideProblem::NoTemplate | OverrideProblem::UnknownPart { .. }),
                })?;
            }
        }
        Ok(builder.build())
    }

    /// Returns the index of the override that applies to a key.
    ///
    /// That is the one with the most matching parts. An override of the key itself matches all parts. Among these it is
    /// the first by its parts in the key's order: an exact value is before a network, and that before the beginning of a
    /// text; long ones are before shorter ones. Among equals it is the first in the list.
    #[inline]
    pub(crate) fn find(&self, key: &Key) -> Option<usize> {
        // The encoding of a long key takes a digest.
        if !self.keys.is_empty()
            && let Some(index) = self.keys.get(&key.encoding()[..])
        {
            return usize::try_from(*index).ok();
        }
        if self.any_by_parts { self.find_by_parts(key) } else { None }
    }

    #[inline(never)]
    fn find_by_parts(&self, key: &Key) -> Option<usize> {
        let outline = key.outline()?;
        let mut parts = OutlineParts::new(&outline);
        if !self.shape.split(&mut parts) {
            return None;
        }
        let mut found: Option<(u32, usize)> = None;
        for group in &self.groups {
            if found.is_some_and(|(_, len)| len > group.positions.len()) {
                break;
            }
            if let Some(index) = group.find(&parts) {
                let first = found.map_or(index, |(first, _)| first.min(index));
                found = Some((first, group.positions.len()));
            }
        }
        let exact_len = found.map_or(0, |(_, len)| len);
        let by_pattern = self.find_by_pattern(&parts, exact_len);
        usize::try_from(by_pattern.or(found.map(|(index, _)| index))?).ok()
    }

    /// Returns the override that applies among those with networks or beginnings, and with more parts than `exact_len`.
    fn find_by_pattern(&self, parts: &OutlineParts<'_>, exact_len: usize) -> Option<u32> {
        let mut found: Option<(&PatternGroup, Ranks, u32)> = None;
        for group in self.patterns.iter().take_while(|group| group.len() > exact_len) {
            if found.is_some_and(|(best, ..)| best.len() > group.len()) {
                break;
            }
            if let Some((ranks, index)) = group.find(parts)
                && found.is_none_or(|(_, best, first)| (ranks, Reverse(index)) > (best, Reverse(first)))
            {
                found = Some((group, ranks, index));
            }
        }
        found.map(|(.., index)| index)
    }
}

impl fmt::Debug for OverrideIndex {
    /// Formats the sizes alone: keys may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<_> = self.groups.iter().map(|group| (&group.positions, group.table.len())).collect();
        f.debug_struct("OverrideIndex").field("keys", &self.keys.len()).field("groups", &groups).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
