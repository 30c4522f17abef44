//! The texts and parts of an encoded key.

use rate_limited::Key;

/// Returns the texts and parts of a key in turn: a text first, which may be empty. `None` for a key with a digest.
#[must_use]
pub fn texts_and_parts(key: &Key) -> Option<Vec<String>> {
    let encoded = key.encoded();
    if encoded.contains('+') {
        return None;
    }
    Some(encoded.split('@').map(without_escapes).collect())
}

/// Returns a piece of an encoded key with its characters in place of their escapes.
#[must_use]
pub fn without_escapes(piece: &str) -> String {
    let mut pieces = piece.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for escaped in pieces {
        let (hex, rest) = escaped.split_at_checked(2).unwrap_or((escaped, ""));
        bytes.extend(u8::from_str_radix(hex, 16));
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
