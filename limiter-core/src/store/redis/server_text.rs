//! Text that a server chose, for errors and logs.

/// Characters that are kept of such a text.
const MAX_CHARS: usize = 200;

/// Escapes what a terminal or a log might obey, such as control characters and those that change the direction of writing,
/// and cuts what is longer than 200 characters.
pub(crate) fn printable(text: &str) -> String {
    let mut printable = String::new();
    let mut chars = 0;
    for letter in text.chars() {
        let escaped = escaped(letter);
        chars += escaped.chars().count();
        if chars > MAX_CHARS {
            printable.push('…');
            break;
        }
        printable.push_str(&escaped);
    }
    printable
}

fn escaped(letter: char) -> String {
    // Quotes and backslashes are as harmless as they are frequent.
    if letter.is_ascii_graphic() {
        return letter.to_string();
    }
    let escaped = letter.escape_debug().to_string();
    // Without braces: no error has any, since those would be a key's.
    match escaped.strip_prefix("\\u{").and_then(|escaped| escaped.strip_suffix('}')) {
        Some(digits) => format!("\\u{digits:0>4}"),
        None => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_what_a_terminal_obeys_and_nothing_else() {
        let cases = [
            ("plain 'words', \"quoted\" \\ and `so` on", "plain 'words', \"quoted\" \\ and `so` on"),
            ("Zürich 東京 🦀", "Zürich 東京 🦀"),
            ("\x1b[31mred\x07", "\\u001b[31mred\\u0007"),
            ("one\r\ntwo\tthree\0", "one\\r\\ntwo\\tthree\\0"),
            ("\u{9b}31m \u{7f} \u{202e}desrever\u{2028}", "\\u009b31m \\u007f \\u202edesrever\\u2028"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(printable(text), expected);
        }
    }

    #[test]
    fn cuts_between_characters() {
        assert_eq!(printable(&"a".repeat(200)), "a".repeat(200));
        for (letter, kept) in [("a", 200), ("é", 200), ("🦀", 200), ("\x1b", 33)] {
            let text = printable(&letter.repeat(10_000));
            assert_eq!(text, printable(letter).repeat(kept) + "…");
        }
    }
}
