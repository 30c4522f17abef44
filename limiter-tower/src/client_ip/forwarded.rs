//! The elements of `Forwarded` (RFC 7239), from the right.
//!
//! A proxy appends its element on the right, and a client may have written anything to the left of it. So the elements
//! are split from the right as well: no byte to the left of the counted element is read. For a well-formed list this
//! yields the elements of the grammar. A quote outside of a quoted string can only be the one that ends it, and the one
//! that begins it is the next one to the left that is not escaped.

use std::iter;
use std::net::IpAddr;
use std::num::NonZeroUsize;

use http::header::FORWARDED;

use super::entries;
use super::node::{self, MAX_NODE_BYTES};
use crate::missing::Lack;

/// Returns the address in the `for` of the element at this position from the right, over all lines.
pub(super) fn address<'a>(
    lines: impl DoubleEndedIterator<Item = &'a [u8]>,
    position: NonZeroUsize,
) -> Result<IpAddr, Lack> {
    let (needed, mut found) = (position.get(), 0);
    for (at, element) in (1..).zip(lines.rev().flat_map(elements_from_right)) {
        let element = element.ok_or(Lack::NoAddress(FORWARDED))?;
        if at == needed {
            let address = sole_for(entries::trim(element)).and_then(|value| value.address());
            return address.ok_or(Lack::NoAddress(FORWARDED));
        }
        found = at;
    }
    Err(Lack::TooFewEntries { header: FORWARDED, found, needed })
}

/// Returns the elements of a line from the right. It ends with `None` if a quote has no partner.
fn elements_from_right(line: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = Some(line);
    iter::from_fn(move || {
        let line = rest.take()?;
        Some(start_of_last(line).map(|start| {
            rest = start.checked_sub(1).map(|comma| &line[..comma]);
            &line[start..]
        }))
    })
}

/// Returns the start of the last element of a line: 0, or the byte behind a comma. `None` if a quote has no partner.
fn start_of_last(line: &[u8]) -> Option<usize> {
    let mut end = line.len();
    while let Some(at) = line[..end].iter().rposition(|byte| matches!(byte, b',' | b'"')) {
        if line[at] == b',' {
            return Some(at + 1);
        }
        if is_escaped(line, at) {
            return None;
        }
        end = start_of_quoted(&line[..at])?;
    }
    Some(0)
}

/// Returns the position of the quote that begins the quoted string at the end of a text.
fn start_of_quoted(text: &[u8]) -> Option<usize> {
    let mut end = text.len();
    loop {
        end = text[..end].iter().rposition(|byte| *byte == b'"')?;
        if !is_escaped(text, end) {
            return Some(end);
        }
    }
}

/// Returns whether an odd number of backslashes precedes the byte at this position.
fn is_escaped(text: &[u8], at: usize) -> bool {
    text[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The value of a pair.
enum PairValue<'a> {
    Token(&'a [u8]),
    /// The text between the quotes, with its escapes.
    Quoted(&'a [u8]),
}

/// Returns the value of `for` in an element; `None` if there is not exactly one, or if the element is malformed.
fn sole_for(element: &[u8]) -> Option<PairValue<'_>> {
    let mut found = None;
    let mut rest = element;
    loop {
        if !matches!(rest, [] | [b';', ..]) {
            let (name, behind) = split_token(rest)?;
            let (value, behind) = split_value(behind.strip_prefix(b"=")?)?;
            if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
                return None;
            }
            rest = behind;
        }
        match rest {
            [] => return found,
            [b';', behind @ ..] => rest = behind,
            _ => return None,
        }
    }
}

fn split_value(text: &[u8]) -> Option<(PairValue<'_>, &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        return split_token(text).map(|(token, behind)| (PairValue::Token(token), behind));
    };
    let mut bytes = quoted.iter().enumerate();
    loop {
        match bytes.next()? {
            (at, b'"') => return Some((PairValue::Quoted(&quoted[..at]), &quoted[at + 1..])),
            (_, b'\\') => _ = bytes.next()?,
            _ => {}
        }
    }
}

/// Splits a token of at least one byte off a text (RFC 9110, section 5.6.2).
fn split_token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let length = text.iter().position(|byte| !is_token(byte)).unwrap_or(text.len());
    (length > 0).then(|| text.split_at(length))
}

impl PairValue<'_> {
    fn address(&self) -> Option<IpAddr> {
        let text = match self {
            Self::Token(token) => return node::address(token),
            Self::Quoted(text) => *text,
        };
        let mut plain = [0; MAX_NODE_BYTES];
        let mut length = 0;
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            let byte = if *byte == b'\\' { bytes.next()? } else { byte };
            *plain.get_mut(length)? = *byte;
            length += 1;
        }
        node::address(&plain[..length])
    }
}
