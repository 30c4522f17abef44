//! The name of a key's sorted set, as the Spring library redis-current-limiter writes it.

use std::fmt::Write;

use crate::key::{Key, PART_MARK};

impl Key {
    /// The Redis key of the sorted set that the Spring library uses for this key.
    pub(crate) fn spring_set_name(&self) -> String {
        format!("CurrentLimiter:{}", self.name())
    }

    /// The key with its texts unescaped and its parts as encoded.
    ///
    /// In the texts `%` and both marks stay escaped, so different keys have different names. A `%`, `@` or `+` in a
    /// name then means the same as in the encoding, and no other byte is written in two ways. The parts stay escaped,
    /// so that no value can change the hash tag. The name of a key with a digest is its encoding.
    fn name(&self) -> String {
        let subject = self.subject().to_string();
        if self.long.is_some() {
            return subject;
        }
        let mut name = String::with_capacity(subject.len());
        for (index, piece) in subject.split(PART_MARK).enumerate() {
            if index > 0 {
                name.push_str(PART_MARK);
            }
            match index % 2 {
                0 => push_unescaped(piece, &mut name),
                _ => name.push_str(piece),
            }
        }
        name
    }
}

/// Appends a text to `name` without its escapes, except those of `%` and the marks.
fn push_unescaped(text: &str, name: &mut String) {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = rest.get(1..3).filter(|_| first == b'%').and_then(parse_hex_byte);
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
    // Nothing is lost: only whole characters are escaped, so the bytes are UTF-8.
    let _ = write!(name, "{}", String::from_utf8_lossy(&bytes));
}

fn parse_hex_byte(hex: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn zset_key_matches_spring() {
        assert_eq!(Key::new("getId").spring_set_name(), "CurrentLimiter:getId");
    }

    #[test]
    fn the_name_has_texts_as_written_and_parts_as_encoded() {
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
    fn the_name_of_a_long_key_is_its_encoding() {
        for key in
            [Key::new("a".repeat(201)), Key::new("é".repeat(34)), Key::new("a".repeat(134) + "{}" + &"b".repeat(99))]
        {
            assert_eq!(key.name(), key.subject().to_string());
            assert_eq!(key.name().len(), 200);
        }
        let longest = "é".repeat(33);
        assert_eq!(Key::new(&longest).name(), longest);
    }

    /// The pieces contain all marks and escapes.
    #[test]
    fn different_keys_have_different_names() {
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
    fn no_value_changes_the_hash_tag() {
        for value in ["{", "}", "{a}", "}{", "%7B"] {
            assert!(!Key::new("user:").part(value).name().contains(['{', '}']), "{value}");
        }
    }
}
