//! Well-formed keys that a text probably means, such as `user:@4711` for `4711` and `user:4711`.

use std::net::IpAddr;

use limiter_syntax::{Piece, pieces};
use rate_limited::Key;

use crate::fleet::fits;
use crate::key_pieces::texts_and_parts;
use crate::misspelling::is_misspelt;

/// The most keys that are suggested.
const MAX_KEYS: usize = 5;

/// Returns the keys of these templates that a text probably means, in their encoding, the likeliest first.
#[must_use]
pub fn nearest_keys<'t>(typed: &str, templates: impl IntoIterator<Item = &'t str>) -> Vec<String> {
    let mut found: Vec<(u8, String)> = Vec::new();
    for template in templates {
        let Some((texts, names)) = texts_and_names(template).filter(|(_, names)| !names.is_empty()) else { continue };
        let ways: [(u8, Option<Vec<String>>); 3] = [
            (0, values_between(typed, &texts)),
            (1, values_of_misspelt(typed, &texts)),
            (2, (names.len() == 1 && is_one_value(typed)).then(|| vec![typed.to_owned()])),
        ];
        let suggest = |(rank, values): (u8, Option<Vec<String>>)| {
            let values = values?;
            let is_other_kind = |(name, value): (&&str, &String)| is_address(name) != value.parse::<IpAddr>().is_ok();
            let rank = rank + if names.iter().zip(&values).any(is_other_kind) { 3 } else { 0 };
            // A text is no address.
            let is_wrong = |(name, value): (&&str, &String)| is_address(name) && value.parse::<IpAddr>().is_err();
            if names.iter().zip(&values).any(is_wrong) {
                return None;
            }
            let key = encode(&texts, &values);
            let is_key = Key::from_encoded(&key).is_ok_and(|key| fits(template, &key) == Some(true));
            (is_key && key != typed).then_some((rank, key))
        };
        found.extend(ways.into_iter().find_map(suggest));
    }
    found.sort();
    found.dedup_by(|one, other| one.1 == other.1);
    found.into_iter().map(|(_, key)| key).take(MAX_KEYS).collect()
}

/// Returns the texts of a template, one more than its values, and the names of the values.
fn texts_and_names(template: &str) -> Option<(Vec<String>, Vec<&str>)> {
    let (mut texts, mut names) = (vec![String::new()], Vec::new());
    for piece in pieces(template) {
        match piece.ok()? {
            Piece::Text(text) => texts.last_mut()?.push_str(&text),
            Piece::Value { expression, .. } => {
                names.push(expression);
                texts.push(String::new());
            }
        }
    }
    Some((texts, names))
}

/// Returns the values of a text that has the texts of a template around them, such as `user:4711`.
fn values_between(typed: &str, texts: &[String]) -> Option<Vec<String>> {
    let [first, middle @ .., last] = texts else { return None };
    if texts.iter().all(String::is_empty) {
        return None;
    }
    let mut rest = typed.strip_prefix(first.as_str())?.strip_suffix(last.as_str())?;
    let mut values = Vec::new();
    for text in middle {
        let (value, behind) = rest.split_once(text.as_str()).filter(|_| !text.is_empty())?;
        values.push(value);
        rest = behind;
    }
    values.push(rest);
    // A value that begins with the sign of the encoding is one.
    let values: Vec<_> = values.into_iter().map(|value| value.trim_start_matches('@').to_owned()).collect();
    values.iter().all(|value| !value.is_empty()).then_some(values)
}

/// Returns the values of an encoded key whose texts are misspelt, such as `usr:@4711`.
fn values_of_misspelt(typed: &str, texts: &[String]) -> Option<Vec<String>> {
    let mut found = texts_and_parts(&Key::from_encoded(typed).ok()?)?;
    if found.len() % 2 == 0 {
        found.push(String::new());
    }
    let of_key = || found.iter().step_by(2);
    let is_near = |(text, own): (&String, &String)| text == own || is_misspelt(text, own);
    let is_found = of_key().count() == texts.len() && of_key().zip(texts).all(is_near);
    is_found.then(|| found.iter().skip(1).step_by(2).cloned().collect())
}

/// Returns whether a text is a value without the texts of a key.
fn is_one_value(typed: &str) -> bool {
    !typed.is_empty() && (typed.parse::<IpAddr>().is_ok() || !typed.contains([':', '@', '+']))
}

/// Returns whether a value of this name is probably an address.
fn is_address(name: &str) -> bool {
    let last = name.rsplit(['.', '_', '(']).find(|word| !word.trim_matches(')').is_empty()).unwrap_or(name);
    ["ip", "addr", "address"].contains(&last.trim_end_matches(|letter: char| !letter.is_alphabetic()))
}

fn encode(texts: &[String], values: &[String]) -> String {
    let text = |text: &String| if text.is_empty() { String::new() } else { Key::new(text).encoded() };
    let mut key = text(&texts[0]);
    for (place, value) in values.iter().enumerate() {
        key.push_str(&Key::new("").part(value).encoded());
        let next = text(&texts[place + 1]);
        if !next.is_empty() || place + 1 < values.len() {
            key.push('@');
            key.push_str(&next);
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_the_signs_of_the_encoding_is_a_key_of_the_template() {
        let templates = ["search:{ip}", "user:{user_id}", "order:{tenant}:{id:08}", "getId", "{a}{b}"];
        for (typed, expected) in [
            ("4711", &["user:@4711"][..]),
            ("user:4711", &["user:@4711"]),
            ("usr:@4711", &["user:@4711"]),
            ("user@4711", &["user:@4711"]),
            ("203.0.113.9", &["search:@203.0.113.9", "user:@203.0.113.9"]),
            ("search:203.0.113.9", &["search:@203.0.113.9"]),
            ("order:acme:7", &["order:@acme@:@7"]),
            ("ana maria", &["user:@ana%20maria"]),
            ("order:acme", &[]),
            ("user:", &[]),
            ("", &[]),
        ] {
            assert_eq!(nearest_keys(typed, templates), expected, "{typed}");
        }
        assert_eq!(nearest_keys(&"x".repeat(300), templates), [""; 0], "a digest");
    }
}
