//! The name of a key where another program knows it by its text.

use std::fmt::Write;

use crate::key::{Key, PART_MARK};

impl Key {
    /// What the Spring system calls its set of this key.
    pub(crate) fn set(&self) -> String {
        format!("CurrentLimiter:{}", self.name())
    }

    /// The key for a reader who does not know the grammar: its texts as they were written, its parts as they are encoded.
    ///
    /// In the texts `%` and both marks stay escaped, so that names are as far apart as keys are: a `%`, `@` or `+` in a
    /// name means what it means in the key, and no other byte is written in two ways. The parts stay as they are, so that no
    /// value can move a hash tag. A key that is cut off at a digest is named as it is encoded, head and all.
    fn name(&self) -> String {
        let subject = self.subject().to_string();
        if self.digest.is_some() {
            return subject;
        }
        let mut name = String::with_capacity(subject.len());
        for (place, piece) in subject.split(PART_MARK).enumerate() {
            if place > 0 {
                name.push_str(PART_MARK);
            }
            match place % 2 {
                0 => written(piece, &mut name),
                _ => name.push_str(piece),
            }
        }
        name
    }
}

/// Undoes the escapes of a text, but for those of `%` and the marks.
fn written(text: &str, name: &mut String) {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = rest.get(1..3).filter(|_| first == b'%').and_then(byte);
        match escaped {
            Some(byte) if !matches!(byte, b'%' | b'@' | b'+') => {
                bytes.push(byte);
                rest = &rest[3..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    // Whole characters were escaped, so whole ones come back.
    let _ = write!(name, "{}", String::from_utf8_lossy(&bytes));
}

fn byte(hex: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn is_that_of_the_set() {
        assert_eq!(Key::new("getId").set(), "CurrentLimiter:getId");
    }

    #[test]
    fn is_the_text_as_written() {
        let cases = [
            (Key::new("getId"), "getId"),
            (Key::new("/api/order {id}?*"), "/api/order {id}?*"),
            (Key::new("查询 é🦀"), "查询 é🦀"),
            (Key::new("a\0\n"), "a\0\n"),
            (Key::new("100%, a@b + c"), "100%25, a%40b %2B c"),
            (Key::new("%7B"), "%257B"),
            (Key::new(""), "+"),
            (Key::new("user {").part("{é}").text("}"), "user {@%7B%C3%A9%7D@}"),
            (Key::new("").part("a").part("b"), "@a@@b"),
            (Key::new("").part("").text(" "), "@@ "),
        ];
        for (key, expected) in cases {
            assert_eq!(key.name(), expected);
        }
    }

    #[test]
    fn of_a_long_key_is_its_digest() {
        for key in
            [Key::new("a".repeat(201)), Key::new("é".repeat(34)), Key::new("a".repeat(134) + "{}" + &"b".repeat(99))]
        {
            assert_eq!(key.name(), key.subject().to_string());
            assert_eq!(key.name().len(), 200);
        }
        let longest = "é".repeat(33);
        assert_eq!(Key::new(&longest).name(), longest);
    }

    /// Every way to write a few nasty characters as texts and parts: two keys share a name only if they are one.
    #[test]
    fn no_two_keys_share_a_name() {
        let pieces = ["", "a", "@", "%", "%4", "40", "%40", "%2540", "{", "+", "a@b", "@@", "é", "\u{0}"];
        let mut seen: HashMap<String, Key> = HashMap::new();
        for first in pieces {
            for second in pieces {
                for third in pieces {
                    for key in [
                        Key::new(first).part(second).text(third),
                        Key::new(first).part(second).part(third),
                        Key::new(first).text(second).text(third),
                        Key::new("").part(first).text(second).part(third),
                    ] {
                        let other = seen.insert(key.name(), key.clone());
                        assert!(other.is_none_or(|other| other == key), "{:?}", key.name());
                    }
                }
            }
        }
        assert!(seen.len() > 5_000, "{}", seen.len());
    }

    #[test]
    fn no_value_moves_a_hash_tag() {
        for value in ["{", "}", "{a}", "}{", "%7B"] {
            assert!(!Key::new("user:").part(value).name().contains(['{', '}']), "{value}");
        }
    }
}
