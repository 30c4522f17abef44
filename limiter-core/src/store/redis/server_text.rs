//! Text from servers in errors and logs.

/// The most characters that are kept of a server's text.
const MAX_CHARS: usize = 200;

/// Escapes characters that a terminal or a log viewer interprets, and truncates the text to 200 characters. Such
/// characters are control characters and those that change the direction of writing.
pub(crate) fn escape_and_truncate(text: &str) -> String {
    let mut output = String::new();
    let mut chars = 0;
    for letter in text.chars() {
        let escaped = escape(letter);
        chars += escaped.chars().count();
        if chars > MAX_CHARS {
            output.push('…');
            break;
        }
        output.push_str(&escaped);
    }
    output
}

fn escape(letter: char) -> String {
    // Quotes and backslashes are frequent and harmless, so they are not escaped.
    if letter.is_ascii_graphic() {
        return letter.to_string();
    }
    let escaped = letter.escape_debug().to_string();
    // The braces are removed: only keys contain braces, and no error contains a key.
    match escaped.strip_prefix("\\u{").and_then(|escaped| escaped.strip_suffix('}')) {
        Some(digits) => format!("\\u{digits:0>4}"),
        None => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_only_characters_that_a_terminal_interprets() {
        let cases = [
            ("plain 'words', \"quoted\" \\ and `so` on", "plain 'words', \"quoted\" \\ and `so` on"),
            ("Zürich 東京 🦀", "Zürich 東京 🦀"),
            ("\x1b[31mred\x07", "\\u001b[31mred\\u0007"),
            ("one\r\ntwo\tthree\0", "one\\r\\ntwo\\tthree\\0"),
            ("\u{9b}31m \u{7f} \u{202e}desrever\u{2028}", "\\u009b31m \\u007f \\u202edesrever\\u2028"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(escape_and_truncate(text), expected);
        }
    }

    #[test]
    fn truncates_between_characters() {
        assert_eq!(escape_and_truncate(&"a".repeat(200)), "a".repeat(200));
        for (letter, kept) in [("a", 200), ("é", 200), ("🦀", 200), ("\x1b", 33)] {
            let text = escape_and_truncate(&letter.repeat(10_000));
            assert_eq!(text, escape_and_truncate(letter).repeat(kept) + "…");
        }
    }
}
