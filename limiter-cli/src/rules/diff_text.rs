//! The difference of two texts, for people and as JSON.

use crate::output::{Output, Style, visible};
use limiter_inspect::{DiffLine, diff};

/// Returns the difference of two texts as text, one line each. Empty if they are equal.
pub(super) fn lines(old: &str, new: &str, output: &Output) -> Vec<String> {
    diff(old, new).into_iter().map(|line| paint(line, output)).collect()
}

/// Returns the difference without colours, for JSON and for errors.
pub(super) fn plain(old: &str, new: &str) -> String {
    diff(old, new).into_iter().map(|line| text(line) + "\n").collect()
}

fn paint(line: DiffLine<'_>, output: &Output) -> String {
    let style = match line {
        DiffLine::Hunk { .. } => Style::Cyan,
        DiffLine::Removed(_) => Style::Red,
        DiffLine::Added(_) => Style::Green,
        DiffLine::Same(_) | DiffLine::NoNewline => return text(line),
    };
    output.paint(style, text(line))
}

fn text(line: DiffLine<'_>) -> String {
    let range =
        |(first, count): (usize, usize)| if count == 1 { first.to_string() } else { format!("{first},{count}") };
    match line {
        DiffLine::Hunk { old, new } => format!("@@ -{} +{} @@", range(old), range(new)),
        DiffLine::Same(line) => format!(" {}", visible(line)),
        DiffLine::Removed(line) => format!("-{}", visible(line)),
        DiffLine::Added(line) => format!("+{}", visible(line)),
        DiffLine::NoNewline => "\\ No newline at end of file".to_owned(),
    }
}
