//! The overrides of one rule, indexed by the keys that they match.

use std::borrow::{Borrow, Cow};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::Key;
use crate::key::{KeyTemplate, MAX_OUTLINE_PARTS, TemplatePart};
use crate::rule::key_match::{KeyMatch, KeyPattern};
use crate::rule::suggest::nearest;
use crate::sync::{Seed, seed};

mod networks;

use networks::{AddressProblem, NetworkIndex, NetworkIndexBuilder, address_problem, check_address};

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
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidOverride {
    /// The index of the override in the list.
    pub(crate) index: usize,
    /// The message of the [`ErrorKind::Config`](crate::ErrorKind::Config) error.
    pub(crate) message: String,
    /// True if the key has all parts that the override names, but never with one of its values.
    pub(crate) is_by_value: bool,
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
                is_by_value: matches!(problem, OverrideProblem::Address { .. }),
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
        let mut parts = OutlineParts { outline: &outline, spans: [0; MAX_OUTLINE_PARTS] };
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

const PART_MARK: u8 = b'@';

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

/// The outline of a template's keys: the encoded texts around the parts, with their marks.
#[derive(Default)]
struct OutlineShape {
    /// The text before each part, with the marks around it.
    before: Vec<Box<[u8]>>,
    /// The text after the last part, with the mark before it; empty for an empty text.
    end: Box<[u8]>,
}

impl OutlineShape {
    fn new(template: &KeyTemplate) -> Self {
        let outlines: Vec<_> = template.texts.iter().map(|text| text_outline(text)).collect();
        let mark = &[PART_MARK][..];
        let (end, before) = outlines.split_last().map_or((&[][..], &[][..]), |(end, before)| (&end[..], before));
        let surrounded = |(index, text): (usize, &Vec<u8>)| {
            let first = if index == 0 { &[][..] } else { mark };
            [first, text, mark].concat().into()
        };
        let before = before.iter().enumerate().map(surrounded).collect();
        let end = if end.is_empty() { Vec::new() } else { [mark, end].concat() };
        Self { before, end: end.into() }
    }

    /// Finds the parts in the outline of a key. Returns false for a key of another template.
    ///
    /// It writes the parts where the caller reads them: to move them takes longer than to find them.
    #[inline]
    fn split(&self, parts: &mut OutlineParts<'_>) -> bool {
        let OutlineParts { outline, spans } = parts;
        let mut at = 0;
        for (before, span) in self.before.iter().zip(spans) {
            let Some(rest) = outline.get(at..).and_then(|rest| without_prefix(rest, before)) else { return false };
            let start = outline.len() - rest.len();
            at = start + rest.iter().position(|byte| *byte == PART_MARK).unwrap_or(rest.len());
            *span = OutlineParts::span(start, at);
        }
        outline.get(at..).and_then(|rest| without_prefix(rest, &self.end)).is_some_and(<[u8]>::is_empty)
    }
}

/// Returns the text after a prefix. Most prefixes have a few bytes, for which a loop is faster than a call.
#[inline]
fn without_prefix<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.iter().zip(prefix).all(|(byte, other)| byte == other).then_some(rest)
}

/// The outlines of a key's parts.
struct OutlineParts<'a> {
    outline: &'a [u8],
    /// The start and the end of each part, in one number each, which is written and read at once.
    spans: [u32; MAX_OUTLINE_PARTS],
}

impl<'a> OutlineParts<'a> {
    /// An outline has less than 2^16 bytes.
    #[inline]
    fn span(start: usize, end: usize) -> u32 {
        let half = |at: usize| u32::from(u16::try_from(at).unwrap_or(u16::MAX));
        half(start) << 16 | half(end)
    }

    #[inline]
    fn get(&self, position: usize) -> &'a [u8] {
        let [start_high, start_low, end_high, end_low] =
            self.spans.get(position).copied().unwrap_or_default().to_be_bytes();
        let (start, end) = (u16::from_be_bytes([start_high, start_low]), u16::from_be_bytes([end_high, end_low]));
        self.outline.get(usize::from(start)..usize::from(end)).unwrap_or_default()
    }
}

/// The outline of a text.
fn text_outline(text: &str) -> Vec<u8> {
    outline_of(&Key::new(text))
}

/// The outline of a part.
fn part_outline(value: &str) -> Vec<u8> {
    // The first mark is that of the part.
    outline_of(&Key::new("").part(value)).split_off(1)
}

/// The outline of a key that was not read from a digest.
fn outline_of(key: &Key) -> Vec<u8> {
    key.outline().map_or_else(Vec::new, Cow::into_owned)
}

/// Returns the value at each position of the template, if the override names it.
fn values_by_position<'a>(
    template: &KeyTemplate,
    parts: &'a [(String, String)],
) -> Result<Vec<Option<&'a str>>, OverrideProblem<'a>> {
    if template.parts.len() > MAX_OUTLINE_PARTS {
        return Err(OverrideProblem::ManyParts);
    }
    if parts.is_empty() {
        return Err(OverrideProblem::NoParts);
    }
    let mut values = vec![None; template.parts.len()];
    for (name, value) in parts {
        let positions = positions_of(template, name);
        if positions.is_empty() {
            return Err(OverrideProblem::UnknownPart { name, names: template.parts.iter().map(full_name).collect() });
        }
        for position in positions {
            if values[position].replace(&value[..]).is_some() {
                return Err(OverrideProblem::DoubledPart(name));
            }
            if let Some(prefixes) = template.parts[position].addresses {
                check_address(value, prefixes).map_err(|problem| OverrideProblem::Address { name, problem })?;
            }
        }
    }
    Ok(values)
}

/// Returns the positions of the parts with a name: the text between the braces, or else the only expression that is
/// equal to the name.
fn positions_of(template: &KeyTemplate, name: &str) -> Vec<usize> {
    let having = |is_named: &dyn Fn(&TemplatePart) -> bool| -> Vec<usize> {
        (0..template.parts.len()).filter(|position| is_named(&template.parts[*position])).collect()
    };
    let by_full_name = having(&|part| full_name(part) == name);
    if !by_full_name.is_empty() {
        return by_full_name;
    }
    let by_expression = having(&|part| part.expression == name);
    let is_one_name = by_expression.windows(2).all(|pair| template.parts[pair[0]] == template.parts[pair[1]]);
    if is_one_name { by_expression } else { Vec::new() }
}

/// The template without the prefixes of its addresses.
fn without_prefixes(template: &str) -> Cow<'_, str> {
    let Some(parsed) =
        KeyTemplate::parse(template).filter(|parsed| parsed.parts.iter().any(|part| part.addresses.is_some()))
    else {
        return Cow::Borrowed(template);
    };
    let mut texts = parsed.texts.iter().map(|text| text.replace('{', "{{").replace('}', "}}"));
    let first = texts.next().unwrap_or_default();
    let rest = parsed.parts.iter().zip(texts).map(|(part, text)| format!("{{{}}}{text}", full_name(part)));
    Cow::Owned(rest.fold(first, |template, part| template + &part))
}

/// The text between the braces of a part.
fn full_name(part: &TemplatePart) -> String {
    match &part.spec {
        None => part.expression.clone(),
        Some(spec) => format!("{}:{spec}", part.expression),
    }
}

/// The reason why an override cannot be in the index.
enum OverrideProblem<'a> {
    NoTemplate,
    ManyParts,
    NoParts,
    UnknownPart { name: &'a str, names: Vec<String> },
    DoubledPart(&'a str),
    Address { name: &'a str, problem: AddressProblem },
    HashedKey,
    Equal { earlier: u32, index: usize },
}

/// Returns the message for an override that cannot be in the index. It contains no values, which may be personal data.
fn override_problem(template: Option<&str>, problem: &OverrideProblem<'_>) -> String {
    match problem {
        OverrideProblem::NoTemplate => {
            "`parts` must be used with a key that is a template such as `user:{user_id}`, got a rule whose key is an \
             expression: use `KeyMatch::key`"
                .to_owned()
        }
        OverrideProblem::ManyParts => {
            format!("`parts` must be used with a key of at most {MAX_OUTLINE_PARTS} parts, got more: use `KeyMatch::key`")
        }
        OverrideProblem::NoParts => {
            "`parts` must name at least one part, got none: write the settings into the rule itself".to_owned()
        }
        OverrideProblem::UnknownPart { name, names } => {
            let template = template.map(without_prefixes).unwrap_or_default();
            let list = names.join("`, `");
            match nearest(name, names.iter().map(String::as_str)) {
                Some(nearest) => {
                    format!("`parts` must name parts of the key `{template}`, got `{name}`: write `{nearest}`")
                }
                None if names.is_empty() => {
                    format!("`parts` must be left out for `{template}`, a key without parts: use `KeyMatch::key`")
                }
                None => format!("`parts` must name parts of the key `{template}`, got `{name}`: write one of `{list}`"),
            }
        }
        OverrideProblem::DoubledPart(name) => format!("`parts` must name each part once, got `{name}` twice: remove one"),
        OverrideProblem::Address { name, problem } => address_problem(name, problem),
        OverrideProblem::HashedKey => {
            "`key` of an override must be a plain key or its SHA-256 digest, got a digest of `hash_keys`: write the key \
             itself"
                .to_owned()
        }
        OverrideProblem::Equal { earlier, index } => {
            let (first, second) = (u64::from(*earlier) + 1, index + 1);
            format!(
                "`overriding` must have one `Rule` for each match, got number {second} that matches the same keys as \
                 number {first}: remove one"
            )
        }
    }
}

#[cfg(test)]
mod tests;
