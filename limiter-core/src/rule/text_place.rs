//! The place of a rule in a text.

use std::fmt;

/// Line and column of a rule in its text, from 1. Without a text there is none.
///
/// Rules are equal wherever they are, so all places are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TextPlace {
    line: u32,
    column: u32,
}

impl TextPlace {
    #[cfg(feature = "rules")]
    pub(crate) fn new(line: usize, column: usize) -> Self {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: number(line), column: number(column) }
    }

    /// The line. 0 without a text.
    pub(crate) fn line(self) -> u32 {
        self.line
    }

    /// Returns a message about the rule, with the place in front.
    pub(crate) fn locate(self, problem: &str) -> String {
        format!("{self}{problem}")
    }
}

impl PartialEq for TextPlace {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Display for TextPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { line: 0, .. } => Ok(()),
            Self { line, column } => write!(f, "line {line}, column {column}: "),
        }
    }
}
