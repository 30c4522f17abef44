//! Entries of a header that is a list, without quotes.

/// Returns the entries of all lines from the right, without the whitespace around them. An empty entry is one.
pub(super) fn from_right<'a>(lines: impl DoubleEndedIterator<Item = &'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
    lines.rev().flat_map(|line| line.rsplit(|byte| *byte == b',')).map(trim)
}

/// Removes the whitespace of HTTP around a text: spaces and tabs.
pub(super) fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}
