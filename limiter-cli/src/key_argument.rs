//! Keys on the command line.

use rate_limited::Key;

use crate::arguments::KeyArguments;
use crate::failure::Failure;
use crate::output::visible;

impl KeyArguments {
    /// Returns the key: the encoded text, then the values.
    pub(crate) fn read(&self) -> Result<Key, Failure> {
        let Self { key, part } = self;
        let encoded = Key::from_encoded(key).map_err(|_| self.wrong_key())?;
        Ok(part.iter().fold(encoded, Key::part))
    }

    fn wrong_key(&self) -> Failure {
        let remedy = match &*self.key {
            "" => "write `+` for the key of an empty text".to_owned(),
            key => format!("write `{}` for this text, and values with `--part`", Key::new(key).encoded()),
        };
        Failure::usage(format!("`KEY` must be encoded as in Redis, such as `user:@42`, got another text: {remedy}"))
    }
}

/// Returns the texts and parts of a key as they were read, such as ``the text `user:` and the part `42` ``. `None` for a
/// key with a digest.
pub(crate) fn pieces(key: &Key) -> Option<String> {
    let encoded = key.encoded();
    if encoded.contains('+') {
        return None;
    }
    let piece = |(index, piece): (usize, &str)| match (index % 2, piece) {
        (0, "") => None,
        (0, text) => Some(format!("the text `{}`", visible(&without_escapes(text)))),
        (_, part) => Some(format!("the part `{}`", visible(&without_escapes(part)))),
    };
    let pieces: Vec<_> = encoded.split('@').enumerate().filter_map(piece).collect();
    let (last, others) = pieces.split_last()?;
    Some(if others.is_empty() { last.clone() } else { format!("{} and {last}", others.join(", ")) })
}

/// Returns a piece of an encoded key with its characters in place of their escapes.
fn without_escapes(piece: &str) -> String {
    let mut pieces = piece.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for escaped in pieces {
        let (hex, rest) = escaped.split_at_checked(2).unwrap_or((escaped, ""));
        bytes.extend(u8::from_str_radix(hex, 16));
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_as_its_texts_and_parts() {
        let shown = |key: &str| pieces(&Key::from_encoded(key).expect("an encoding"));
        assert_eq!(shown("getId").as_deref(), Some("the text `getId`"));
        assert_eq!(shown("user:ann@acme.com").as_deref(), Some("the text `user:ann` and the part `acme.com`"));
        let shown_parts = "the part `acme`, the text `/` and the part `a b@ü\\u{1b}`";
        assert_eq!(pieces(&Key::new("").part("acme").text("/").part("a b@ü\u{1b}")).as_deref(), Some(shown_parts));
        assert_eq!(shown("a@").as_deref(), Some("the text `a` and the part ``"));
        assert_eq!((shown("+"), pieces(&Key::new("a".repeat(300)))), (None, None));
    }
}
