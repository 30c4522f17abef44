//! Overrides of exact values: tables by the texts of the keys or parts that they match.

use std::borrow::{Borrow, Cow};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use super::outline_parts::{OutlineParts, PART_MARK};
use crate::sync::Seed;

/// Overrides by the text that they match. The value is the index of the override.
pub(super) type MatchTable = HashMap<MatchText, u32, Seed>;

/// The overrides that name the same parts.
pub(super) struct ExactGroup {
    /// The positions of the parts in the template.
    pub(super) positions: Vec<usize>,
    /// The overrides by [`match_text`].
    pub(super) table: MatchTable,
}

impl ExactGroup {
    #[inline]
    pub(super) fn find(&self, parts: &OutlineParts<'_>) -> Option<u32> {
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
pub(super) fn match_text<'a>(parts: impl ExactSizeIterator<Item = &'a [u8]>) -> Cow<'a, [u8]> {
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
pub(super) enum MatchText {
    Short { len: u8, bytes: [u8; INLINE_CAPACITY] },
    Long(Box<[u8]>),
}

/// The inline capacity in bytes: enough for a UUID.
const INLINE_CAPACITY: usize = 38;

impl MatchText {
    pub(super) fn new(text: &[u8]) -> Self {
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
