//! The overrides of an index that is being built.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::OverrideIndex;
use super::match_table::{ExactGroup, MatchTable, MatchText, match_text};
use super::named_parts::{MAX_COMBINATIONS, NamedPart, OverrideProblem, named_parts};
use super::outline_parts::{OutlineShape, part_outline};
use super::part_value::PartValue;
use super::pattern_group::PatternGroupBuilder;
use crate::key::KeyTemplate;
use crate::rule::{KeyMatch, KeyPattern};
use crate::sync::seed;

/// The overrides so far.
pub(super) struct IndexBuilder {
    template: Option<KeyTemplate>,
    keys: MatchTable,
    groups: HashMap<Vec<usize>, MatchTable>,
    patterns: HashMap<Vec<usize>, PatternGroupBuilder>,
    combinations: usize,
}

impl IndexBuilder {
    pub(super) fn new(template: Option<&str>) -> Self {
        Self {
            template: template.and_then(KeyTemplate::parse),
            keys: MatchTable::with_hasher(seed()),
            groups: HashMap::new(),
            patterns: HashMap::new(),
            combinations: 0,
        }
    }

    /// Adds an override with its index in the list. One that is equal to an earlier one, or whose combinations of values all
    /// are in earlier ones, is a problem.
    pub(super) fn add<'a>(&mut self, keys: &'a KeyMatch, index: usize) -> Result<(), OverrideProblem<'a>> {
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let earlier = match &keys.pattern {
            KeyPattern::Key(key) if key.is_hmac() => return Err(OverrideProblem::HashedKey),
            KeyPattern::Key(key) => insert(&mut self.keys, &key.encoding(), number),
            KeyPattern::Parts(parts) => {
                let template = self.template.take().ok_or(OverrideProblem::NoTemplate)?;
                let earlier = named_parts(&template, parts).and_then(|named| self.add_parts(&template, &named, number));
                self.template = Some(template);
                earlier?
            }
        };
        earlier.map_or(Ok(()), |earlier| Err(OverrideProblem::Equal { earlier, index }))
    }

    /// Adds each combination that is not there yet. Returns the override of the first one if all are there.
    fn add_parts<'a>(
        &mut self,
        template: &KeyTemplate,
        named: &[NamedPart],
        index: u32,
    ) -> Result<Option<u32>, OverrideProblem<'a>> {
        let count = named.iter().try_fold(1_usize, |count, part| count.checked_mul(part.values.len()));
        let total = count.and_then(|count| count.checked_add(self.combinations));
        let total = total.filter(|total| *total <= MAX_COMBINATIONS).ok_or(OverrideProblem::ManyCombinations)?;
        let (mut earlier, mut is_new) = (None, false);
        for combination in 0..total - self.combinations {
            match self.add_values(template, &values_by_position(named, combination), index) {
                None => is_new = true,
                Some(other) => earlier = earlier.or(Some(other)),
            }
        }
        self.combinations = total;
        Ok(earlier.filter(|_| !is_new))
    }

    /// Adds one combination. Returns the override that has it, and then adds nothing.
    fn add_values(&mut self, template: &KeyTemplate, values: &[(usize, &PartValue)], index: u32) -> Option<u32> {
        let texts: Option<Vec<&str>> = values.iter().map(|(_, value)| value.exact()).collect();
        let positions = || values.iter().map(|(position, _)| *position).collect();
        match texts {
            Some(texts) if texts.len() == template.parts.len() => {
                insert(&mut self.keys, &template.key(texts).encoding(), index)
            }
            Some(texts) => {
                let outlines: Vec<_> = texts.into_iter().map(part_outline).collect();
                let table = self.groups.entry(positions()).or_insert_with(|| MatchTable::with_hasher(seed()));
                insert(table, &match_text(outlines.iter().map(Vec::as_slice)), index)
            }
            None => {
                let values: Vec<_> = values.iter().map(|(_, value)| *value).collect();
                self.patterns.entry(positions()).or_default().add(&values, index)
            }
        }
    }

    pub(super) fn build(self) -> OverrideIndex {
        let group = |(positions, table)| ExactGroup { positions, table };
        let mut groups: Vec<_> = self.groups.into_iter().map(group).collect();
        groups.sort_by(|one, other| {
            (other.positions.len(), &one.positions).cmp(&(one.positions.len(), &other.positions))
        });
        let patterns = self.patterns.into_iter().map(|(positions, group)| group.build(&positions));
        let mut patterns: Vec<_> = patterns.collect();
        patterns.sort_by_key(|group| Reverse(group.len()));
        let any_by_parts = !groups.is_empty() || !patterns.is_empty();
        let template = self.template.filter(|_| any_by_parts);
        let shape = template.as_ref().map_or_else(OutlineShape::default, OutlineShape::new);
        OverrideIndex { keys: self.keys, groups, patterns, any_by_parts, shape }
    }
}

/// Adds an override to a table. Returns the one that has the text, and then adds nothing.
fn insert(table: &mut MatchTable, text: &[u8], index: u32) -> Option<u32> {
    match table.entry(MatchText::new(text)) {
        Entry::Occupied(earlier) => Some(*earlier.get()),
        Entry::Vacant(slot) => {
            slot.insert(index);
            None
        }
    }
}

/// Returns a combination by its number: a value for each position, in the key's order.
fn values_by_position(named: &[NamedPart], combination: usize) -> Vec<(usize, &PartValue)> {
    let mut rest = combination;
    let mut values = Vec::with_capacity(named.len());
    for NamedPart { positions, values: of_part } in named {
        let value = &of_part[rest % of_part.len()];
        rest /= of_part.len();
        values.extend(positions.iter().map(|position| (*position, value)));
    }
    values.sort_by_key(|(position, _)| *position);
    values
}
