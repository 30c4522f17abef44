//! The difference of two texts, line by line, in the unified format.

use std::ops::Range;
use std::time::Duration;

use similar::{ChangeTag, DiffOp, TextDiff};

/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// The longest search for the shortest difference. After that a longer one is shown.
const MAX_SEARCH: Duration = Duration::from_millis(500);

/// A line of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffLine<'t> {
    /// The places of the lines that follow: first line and number of lines, of both texts.
    Hunk {
        /// The first line and the number of lines of the old text.
        old: (usize, usize),
        /// The first line and the number of lines of the new text.
        new: (usize, usize),
    },
    /// A line of both texts.
    Same(&'t str),
    /// A line of the old text.
    Removed(&'t str),
    /// A line of the new text.
    Added(&'t str),
    /// The line above has no newline.
    NoNewline,
}

/// Returns the changed lines with those around them, without their ends. Empty if the texts are equal.
///
/// A carriage return is a part of its line, unless all lines of both texts have one.
#[must_use]
pub fn diff<'t>(old: &'t str, new: &'t str) -> Vec<DiffLine<'t>> {
    let has_crlf = |text: &str| text.matches('\n').count() == text.matches("\r\n").count();
    let end = if has_crlf(old) && has_crlf(new) { "\r\n" } else { "\n" };
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let diff = TextDiff::configure().timeout(MAX_SEARCH).diff_slices(&old, &new);
    let mut lines = Vec::new();
    for group in diff.grouped_ops(CONTEXT_LINES) {
        lines.push(hunk(&group));
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let whole = change.value();
            let line = whole.strip_suffix(end).unwrap_or(whole);
            lines.push(match change.tag() {
                ChangeTag::Equal => DiffLine::Same(line),
                ChangeTag::Delete => DiffLine::Removed(line),
                ChangeTag::Insert => DiffLine::Added(line),
            });
            if !whole.ends_with('\n') {
                lines.push(DiffLine::NoNewline);
            }
        }
    }
    lines
}

/// Returns the places of a group of changes. Without lines it is the place before.
fn hunk<'t>(group: &[DiffOp]) -> DiffLine<'t> {
    let place = |range: fn(&DiffOp) -> Range<usize>| {
        let (first, end) = (group.first().map_or(0, |op| range(op).start), group.last().map_or(0, |op| range(op).end));
        if first == end { (first, 0) } else { (first + 1, end - first) }
    };
    DiffLine::Hunk { old: place(DiffOp::old_range), new: place(DiffOp::new_range) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(old: &str, new: &str) -> Vec<String> {
        let text = |line: &DiffLine<'_>| match line {
            DiffLine::Hunk { old, new } => format!("@@ -{},{} +{},{} @@", old.0, old.1, new.0, new.1),
            DiffLine::Same(line) => format!(" {line}"),
            DiffLine::Removed(line) => format!("-{line}"),
            DiffLine::Added(line) => format!("+{line}"),
            DiffLine::NoNewline => "no newline".to_owned(),
        };
        diff(old, new).iter().map(text).collect()
    }

    #[test]
    fn equal_texts_have_no_difference() {
        assert_eq!(shown("a\nb\n", "a\nb\n"), [""; 0]);
        assert_eq!(shown("", ""), [""; 0]);
    }

    #[test]
    fn changes_are_shown_with_three_lines_around_them() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = "1\n2\n3\n4\nfive\n6\n7\n8\n9\n";
        let expected = ["@@ -2,7 +2,7 @@", " 2", " 3", " 4", "-5", "+five", " 6", " 7", " 8"];
        assert_eq!(shown(old, new), expected);
        assert_eq!(shown("", "a\nb\n"), ["@@ -0,0 +1,2 @@", "+a", "+b"]);
        assert_eq!(shown("a\nb\n", ""), ["@@ -1,2 +0,0 @@", "-a", "-b"]);
    }

    #[test]
    fn ends_of_lines_are_compared() {
        assert_eq!(shown("a\nb\n", "a\nb"), ["@@ -1,2 +1,2 @@", " a", "-b", "+b", "no newline"]);
        assert_eq!(shown("a\nb", "c\nb"), ["@@ -1,2 +1,2 @@", "-a", "+c", " b", "no newline"]);
        assert_eq!(shown("a\nb\n", "a\r\nb\n"), ["@@ -1,2 +1,2 @@", "-a", "+a\r", " b"]);
        assert_eq!(shown("a\r\nb\r\n", "a\r\nc\r\n"), ["@@ -1,2 +1,2 @@", " a", "-b", "+c"]);
        assert_eq!(shown("\n", ""), ["@@ -1,1 +0,0 @@", "-"]);
    }

    #[test]
    fn texts_of_a_megabyte_that_differ_in_all_lines_are_compared() {
        let text = |letter: &str| (0..40_000).map(|line| format!("{letter}{line} = 1\n")).collect::<String>();
        assert_eq!(diff(&text("a"), &text("b")).len(), 80_001);
    }
}
