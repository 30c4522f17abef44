//! The name of a rule as a string of structured fields.

use std::fmt::{self, Display, Write};

/// The name of a rule as the content of a string of RFC 9651, and of JSON.
///
/// Printable ASCII stays as it is. Other characters and `%` are percent-encoded, so two names never have one text. The
/// quote and the backslash get a backslash, as both grammars want it.
pub(super) struct PolicyName<'a>(pub(super) &'a str);

impl Display for PolicyName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            match byte {
                b'"' | b'\\' => {
                    f.write_char('\\')?;
                    f.write_char(char::from(byte))?;
                }
                b' '..=b'~' if byte != b'%' => f.write_char(char::from(byte))?,
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_characters_than_printable_ascii_are_encoded() {
        let cases = [
            ("api", "api"),
            ("user:{id}", "user:{id}"),
            (r#"a "quoted" \ name"#, r#"a \"quoted\" \\ name"#),
            ("größe", "gr%C3%B6%C3%9Fe"),
            ("100%", "100%25"),
            ("%C3", "%25C3"),
            ("a\r\nb\u{7f}", "a%0D%0Ab%7F"),
            ("", ""),
        ];
        for (name, text) in cases {
            assert_eq!(PolicyName(name).to_string(), text);
        }
    }
}
