//! The outline of a key, split into the parts of a template.

use std::borrow::Cow;

use crate::Key;
use crate::key::{KeyTemplate, MAX_OUTLINE_PARTS};

/// The byte before each part of an outline, and behind it.
pub(super) const PART_MARK: u8 = b'@';

/// The outline of a template's keys: the encoded texts around the parts, with their marks.
#[derive(Default)]
pub(super) struct OutlineShape {
    /// The text before each part, with the marks around it.
    before: Vec<Box<[u8]>>,
    /// The text after the last part, with the mark before it; empty for an empty text.
    end: Box<[u8]>,
}

impl OutlineShape {
    pub(super) fn new(template: &KeyTemplate) -> Self {
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
    pub(super) fn split(&self, parts: &mut OutlineParts<'_>) -> bool {
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
pub(super) struct OutlineParts<'a> {
    outline: &'a [u8],
    /// The start and the end of each part, in one number each, which is written and read at once.
    spans: [u32; MAX_OUTLINE_PARTS],
}

impl<'a> OutlineParts<'a> {
    /// The parts of an outline before [`OutlineShape::split`] finds them.
    #[inline]
    pub(super) fn new(outline: &'a [u8]) -> Self {
        Self { outline, spans: [0; MAX_OUTLINE_PARTS] }
    }

    /// An outline has less than 2^16 bytes.
    #[inline]
    fn span(start: usize, end: usize) -> u32 {
        let half = |at: usize| u32::from(u16::try_from(at).unwrap_or(u16::MAX));
        half(start) << 16 | half(end)
    }

    #[inline]
    pub(super) fn get(&self, position: usize) -> &'a [u8] {
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
pub(super) fn part_outline(value: &str) -> Vec<u8> {
    // The first mark is that of the part.
    outline_of(&Key::new("").part(value)).split_off(1)
}

/// The outline of a key that was not read from a digest.
fn outline_of(key: &Key) -> Vec<u8> {
    key.outline().map_or_else(Vec::new, Cow::into_owned)
}
