//! What Redis and its client say went wrong, in this crate's terms.

use std::io;

use redis::{ErrorKind as RedisKind, RedisError, ServerErrorKind};

use crate::store::redis::server_text::printable;
use crate::store::slot;
use crate::{Error, ErrorKind};

/// An error of the client, before it is one of ours.
#[derive(Debug)]
pub(crate) struct CommandError(RedisError);

/// Where to ask instead. An empty host is that of the node that said it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot has another owner.
    Moved { slot: u16, host: String, port: u16 },
    /// The slot is moving there, and this key has moved or is new.
    Ask { slot: u16, host: String, port: u16 },
    /// The slot is moving, and no node has all keys of this call.
    TryAgain,
}

impl CommandError {
    /// The script is not there: the one error that proves that nothing was applied.
    pub(crate) fn is_no_script(&self) -> bool {
        self.0.kind() == RedisKind::Server(ServerErrorKind::NoScript)
    }

    /// A node of a cluster says that another is to be asked; it has applied nothing.
    pub(crate) fn redirect(&self) -> Option<Redirect> {
        let place = |word: &str| {
            let (host, port) = word.rsplit_once(':')?;
            Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
        };
        let named = || self.0.redirect_node().filter(|(_, slot)| *slot < slot::COUNT);
        match self.0.kind() {
            RedisKind::Server(ServerErrorKind::Moved) => {
                let (word, slot) = named()?;
                place(word).map(|(host, port)| Redirect::Moved { slot, host, port })
            }
            RedisKind::Server(ServerErrorKind::Ask) => {
                let (word, slot) = named()?;
                place(word).map(|(host, port)| Redirect::Ask { slot, host, port })
            }
            RedisKind::Server(ServerErrorKind::TryAgain) => Some(Redirect::TryAgain),
            _ => None,
        }
    }

    /// The server is no part of a cluster.
    pub(crate) fn is_no_cluster(&self) -> bool {
        self.0.detail().is_some_and(|detail| detail.contains("cluster support disabled"))
    }

    /// The cluster has no node for the slot, or too few nodes.
    pub(crate) fn is_cluster_down(&self) -> bool {
        self.0.kind() == RedisKind::Server(ServerErrorKind::ClusterDown)
    }

    /// The server is about to know what it knew when it was saved last, or what another knows.
    pub(crate) fn is_loading(&self) -> bool {
        self.0.kind() == RedisKind::Server(ServerErrorKind::BusyLoading)
    }

    /// Only somebody who changes the server's settings will make it answer anything else.
    pub(crate) fn is_lasting(&self) -> bool {
        let code = self.0.code().unwrap_or_default();
        code == "NOPERM" || (code == "ERR" && self.0.detail().is_some_and(|detail| missing(detail).is_some()))
    }

    /// The server did not say this: the connection broke.
    pub(crate) fn is_broken(&self) -> bool {
        self.0.is_io_error()
    }
}

impl From<RedisError> for CommandError {
    fn from(error: RedisError) -> Self {
        Self(error)
    }
}

#[doc(hidden)] // else it is on the page of `Error`, with a type that no user can name
impl From<CommandError> for Error {
    fn from(CommandError(error): CommandError) -> Self {
        let (kind, message) = explain(&error);
        // What a server says may repeat the command, and so a key or the password. What the network says does not, but
        // it may repeat names in the server's certificate.
        if !error.is_io_error() {
            return Self::new(kind, message);
        }
        let text = error.to_string();
        let harmless = printable(&text);
        if harmless == text {
            Self::with_source(kind, message, error)
        } else {
            Self::with_source(kind, message, io::Error::other(harmless))
        }
    }
}

fn explain(error: &RedisError) -> (ErrorKind, String) {
    let detail = error.detail().unwrap_or_default();
    if let Some(code) = error.code() {
        let (code, detail) = in_script(code, detail).unwrap_or((code, detail));
        return by_code(code, detail);
    }
    let (kind, message) = match error.kind() {
        RedisKind::Io => return by_network(&error.to_string()),
        // So the client's parser puts it, in the words of the library it is made with.
        RedisKind::Parse if detail.contains("end of input") => {
            (ErrorKind::Unavailable, "the connection to Redis broke in the middle of an answer")
        }
        RedisKind::AuthenticationFailed => (ErrorKind::Refused, "Redis refused the user or the password"),
        RedisKind::InvalidClientConfig => (ErrorKind::Config, "the connection to Redis is configured wrongly"),
        RedisKind::RESP3NotSupported => (
            ErrorKind::Config,
            "the server does not speak RESP3 (HELLO 3): the limiter needs Redis 6.2 or later, or Valkey",
        ),
        _ => (ErrorKind::Protocol, "Redis answered something that its client does not understand"),
    };
    (kind, message.to_owned())
}

/// What the system, or TLS, says of a connection.
fn by_network(text: &str) -> (ErrorKind, String) {
    let (kind, hint) = if text.contains("invalid peer certificate") {
        // Another authority of the same name is found by its signature alone.
        let hint = if ["UnknownIssuer", "BadSignature"].iter().any(|words| text.contains(words)) {
            ": nobody who is trusted has signed it; name who has by `Tls::root_certificate`"
        } else if text.contains("not valid for name") {
            ": the URL has another name for the server"
        } else if text.to_lowercase().contains("expired") {
            ": the server needs a new one"
        } else {
            ""
        };
        (ErrorKind::Refused, hint)
    } else if text.contains("CertificateRequired") {
        (ErrorKind::Refused, ": the server asks for a certificate; give it one by `Tls::client_certificate`")
    } else if text.contains("fatal alert") {
        (ErrorKind::Refused, ": the server refuses the connection, or the certificate of `Tls::client_certificate`")
    } else if text.contains("lookup address") {
        (ErrorKind::Unavailable, ": is the host's name right?")
    } else {
        (ErrorKind::Unavailable, "")
    };
    (kind, format!("Redis cannot be reached: {}{hint}", printable(text)))
}

/// The command that the server does not have, if that is what it says and it is one of this limiter's.
fn missing(detail: &str) -> Option<&'static str> {
    let named = detail.strip_prefix("unknown command")?.trim_start_matches([' ', '\'', '`', '"']);
    ["HELLO", "AUTH", "SELECT", "SCRIPT", "EVALSHA", "SENTINEL"].into_iter().find(|name| named.starts_with(name))
}

/// Redis 6.2 says of a command in a script where it stands, before a dash and its code: `@user_script: 7: -OOM …`.
fn in_script<'a>(code: &str, detail: &'a str) -> Option<(&'a str, &'a str)> {
    let (_line, said) = detail.split_once(": ").filter(|_| code == "@user_script:")?;
    match said.strip_prefix('-') {
        Some(said) => Some(said.split_once(' ').unwrap_or((said, ""))),
        None => Some(("ERR", said)),
    }
}

/// The permission that is missing, as far as the server says which and it is a documented one.
fn permission(detail: &str) -> String {
    const COMMANDS: [&str; 21] = [
        "script|load",
        "evalsha",
        "time",
        "get",
        "mget",
        "set",
        "setrange",
        "pexpire",
        "del",
        "select",
        "cluster|slots",
        "asking",
        "zadd",
        "zcount",
        "zrange",
        "zrangebyscore",
        "zrem",
        "zremrangebyrank",
        "sentinel|get-master-addr-by-name",
        "subscribe",
        "script",
    ];
    if let Some(command) = COMMANDS.into_iter().find(|command| detail.contains(&format!("'{command}'"))) {
        format!(": +{command}")
    } else if detail.contains("access") && detail.contains("key") {
        ": its keys, `~` and the limiter's prefix".to_owned()
    } else {
        String::new()
    }
}

fn by_code(code: &str, detail: &str) -> (ErrorKind, String) {
    let (kind, meaning) = match code {
        "NOAUTH" => (ErrorKind::Refused, "Redis wants a password, in the URL or by `Builder::credentials`"),
        "WRONGPASS" => (ErrorKind::Refused, "Redis refused the user or the password"),
        "NOPERM" => {
            let problem = format!(
                "Redis refused the user a permission that the limiter needs{}; the README lists them ({})",
                permission(detail),
                harmless(code)
            );
            return (ErrorKind::Refused, problem);
        }
        "LOADING" => (ErrorKind::Loading, "Redis is loading its data"),
        "BUSY" => (ErrorKind::Loading, "Redis is busy with a script"),
        "READONLY" => (ErrorKind::ReadOnly, "this Redis is a replica"),
        "OOM" => (ErrorKind::OutOfMemory, "Redis is at its memory limit"),
        "FOREIGN" | "WRONGTYPE" => {
            (ErrorKind::Protocol, "the key holds something else than this limiter writes; it is left as it is")
        }
        "MASTERDOWN" => (ErrorKind::ReadOnly, "this Redis is a replica, and has lost its master"),
        "CLUSTERDOWN" => {
            (ErrorKind::NotServing, "the cluster does not serve this key now: too few of its masters are up")
        }
        "MOVED" | "ASK" => {
            (ErrorKind::Config, "this Redis is a node of a cluster: write `redis-cluster://` before its address")
        }
        "TRYAGAIN" => (ErrorKind::NotServing, "the cluster is moving this key just now"),
        "MISCONF" => (ErrorKind::NotServing, "Redis takes no writes, because it cannot save its data"),
        "NOREPLICAS" => (ErrorKind::NotServing, "Redis takes no writes, because too few replicas follow it"),
        "IDONTKNOW" => (ErrorKind::Unavailable, "the sentinel does not know enough of the others yet"),
        "ERR" if detail.starts_with("DB index") => (ErrorKind::Config, "Redis has no database of that number"),
        "ERR" if detail.starts_with("SELECT is not allowed in cluster mode") => (
            ErrorKind::Config,
            "the server is a node of a cluster, which has database 0 alone: write `redis-cluster://`",
        ),
        "ERR" if missing(detail).is_some() => {
            let command = missing(detail).unwrap_or_default();
            let problem = format!(
                "Redis does not have {command}, which the limiter needs: it is renamed or forbidden there, or the server \
                 is older than Redis 6.2"
            );
            return (ErrorKind::Config, problem);
        }
        // Neither a script nor the choice of a database has a code of its own for this.
        "ERR"
            if ["The user executing the script", "ACL failure", "this user has no permissions"]
                .iter()
                .any(|words| detail.starts_with(words)) =>
        {
            return by_code("NOPERM", detail);
        }
        // Not a server's: one between it and this process says that it has no server, each in its own words.
        _ if !code.bytes().all(|byte| byte.is_ascii_uppercase()) => {
            (ErrorKind::Unavailable, "something in front of Redis refused the command")
        }
        _ => {
            let said = printable(&format!("{code} {}", unquoted(detail)));
            return (ErrorKind::Protocol, format!("Redis refused the command ({said})"));
        }
    };
    // A proxy's first word need not be a code: it may be a key.
    (kind, format!("{meaning} ({})", harmless(code)))
}

/// The words of a server that an error may repeat, as text that nothing obeys.
fn harmless(detail: &str) -> String {
    printable(unquoted(detail))
}

/// A server's words as far as they are its own: what it repeats of a command it quotes, and a key has a brace in it.
fn unquoted(detail: &str) -> &str {
    let mut before = ' ';
    let quoted = |letter: char| {
        let in_word = std::mem::replace(&mut before, letter).is_alphanumeric();
        letter == '{' || (matches!(letter, '\'' | '`' | '"') && !in_word)
    };
    detail.split(quoted).next().unwrap_or_default().trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_redis_6_2_says_of_a_command_in_a_script() {
        let cases = [
            ("OOM", "command not allowed", None),
            ("@user_script:", "93: -OOM command not allowed", Some(("OOM", "command not allowed"))),
            ("@user_script:", "9: The user executing the script", Some(("ERR", "The user executing the script"))),
            ("@user_script:", "nothing else", None),
        ];
        for (code, detail, read) in cases {
            assert_eq!(in_script(code, detail), read, "{detail}");
        }
    }

    #[test]
    fn names_the_permission_that_is_missing() {
        let cases = [
            ("this user has no permissions to run the 'setrange' command", ": +setrange"),
            ("this user has no permissions to run the 'script|load' command", ": +script|load"),
            ("ACL failure in script: this user has no permissions to run the 'get' command", ": +get"),
            (
                "this user has no permissions to access one of the keys used as arguments",
                ": its keys, `~` and the limiter's prefix",
            ),
            ("this user has no permissions to run the 'rl:{user:@7}' command", ""),
            ("", ""),
        ];
        for (detail, told) in cases {
            assert_eq!(permission(detail), told, "{detail}");
        }
    }

    #[test]
    fn tells_nothing_that_a_server_repeats() {
        let cases = [
            ("unknown command 'EVALSHA', with args beginning with: 'f00' '1'", "unknown command"),
            ("unknown command `HELLO`, with args beginning with: `3`, `AUTH`", "unknown command"),
            ("can't do that to \"rl:{user:@7}:sw:10000\"", "can't do that to"),
            ("no such key: rl:{user:@7}:sw:10000", "no such key: rl:"),
            ("Protocol error", "Protocol error"),
            ("", ""),
        ];
        for (detail, told) in cases {
            assert_eq!(unquoted(detail), told);
        }
    }

    /// KeyNames in a certificate are the server's own text.
    #[test]
    fn escapes_and_cuts_the_text_of_a_network_error_and_of_its_cause() {
        use std::error::Error as _;
        for (text, is_kept) in [("invalid peer certificate: no", true), ("\x1b[31m", false), (&*"a".repeat(999), false)]
        {
            let error = Error::from(CommandError::from(RedisError::from(io::Error::other(text))));
            let cause = error.source().expect("a cause");
            assert_eq!(cause.is::<RedisError>(), is_kept, "{text}");
            for shown in [error.to_string(), cause.to_string()] {
                assert!(!shown.contains(char::is_control) && shown.chars().count() < 300, "{shown}");
            }
        }
    }

    #[test]
    fn a_slot_that_there_is_not_is_nowhere() {
        let redirect = |word: &str, slot: u32| {
            let said = redis::parse_redis_value(format!("-{word} {slot} 127.0.0.1:7000\r\n").as_bytes());
            CommandError(said.and_then(redis::Value::extract_error).expect_err("an error")).redirect()
        };
        assert!(matches!(redirect("MOVED", 16_383), Some(Redirect::Moved { slot: 16_383, .. })));
        assert!(matches!(redirect("ASK", 16_383), Some(Redirect::Ask { slot: 16_383, .. })));
        assert_eq!((redirect("MOVED", 16_384), redirect("ASK", 16_384)), (None, None));
    }
}
