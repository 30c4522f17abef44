//! Replies in the protocol of Redis, RESP2 and RESP3: where one ends in a stream of bytes, and its value.

use redis::{ErrorKind as RedisKind, RedisError, Value, parse_redis_value};

/// The reason why the bytes of a connection are of no use. Later replies cannot be told apart either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyFault {
    /// The bytes are no reply in RESP, or one with too many levels.
    Malformed,
    /// The reply is longer than any reply to its command.
    TooLong,
    /// No command waits for the reply.
    Unexpected,
    /// The connection ended in the middle of a reply.
    Cut,
}

impl ReplyFault {
    /// The text of the fault, by which `CommandError` describes it.
    pub(crate) const fn detail(self) -> &'static str {
        match self {
            Self::Malformed => "not a reply in RESP",
            Self::TooLong => "longer than any reply to the command",
            Self::Unexpected => "no command waits for the reply",
            // The client's parser has the same words for it.
            Self::Cut => "unexpected end of input",
        }
    }
}

impl From<ReplyFault> for RedisError {
    fn from(fault: ReplyFault) -> Self {
        (RedisKind::Parse, "unusable reply", fault.detail().to_owned()).into()
    }
}

// A scanner that finds the end of each reply. It reads no byte twice, however the bytes arrive.

/// The most levels of arrays, maps and sets in a reply. The reply to CLUSTER SLOTS has five.
const MAX_DEPTH: usize = 16;
/// The fewest bytes of a value, as in `_\r\n`.
const MIN_VALUE_BYTES: u64 = 3;

/// A scanner of one reply. It keeps its place until the reply is complete.
#[derive(Debug, Default)]
pub(crate) struct FrameScanner {
    /// The position of the next value, or of the string whose end is missing.
    position: usize,
    /// The bytes in which no end of a line has been found.
    searched: usize,
    /// The end of a string that has not arrived yet.
    string_end: Option<usize>,
    /// Values that are missing at each level.
    missing: Vec<u64>,
}

impl FrameScanner {
    /// Returns the length of the reply at the beginning of `bytes`, or `None` if its end has not arrived.
    ///
    /// `bytes` must begin with those of the last call. After a complete reply the scanner is ready for the next one.
    ///
    /// # Errors
    /// The reply is malformed, or longer than `max_bytes`. Its announced lengths count at once.
    pub(crate) fn scan(&mut self, bytes: &[u8], max_bytes: usize) -> Result<Option<usize>, ReplyFault> {
        while let Some(end) = self.value(bytes, max_bytes)? {
            self.position = end;
            self.searched = end;
            if self.missing.is_empty() {
                self.position = 0;
                self.searched = 0;
                return if end <= max_bytes { Ok(Some(end)) } else { Err(ReplyFault::TooLong) };
            }
        }
        if bytes.len() > max_bytes { Err(ReplyFault::TooLong) } else { Ok(None) }
    }

    /// Returns the end of the value at the position, or the end of its first line if values follow in it.
    fn value(&mut self, bytes: &[u8], max_bytes: usize) -> Result<Option<usize>, ReplyFault> {
        if let Some(end) = self.string_end {
            return self.string(bytes, end);
        }
        let Some(kind) = bytes.get(self.position) else { return Ok(None) };
        if !b"+-:,#_($!=*~>%|".contains(kind) {
            return Err(ReplyFault::Malformed);
        }
        let Some(line_end) = self.line_end(bytes) else { return Ok(None) };
        let (line, next) = (&bytes[self.position + 1..line_end], line_end + 2);
        match kind {
            b'$' | b'*' if line == b"-1" => self.complete_value(),
            b'$' | b'!' | b'=' => {
                let end =
                    usize::try_from(length(line)?).ok().and_then(|length| next.checked_add(length)?.checked_add(2));
                let end = end.filter(|end| *end <= max_bytes).ok_or(ReplyFault::TooLong)?;
                self.string_end = Some(end);
                return self.string(bytes, end);
            }
            b'*' | b'~' | b'>' => self.open(length(line)?, next, max_bytes)?,
            b'%' => self.open(length(line)?.saturating_mul(2), next, max_bytes)?,
            // The attributes, and the value that has them.
            b'|' => self.open(length(line)?.saturating_mul(2).saturating_add(1), next, max_bytes)?,
            _ => self.complete_value(),
        }
        Ok(Some(next))
    }

    /// Returns the end of a string, if it has arrived.
    fn string(&mut self, bytes: &[u8], end: usize) -> Result<Option<usize>, ReplyFault> {
        let Some(string) = bytes.get(..end) else { return Ok(None) };
        if !string.ends_with(b"\r\n") {
            return Err(ReplyFault::Malformed);
        }
        self.string_end = None;
        self.complete_value();
        Ok(Some(end))
    }

    /// Returns the end of the line, without its `\r\n`.
    fn line_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let start = self.searched;
        let found = bytes[start..].windows(2).position(|pair| pair == b"\r\n").map(|offset| start + offset);
        // The last byte may be the first of an end.
        self.searched = start.max(bytes.len().saturating_sub(1));
        found
    }

    /// Begins a level with so many values.
    fn open(&mut self, values: u64, next: usize, max_bytes: usize) -> Result<(), ReplyFault> {
        let room = u64::try_from(max_bytes.saturating_sub(next)).unwrap_or(u64::MAX);
        if values.saturating_mul(MIN_VALUE_BYTES) > room {
            return Err(ReplyFault::TooLong);
        }
        if values == 0 {
            self.complete_value();
        } else if self.missing.len() == MAX_DEPTH {
            return Err(ReplyFault::Malformed);
        } else {
            self.missing.push(values);
        }
        Ok(())
    }

    /// Counts a complete value, and the levels that are complete with it.
    fn complete_value(&mut self) {
        while let Some(missing) = self.missing.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return;
            }
            self.missing.pop();
        }
    }
}

/// Parses the announced length of a string or a level.
fn length(line: &[u8]) -> Result<u64, ReplyFault> {
    let digits = str::from_utf8(line).ok().filter(|line| line.bytes().all(|byte| byte.is_ascii_digit()));
    let digits = digits.filter(|digits| !digits.is_empty()).ok_or(ReplyFault::Malformed)?;
    // A number that does not fit is longer than any reply.
    Ok(digits.parse().unwrap_or(u64::MAX))
}

// The value of a complete reply.

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

#[cfg(test)]
mod tests;
