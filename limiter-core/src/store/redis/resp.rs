//! Replies in the protocol of Redis, RESP2 and RESP3: where one ends in a stream of bytes, and its value.

use redis::{ErrorKind as RedisKind, RedisError};

pub(crate) mod frame;
pub(crate) mod decode;

#[cfg(test)]
mod tests;

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
