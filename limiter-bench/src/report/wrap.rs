//! Text in lines of limited length, for Markdown.

/// The most columns of a line.
const MAX_COLUMNS: usize = 120;

/// Returns the text in lines of at most 120 columns, with a line end after the last.
#[must_use]
pub fn paragraph(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    // A narrow no-break space between thousands is no place for a line end.
    for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > MAX_COLUMNS {
            lines += &std::mem::take(&mut line);
            lines.push('\n');
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_short_and_keep_every_word() {
        let text = "a word ".repeat(40);
        let wrapped = paragraph(&text);
        assert!(wrapped.lines().all(|line| line.len() <= MAX_COLUMNS) && wrapped.lines().count() == 3, "{wrapped}");
        assert_eq!(wrapped.split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
    }
}
