//! Mistakes in a text, with their positions.

use crate::rule::TextPlace;
use crate::{Error, ErrorKind};

/// A mistake in a text, at a byte of it.
#[derive(Debug)]
pub(crate) struct Mistake {
    problem: String,
    at: usize,
}

/// Creates the mistake that a setting at the byte `at` is.
pub(super) fn config_error(problem: impl Into<String>, at: usize) -> Mistake {
    Mistake::new(problem.into(), at)
}

impl Mistake {
    pub(super) fn new(problem: String, at: usize) -> Self {
        Self { problem, at }
    }

    /// Returns the error with line and column.
    pub(crate) fn locate(self, text: &str) -> Error {
        let Self { problem, at } = self;
        Error::new(ErrorKind::Config, TextLines::new(text).place(at).locate(&problem))
    }
}

/// A text with the starts of its lines.
pub(super) struct TextLines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> TextLines<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self { text, starts: [0].into_iter().chain(newlines.map(|(at, _)| at + 1)).collect() }
    }

    /// Returns the line and the column of a byte. Columns are characters, and bytes far to the right in a long line.
    pub(super) fn place(&self, at: usize) -> TextPlace {
        /// Characters are counted up to here, so that many places in one line do not take long.
        const MAX_COUNTED_BYTES: usize = 1000;
        let line = self.starts.partition_point(|start| *start <= at);
        let start = self.starts[line.saturating_sub(1)];
        let before = &self.text.as_bytes()[start..at.clamp(start, self.text.len())];
        let (counted, rest) = before.split_at(before.len().min(MAX_COUNTED_BYTES));
        // The first bytes of characters.
        let columns = counted.iter().filter(|byte| (**byte & 0xC0) != 0x80).count() + rest.len();
        TextPlace::new(line, columns + 1)
    }
}
