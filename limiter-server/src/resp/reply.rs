//! Replies in the two versions of the protocol.

use std::fmt;
use std::io::Write;

/// The version of the protocol in which a connection gets its replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

/// The replies of a connection that were not sent yet.
#[derive(Debug, Default)]
pub(super) struct Replies {
    bytes: Vec<u8>,
}

impl Replies {
    /// The bytes to send.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all of them. At most `capacity` bytes stay allocated.
    pub(super) fn clear(&mut self, capacity: usize) {
        self.bytes.clear();
        if self.bytes.capacity() > capacity {
            self.bytes.shrink_to(capacity);
        }
    }

    /// A short text that is a part of the protocol, such as `OK`.
    pub(super) fn status(&mut self, text: &'static str) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(text.as_bytes());
        self.end_line();
    }

    /// An error. Its first word is for programs. Ends of lines in it become spaces.
    pub(super) fn error(&mut self, text: fmt::Arguments<'_>) {
        self.bytes.push(b'-');
        let start = self.bytes.len();
        // Writing to memory does not fail.
        let _ = self.bytes.write_fmt(text);
        for byte in &mut self.bytes[start..] {
            if byte.is_ascii_control() {
                *byte = b' ';
            }
        }
        self.end_line();
    }

    /// A whole number.
    pub(super) fn integer(&mut self, value: i64) {
        self.number(b':', value);
    }

    /// The largest number of the protocol stands for larger ones.
    pub(super) fn unsigned(&mut self, value: u64) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Bytes of any kind.
    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.length(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.end_line();
    }

    /// A text for persons.
    pub(super) fn verbatim(&mut self, text: &str, protocol: Protocol) {
        match protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.length(b'=', text.len() + 4);
                self.bytes.extend_from_slice(b"txt:");
                self.bytes.extend_from_slice(text.as_bytes());
                self.end_line();
            }
        }
    }

    /// No value.
    pub(super) fn null(&mut self, protocol: Protocol) {
        self.bytes.extend_from_slice(match protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// 1 or 0 in version 2.
    pub(super) fn boolean(&mut self, value: bool, protocol: Protocol) {
        self.bytes.extend_from_slice(match (protocol, value) {
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
        });
    }

    /// The start of a list. So many replies follow.
    pub(super) fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// The start of so many pairs. It is a list of both in version 2.
    pub(super) fn map(&mut self, pairs: usize, protocol: Protocol) {
        match protocol {
            Protocol::Resp2 => self.length(b'*', pairs * 2),
            Protocol::Resp3 => self.length(b'%', pairs),
        }
    }

    fn length(&mut self, kind: u8, length: usize) {
        self.number(kind, i64::try_from(length).unwrap_or(i64::MAX));
    }

    fn number(&mut self, kind: u8, value: i64) {
        self.bytes.push(kind);
        if let 0..=9 = value {
            self.bytes.push(b'0' + value.to_le_bytes()[0]);
        } else {
            let (mut digits, mut start, mut rest) = ([0; 20], 20, value.unsigned_abs());
            while rest > 0 {
                start -= 1;
                digits[start] = b'0' + (rest % 10).to_le_bytes()[0];
                rest /= 10;
            }
            if value < 0 {
                self.bytes.push(b'-');
            }
            self.bytes.extend_from_slice(&digits[start..]);
        }
        self.end_line();
    }

    fn end_line(&mut self) {
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Replies)) -> String {
        let mut replies = Replies::default();
        write(&mut replies);
        String::from_utf8(replies.bytes().to_vec()).expect("text")
    }

    #[test]
    fn each_reply_has_the_form_of_its_version() {
        use Protocol::{Resp2, Resp3};
        type Write<'w> = &'w dyn Fn(&mut Replies);
        let cases: [(&str, Write<'_>); 14] = [
            ("+OK\r\n", &|replies| replies.status("OK")),
            ("-ERR a b  c\r\n", &|replies| replies.error(format_args!("ERR a\nb\r\nc"))),
            ("$3\r\na\r\n\r\n", &|replies| replies.bulk(b"a\r\n")),
            ("$2\r\nab\r\n", &|replies| replies.verbatim("ab", Resp2)),
            ("=6\r\ntxt:ab\r\n", &|replies| replies.verbatim("ab", Resp3)),
            ("$-1\r\n", &|replies| replies.null(Resp2)),
            ("_\r\n", &|replies| replies.null(Resp3)),
            (":1\r\n", &|replies| replies.boolean(true, Resp2)),
            ("#t\r\n", &|replies| replies.boolean(true, Resp3)),
            ("#f\r\n", &|replies| replies.boolean(false, Resp3)),
            ("*12\r\n", &|replies| replies.array(12)),
            ("*4\r\n", &|replies| replies.map(2, Resp2)),
            ("%2\r\n", &|replies| replies.map(2, Resp3)),
            (":9223372036854775807\r\n", &|replies| replies.unsigned(u64::MAX)),
        ];
        for (expected, write) in cases {
            assert_eq!(written(write), expected);
        }
        for value in [0, 9, 10, -1, -10, 4_294_967_295, i64::MAX, i64::MIN] {
            assert_eq!(written(|replies| replies.integer(value)), format!(":{value}\r\n"));
        }
    }
}
