//! The overrides of one rule, indexed by the keys that they match.

use std::borrow::{Borrow, Cow};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::Key;
use crate::key::KeyTemplate;
use crate::rule::{KeyMatch, KeyPattern};
use crate::sync::{Seed, seed};

mod methods;
mod named_parts;
mod networks;
mod outline_parts;

pub(crate) use named_parts::without_kinds;
use named_parts::{OverrideProblem, override_problem, values_by_position};
use networks::{NetworkIndex, NetworkIndexBuilder};
use outline_parts::{OutlineParts, OutlineShape, PART_MARK, part_outline};

/// The overrides of one rule. A look-up takes one hash for each set of parts that the overrides name.
///
/// After the hash the whole text is compared, so no other key matches. A piece longer than 200 bytes is compared by its
/// SHA-256 digest, as such keys are in the stores.
pub(crate) struct OverrideIndex {
    /// The overrides of one key, by its encoding. An override that names all parts is one of these.
    keys: MatchTable,
    /// The overrides of some parts, those of the most parts first.
    groups: Vec<PartGroup>,
    /// The overrides with a network as the value of a part.
    networks: NetworkIndex,
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
        Self {
            keys: MatchTable::with_hasher(seed()),
            groups: Vec::new(),
            networks: NetworkIndex::default(),
            any_by_parts: false,
            shape: OutlineShape::default(),
        }
    }

    /// Creates the index. `on_invalid` decides whether an override that cannot be in it is an error.
    fn build<'a>(
        template: Option<&str>,
        overrides: impl IntoIterator<Item = &'a KeyMatch>,
        mut on_invalid: impl FnMut(InvalidOverride) -> Result<(), InvalidOverride>,
    ) -> Result<Self, InvalidOverride> {
        let parsed = template.and_then(KeyTemplate::parse);
        let new_table = || MatchTable::with_hasher(seed());
        let (mut keys, mut groups) = (new_table(), HashMap::<Vec<usize>, MatchTable>::new());
        let mut networks = NetworkIndexBuilder::default();
        for (index, key_match) in overrides.into_iter().enumerate() {
            let invalid = |problem: OverrideProblem<'_>| InvalidOverride {
                index,
                message: override_problem(template, &problem),
                is_by_value: matches!(problem, OverrideProblem::Value(_)),
                lacks_parts: matches!(problem, OverrideProblem::NoTemplate | OverrideProblem::UnknownPart { .. }),
            };
            let number = u32::try_from(index).unwrap_or(u32::MAX);
            let slot = match &key_match.pattern {
                KeyPattern::Key(key) if key.is_hmac() => {
                    on_invalid(invalid(OverrideProblem::HashedKey))?;
                    continue;
                }
                KeyPattern::Key(key) => keys.entry(MatchText::new(&key.encoding())),
                KeyPattern::Parts(parts) => {
                    let found = parsed.as_ref().ok_or(OverrideProblem::NoTemplate);
                    let (template, values) =
                        match found.and_then(|template| Ok((template, values_by_position(template, parts)?))) {
                            Ok(found) => found,
                            Err(problem) => {
                                on_invalid(invalid(problem))?;
                                continue;
                            }
                        };
                    if let Some(earlier) = networks.add(&values, number) {
                        on_invalid(invalid(OverrideProblem::Equal { earlier, index }))?;
                        continue;
                    }
                    match values.iter().copied().collect::<Option<Vec<_>>>() {
                        Some(values) => keys.entry(MatchText::new(&template.key(values).encoding())),
                        None => {
                            let positions = (0..values.len()).filter(|position| values[*position].is_some()).collect();
                            let values: Vec<_> = values.into_iter().flatten().map(part_outline).collect();
                            let text = match_text(values.iter().map(Vec::as_slice));
                            groups.entry(positions).or_insert_with(new_table).entry(MatchText::new(&text))
                        }
                    }
                }
            };
            match slot {
                Entry::Occupied(earlier) => {
                    on_invalid(invalid(OverrideProblem::Equal { earlier: *earlier.get(), index }))?;
                }
                Entry::Vacant(slot) => _ = slot.insert(number),
            }
        }
        let mut groups: Vec<_> = groups.into_iter().map(|(positions, table)| PartGroup { positions, table }).collect();
        groups.sort_by(|one, other| {
            (other.positions.len(), &one.positions).cmp(&(one.positions.len(), &other.positions))
        });
        let networks = networks.build();
        let any_by_parts = !groups.is_empty() || !networks.is_empty();
        let shape =
            parsed.filter(|_| any_by_parts).map_or_else(OutlineShape::default, |template| OutlineShape::new(&template));
        Ok(Self { keys, groups, networks, any_by_parts, shape })
    }

    /// Returns the index of the override that applies to a key.
    ///
    /// That is the one with the most matching parts. An override of the key itself matches all parts. Among these, exact
    /// values are before networks, and long networks before shorter ones. Among equals it is the first in the list.
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
        if !self.networks.is_empty()
            && let Some((index, len)) = self.networks.find(&parts)
            && found.is_none_or(|(_, exact)| len > exact)
        {
            found = Some((index, len));
        }
        usize::try_from(found?.0).ok()
    }
}

impl fmt::Debug for OverrideIndex {
    /// Formats the sizes alone: keys may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<_> = self.groups.iter().map(|group| (&group.positions, group.table.len())).collect();
        f.debug_struct("OverrideIndex").field("keys", &self.keys.len()).field("groups", &groups).finish_non_exhaustive()
    }
}

/// Overrides by the text that they match. The value is the index of the override.
type MatchTable = HashMap<MatchText, u32, Seed>;

/// The overrides that name the same parts.
struct PartGroup {
    /// The positions of the parts in the template.
    positions: Vec<usize>,
    /// The overrides by [`match_text`].
    table: MatchTable,
}

impl PartGroup {
    #[inline]
    fn find(&self, parts: &OutlineParts<'_>) -> Option<u32> {
        let found = match self.positions[..] {
            [position] => self.table.get(parts.get(position)),
            _ => self.find_several(parts),
        };
        found.copied()
    }

    /// Builds the text on the stack, unless it is long.
    fn find_several(&self, parts: &OutlineParts<'_>) -> Option<&u32> {
        let mut buffer = [0; 256];
        let mut len = 0;
        for position in &self.positions {
            let part = parts.get(*position);
            let end = len + 1 + part.len();
            let Some([mark, room @ ..]) = buffer.get_mut(len..end) else {
                return self.table.get(&match_text(self.positions.iter().map(|position| parts.get(*position)))[..]);
            };
            *mark = PART_MARK;
            room.copy_from_slice(part);
            len = end;
        }
        self.table.get(&buffer[..len])
    }
}

/// The text by which overrides of some parts are found: the outline of one part, or those of several, each after a
/// mark. Outlines contain no marks.
fn match_text<'a>(parts: impl ExactSizeIterator<Item = &'a [u8]>) -> Cow<'a, [u8]> {
    let is_single = parts.len() == 1;
    let mut text = Vec::new();
    for part in parts {
        if is_single {
            return Cow::Borrowed(part);
        }
        text.push(PART_MARK);
        text.extend_from_slice(part);
    }
    Cow::Owned(text)
}

/// A text in a table. A short one is stored inline, so that a look-up reads no other cache line.
enum MatchText {
    Short { len: u8, bytes: [u8; INLINE_CAPACITY] },
    Long(Box<[u8]>),
}

/// The inline capacity in bytes: enough for a UUID.
const INLINE_CAPACITY: usize = 38;

impl MatchText {
    fn new(text: &[u8]) -> Self {
        let mut bytes = [0; INLINE_CAPACITY];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(room), Ok(len)) => {
                room.copy_from_slice(text);
                Self::Short { len, bytes }
            }
            _ => Self::Long(text.into()),
        }
    }
}

impl Borrow<[u8]> for MatchText {
    #[inline]
    fn borrow(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len).min(INLINE_CAPACITY)],
            Self::Long(text) => text,
        }
    }
}

impl Hash for MatchText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let text: &[u8] = self.borrow();
        text.hash(state);
    }
}

impl PartialEq for MatchText {
    fn eq(&self, other: &Self) -> bool {
        let (text, other): (&[u8], &[u8]) = (self.borrow(), other.borrow());
        text == other
    }
}

impl Eq for MatchText {}

#[cfg(test)]
mod tests;
