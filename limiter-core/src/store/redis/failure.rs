//! What Redis and its client say went wrong, in this crate's terms.

use redis::{ErrorKind as RedisKind, RedisError, ServerErrorKind};

use crate::{Error, ErrorKind};

/// An error of the client, before it is one of ours.
#[derive(Debug)]
pub(super) struct Refusal(RedisError);

impl Refusal {
    /// The script is not there: the one error that proves that nothing was applied.
    pub(super) fn is_no_script(&self) -> bool {
        self.0.kind() == RedisKind::Server(ServerErrorKind::NoScript)
    }

    /// The server did not say this: the connection broke.
    pub(super) fn is_broken(&self) -> bool {
        self.0.is_io_error()
    }
}

impl From<RedisError> for Refusal {
    fn from(error: RedisError) -> Self {
        Self(error)
    }
}

impl From<Refusal> for Error {
    fn from(Refusal(error): Refusal) -> Self {
        let (kind, message) = explain(&error);
        Self::with_source(kind, message, error)
    }
}

fn explain(error: &RedisError) -> (ErrorKind, String) {
    if let Some(code) = error.code() {
        return by_code(code);
    }
    let (kind, message) = match error.kind() {
        RedisKind::Io => (ErrorKind::Unavailable, "Redis cannot be reached"),
        RedisKind::AuthenticationFailed => (ErrorKind::Refused, "Redis refused the user or the password"),
        RedisKind::InvalidClientConfig => (ErrorKind::Config, "the connection to Redis is configured wrongly"),
        RedisKind::RESP3NotSupported => (ErrorKind::Config, "the server is older than Redis 6.2"),
        _ => (ErrorKind::Protocol, "Redis answered something that its client does not understand"),
    };
    (kind, message.to_owned())
}

fn by_code(code: &str) -> (ErrorKind, String) {
    let (kind, meaning) = match code {
        "NOAUTH" => (ErrorKind::Refused, "Redis wants a password"),
        "WRONGPASS" => (ErrorKind::Refused, "Redis refused the user or the password"),
        "NOPERM" => (ErrorKind::Refused, "Redis refused the user a permission that the limiter needs"),
        "LOADING" => (ErrorKind::Loading, "Redis is loading its data"),
        "BUSY" => (ErrorKind::Loading, "Redis is busy with a script"),
        "READONLY" => (ErrorKind::ReadOnly, "this Redis is a replica"),
        "OOM" => (ErrorKind::OutOfMemory, "Redis is at its memory limit"),
        "FOREIGN" | "WRONGTYPE" => {
            (ErrorKind::Protocol, "the key holds something else than this limiter writes; it is left as it is")
        }
        "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MISCONF" | "NOREPLICAS" => {
            (ErrorKind::Unavailable, "Redis takes no writes now")
        }
        _ => (ErrorKind::Protocol, "Redis refused the command"),
    };
    (kind, format!("{meaning} ({code})"))
}
