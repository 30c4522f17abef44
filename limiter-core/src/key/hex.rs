//! Digests in hex, in lower case.

use std::fmt::{self, Write};

/// Writes bytes in hex, in lower case.
pub(super) fn write_hex(bytes: &[u8], out: &mut impl Write) -> fmt::Result {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(HEX[usize::from(digit)])).try_for_each(|digit| out.write_char(digit))
}

/// Parses hex in lower case.
pub(super) fn parse_hex<const N: usize>(hex: &str) -> Option<[u8; N]> {
    if hex.len() != 2 * N || !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}
