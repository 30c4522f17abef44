//! The value of a complete reply.

use redis::{Value, parse_redis_value};

use super::ReplyFault;

/// Decodes a reply whose end the scanner has found.
///
/// Strings, integers and arrays of them are decoded here: other values are rare, and errors among them must become those
/// of the client. The client's parser takes longer.
///
/// # Errors
/// The reply has a number or a text that is none.
pub(crate) fn decode(frame: &[u8]) -> Result<Value, ReplyFault> {
    match frequent_value(frame) {
        Some((value, [])) => Ok(value),
        _ => parse_redis_value(frame).map_err(|_| ReplyFault::Malformed),
    }
}

/// Decodes a value of a frequent type, and returns it with the bytes behind it.
fn frequent_value(bytes: &[u8]) -> Option<(Value, &[u8])> {
    let (kind, bytes) = bytes.split_first()?;
    let line_end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, rest) = (str::from_utf8(&bytes[..line_end]).ok()?, &bytes[line_end + 2..]);
    match kind {
        b'+' if line == "OK" => Some((Value::Okay, rest)),
        b'+' => Some((Value::SimpleString(line.to_owned()), rest)),
        b':' => Some((Value::Int(line.parse().ok()?), rest)),
        b'$' | b'*' if line == "-1" => Some((Value::Nil, rest)),
        b'$' => {
            let (string, rest) = rest.split_at_checked(line.parse().ok()?)?;
            Some((Value::BulkString(string.to_vec()), rest.strip_prefix(b"\r\n")?))
        }
        b'*' => {
            let length: usize = line.parse().ok()?;
            // Each value has at least one byte, so the memory is bounded by the reply.
            let (mut values, mut rest) = (Vec::with_capacity(length.min(rest.len())), rest);
            for _ in 0..length {
                let (value, behind) = frequent_value(rest)?;
                values.push(value);
                rest = behind;
            }
            Some((Value::Array(values), rest))
        }
        _ => None,
    }
}
