//! Errors of Redis and of its client, and their translation into this crate's errors.

use std::io;

use redis::{ErrorKind as RedisKind, RedisError, RedisResult, ServerErrorKind, Value};

use crate::store::redis::resp::ReplyFault;
use crate::store::redis::slot;
use crate::{Error, ErrorKind};

/// An error of the client, before its translation into an [`Error`].
#[derive(Debug)]
pub(crate) struct CommandError(RedisError);

/// The node to send a command to instead. An empty host means the host of the node that sent the redirect.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot has another owner.
    Moved { slot: u16, host: String, port: u16 },
    /// The slot is being migrated to that node, and this key has been migrated or is new.
    Ask { slot: u16, host: String, port: u16 },
    /// The slot is being migrated, and no node has all keys of this call.
    TryAgain,
}

impl CommandError {
    /// Returns the value of a reply.
    ///
    /// # Errors
    /// That of the server or of the connection. An error inside of an array is a part of the reply, and left to the
    /// decoder.
    pub(crate) fn check_reply(reply: RedisResult<Value>) -> Result<Value, Self> {
        let value = match reply {
            Ok(error @ Value::ServerError(_)) => error.extract_error(),
            reply => reply,
        };
        value.map_err(Self::from)
    }

    /// Returns true if the server does not have the script. Then it has applied no command of the call.
    pub(crate) fn is_no_script(&self) -> bool {
        self.0.kind() == RedisKind::Server(ServerErrorKind::NoScript)
    }

    /// Returns the time of the server in milliseconds, if it needs the edges of a calendar around it. Then it has applied
    /// nothing of the call.
    pub(crate) fn needed_edges(&self) -> Option<u64> {
        if self.0.code() == Some("EDGES") { self.0.detail()?.trim().parse().ok() } else { None }
    }

    /// Returns the indices of the packed counts whose own keys the call has to declare. Then the server has applied nothing
    /// of it.
    pub(crate) fn moved_out(&self) -> Option<Vec<usize>> {
        if self.0.code() != Some("MOVEDOUT") {
            return None;
        }
        self.0.detail()?.split_whitespace().map(|index| index.parse().ok()).collect()
    }

    /// Returns the redirect to another node of the cluster, if the error is one. The node applied nothing.
    pub(crate) fn redirect(&self) -> Option<Redirect> {
        let parse_address = |address: &str| {
            let (host, port) = address.rsplit_once(':')?;
            Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
        };
        let target = || {
            let (address, slot) = self.0.redirect_node().filter(|(_, slot)| *slot < slot::COUNT)?;
            parse_address(address).map(|(host, port)| (slot, host, port))
        };
        match self.0.kind() {
            RedisKind::Server(ServerErrorKind::Moved) => {
                target().map(|(slot, host, port)| Redirect::Moved { slot, host, port })
            }
            RedisKind::Server(ServerErrorKind::Ask) => {
                target().map(|(slot, host, port)| Redirect::Ask { slot, host, port })
            }
            RedisKind::Server(ServerErrorKind::TryAgain) => Some(Redirect::TryAgain),
            _ => None,
        }
    }

    /// Returns true if the server is not a node of a cluster.
    pub(crate) fn is_cluster_disabled(&self) -> bool {
        self.0.detail().is_some_and(|detail| detail.contains("cluster support disabled"))
    }

    /// Returns true if the cluster has no node for the slot, or too few nodes.
    pub(crate) fn is_cluster_down(&self) -> bool {
        self.0.kind() == RedisKind::Server(ServerErrorKind::ClusterDown)
    }

    /// Returns true if the server is loading its last snapshot or another server's data. Either may lack counters.
    pub(crate) fn is_loading(&self) -> bool {
        self.0.kind() == RedisKind::Server(ServerErrorKind::BusyLoading)
    }

    /// Returns true if the error lasts until an operator changes the server's settings.
    pub(crate) fn is_permanent(&self) -> bool {
        let code = self.0.code().unwrap_or_default();
        code == "NOPERM" || (code == "ERR" && self.0.detail().is_some_and(|detail| missing_command(detail).is_some()))
    }

    /// Returns true if the user may not use a key of the command.
    pub(crate) fn is_key_refused(&self) -> bool {
        self.0.code() == Some("NOPERM") && self.0.detail().is_some_and(names_a_key)
    }

    /// Returns true if the connection broke, so the error is not a reply of the server.
    pub(crate) fn is_connection_lost(&self) -> bool {
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
        let (kind, message) = describe(&error);
        // A server's text may repeat the command, and so a key or the password. It is not kept as the source. The text
        // of a network error cannot, but it may repeat names in the server's certificate.
        if !error.is_io_error() {
            return Self::new(kind, message);
        }
        let text = error.to_string();
        let escaped = escape_and_truncate(&text);
        if escaped == text {
            Self::with_source(kind, message, error)
        } else {
            Self::with_source(kind, message, io::Error::other(escaped))
        }
    }
}

fn describe(error: &RedisError) -> (ErrorKind, String) {
    let detail = error.detail().unwrap_or_default();
    if let Some(code) = error.code() {
        let (code, detail) = split_script_error(code, detail).unwrap_or((code, detail));
        return describe_server_error(code, detail);
    }
    let (kind, message) = match error.kind() {
        RedisKind::Io => return describe_network_error(&error.to_string()),
        // The message of the parser library for a reply that ends early.
        RedisKind::Parse if detail.contains("end of input") => {
            (ErrorKind::Unavailable, "the connection to Redis broke in the middle of a reply")
        }
        RedisKind::Parse if detail == ReplyFault::TooLong.detail() => {
            (ErrorKind::Protocol, "Redis sent a longer reply than any to the command")
        }
        RedisKind::Parse if detail == ReplyFault::Unexpected.detail() => {
            (ErrorKind::Protocol, "Redis sent a reply that no command waits for")
        }
        RedisKind::AuthenticationFailed => (ErrorKind::Refused, "Redis refused the user or the password"),
        RedisKind::InvalidClientConfig => {
            (ErrorKind::Config, "the client of Redis rejected its settings: check `url`, `tls` or `client`")
        }
        RedisKind::RESP3NotSupported => {
            (ErrorKind::Config, "the server does not support RESP3 (HELLO 3): use Redis 6.2 or later, or Valkey")
        }
        _ => (ErrorKind::Protocol, "Redis sent a reply that its client cannot parse"),
    };
    (kind, message.to_owned())
}

/// Describes an error of the operating system or of TLS.
fn describe_network_error(text: &str) -> (ErrorKind, String) {
    let (kind, hint) = if text.contains("invalid peer certificate") {
        // If two authorities have the same name, only the signature reveals the wrong one.
        let hint = if ["UnknownIssuer", "BadSignature"].iter().any(|words| text.contains(words)) {
            ": signed by an unknown certificate authority; add it with `Tls::root_certificate`"
        } else if text.contains("not valid for name") {
            ": the certificate is for another host name than that in the URL"
        } else if text.to_lowercase().contains("expired") {
            ": renew the server's certificate"
        } else {
            ""
        };
        (ErrorKind::Refused, hint)
    } else if text.contains("CertificateRequired") {
        (ErrorKind::Refused, ": the server requires a client certificate; set it with `Tls::client_certificate`")
    } else if text.contains("fatal alert") {
        (ErrorKind::Refused, ": the server rejected the connection, or the certificate of `Tls::client_certificate`")
    } else if text.contains("lookup address") {
        (ErrorKind::Unavailable, ": check the host name")
    } else {
        (ErrorKind::Unavailable, "")
    };
    (kind, format!("Redis cannot be reached: {}{hint}", escape_and_truncate(text)))
}

/// Returns the command that the server does not know, if it is one that this limiter sends.
fn missing_command(detail: &str) -> Option<&'static str> {
    let command = detail.strip_prefix("unknown command")?.trim_start_matches([' ', '\'', '`', '"']);
    ["HELLO", "AUTH", "SELECT", "SCRIPT", "EVALSHA", "SENTINEL"].into_iter().find(|name| command.starts_with(name))
}

/// Splits an error of a command in a script into code and detail. Redis 6.2 puts the line of the script and a dash
/// before the code: `@user_script: 7: -OOM …`. Before that it has the script's name for a command that does not catch errors.
fn split_script_error<'a>(code: &str, detail: &'a str) -> Option<(&'a str, &'a str)> {
    let of_script = match code {
        "@user_script:" => detail,
        "ERR" if detail.starts_with("Error running script") => detail.split_once("@user_script: ")?.1,
        _ => return None,
    };
    let (_line, error) = of_script.split_once(": ")?;
    match error.strip_prefix('-') {
        Some(error) => Some(error.split_once(' ').unwrap_or((error, ""))),
        None => Some(("ERR", error)),
    }
}

/// Returns the missing permission as a suffix for a message. It is empty unless the server names a documented one.
fn missing_permission(detail: &str) -> String {
    const COMMANDS: [&str; 30] = [
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
        "zremrangebyscore",
        "zcard",
        "hget",
        "hset",
        "hdel",
        "pttl",
        "hrandfield",
        "hlen",
        "hgetall",
        "sentinel|get-master-addr-by-name",
        "subscribe",
        "script",
    ];
    if let Some(command) = COMMANDS.into_iter().find(|command| detail.contains(&format!("'{command}'"))) {
        format!(": +{command}")
    } else if names_a_key(detail) {
        ": its keys, `~` and the limiter's prefix".to_owned()
    } else {
        String::new()
    }
}

/// Returns true if the text of a missing permission is about keys.
fn names_a_key(detail: &str) -> bool {
    detail.contains("access") && detail.contains("key")
}

/// Describes an error reply by its code.
fn describe_server_error(code: &str, detail: &str) -> (ErrorKind, String) {
    let (kind, meaning) = match code {
        "NOAUTH" => (ErrorKind::Refused, "Redis requires a password: set it in the URL or with `Builder::credentials`"),
        "WRONGPASS" => (ErrorKind::Refused, "Redis refused the user or the password"),
        "NOPERM" => {
            let problem = format!(
                "Redis refused the user a permission that the limiter needs{}; the README lists them ({})",
                missing_permission(detail),
                redact(code)
            );
            return (ErrorKind::Refused, problem);
        }
        "LOADING" => (ErrorKind::Loading, "Redis is loading its data"),
        "BUSY" => (ErrorKind::Loading, "Redis is busy with a script"),
        "READONLY" => (ErrorKind::ReadOnly, "this Redis is a replica"),
        "OOM" => (ErrorKind::OutOfMemory, "Redis is at its memory limit"),
        "FOREIGN" | "WRONGTYPE" => {
            (ErrorKind::Protocol, "the key holds a value that this limiter did not write; it is left unchanged")
        }
        // After the second time for one call.
        "EDGES" => (ErrorKind::Protocol, "the period of the calendar has ended twice during a call"),
        "MASTERDOWN" => (ErrorKind::ReadOnly, "this Redis is a replica that has lost its master"),
        "CLUSTERDOWN" => (ErrorKind::NotServing, "the cluster does not serve this key: too few of its masters are up"),
        "MOVED" | "ASK" => {
            (ErrorKind::Config, "this Redis is a node of a cluster: write `redis-cluster://` instead of `redis://`")
        }
        "TRYAGAIN" => (ErrorKind::NotServing, "the cluster is migrating this key"),
        "MISCONF" => (ErrorKind::NotServing, "Redis rejects writes, because it cannot save its data"),
        "NOREPLICAS" => (ErrorKind::NotServing, "Redis rejects writes, because it has too few replicas"),
        "IDONTKNOW" => (ErrorKind::Unavailable, "the sentinel has not discovered enough other sentinels yet"),
        "ERR" if detail.starts_with("DB index") => {
            (ErrorKind::Config, "Redis has no database of that number: write one below its `databases` setting")
        }
        "ERR" if detail.starts_with("SELECT is not allowed in cluster mode") => (
            ErrorKind::Config,
            "the server is a node of a cluster, which has only database 0: write `redis-cluster://` and no database",
        ),
        "ERR" if missing_command(detail).is_some() => {
            let command = missing_command(detail).unwrap_or_default();
            let problem = format!(
                "Redis does not have {command}, which the limiter needs: enable it if it is renamed or forbidden, or \
                 use Redis 6.2 or later"
            );
            return (ErrorKind::Config, problem);
        }
        // Redis has no error code for a missing permission in a script or for SELECT.
        "ERR"
            if ["The user executing the script", "ACL failure", "this user has no permissions"]
                .iter()
                .any(|words| detail.starts_with(words)) =>
        {
            return describe_server_error("NOPERM", detail);
        }
        // No server sends such a code. A proxy without a server behind it sends an error text of its own.
        _ if !code.bytes().all(|byte| byte.is_ascii_uppercase()) => {
            (ErrorKind::Unavailable, "a proxy in front of Redis refused the command")
        }
        _ => {
            let text = escape_and_truncate(&format!("{code} {}", text_before_quotes(detail)));
            return (ErrorKind::Protocol, format!("Redis refused the command ({text})"));
        }
    };
    // The first word of a proxy's error may be a key, so it is redacted.
    (kind, format!("{meaning} ({})", redact(code)))
}

/// Removes the parts of a server's text that may repeat a command, and escapes control characters.
fn redact(text: &str) -> String {
    escape_and_truncate(text_before_quotes(text))
}

/// Returns the text before the first quotation or key. A server quotes what it repeats of a command, and each key
/// contains a brace.
fn text_before_quotes(text: &str) -> &str {
    let mut before = ' ';
    let starts_quotation = |letter: char| {
        let in_word = std::mem::replace(&mut before, letter).is_alphanumeric();
        letter == '{' || (matches!(letter, '\'' | '`' | '"') && !in_word)
    };
    text.split(starts_quotation).next().unwrap_or_default().trim_end()
}

// Text from servers in errors and logs.

/// The most characters that are kept of a server's text.
const MAX_CHARS: usize = 200;

/// Escapes characters that a terminal or a log viewer interprets, and truncates the text to 200 characters. Such
/// characters are control characters and those that change the direction of writing.
pub(crate) fn escape_and_truncate(text: &str) -> String {
    let mut output = String::new();
    let mut chars = 0;
    for letter in text.chars() {
        let escaped = escape(letter);
        chars += escaped.chars().count();
        if chars > MAX_CHARS {
            output.push('…');
            break;
        }
        output.push_str(&escaped);
    }
    output
}

fn escape(letter: char) -> String {
    // Quotes and backslashes are frequent and harmless, so they are not escaped.
    if letter.is_ascii_graphic() {
        return letter.to_string();
    }
    let escaped = letter.escape_debug().to_string();
    // The braces are removed: only keys contain braces, and no error contains a key.
    match escaped.strip_prefix("\\u{").and_then(|escaped| escaped.strip_suffix('}')) {
        Some(digits) => format!("\\u{digits:0>4}"),
        None => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_script_errors_of_redis_6_2() {
        let cases = [
            ("OOM", "command not allowed", None),
            ("@user_script:", "93: -OOM command not allowed", Some(("OOM", "command not allowed"))),
            ("@user_script:", "9: The user executing the script", Some(("ERR", "The user executing the script"))),
            ("@user_script:", "nothing else", None),
            (
                "ERR",
                "Error running script (call to f_95): @user_script:1: @user_script: 1: The user executing the script",
                Some(("ERR", "The user executing the script")),
            ),
            (
                "ERR",
                "Error running script (call to f_95): @user_script:7: @user_script: 7: -OOM command not allowed",
                Some(("OOM", "command not allowed")),
            ),
            ("ERR", "Error running script (call to f_95): @user_script:7: a fault", None),
            ("ERR", "wrong number of arguments", None),
        ];
        for (code, detail, expected) in cases {
            assert_eq!(split_script_error(code, detail), expected, "{detail}");
        }
    }

    #[test]
    fn names_the_missing_permission() {
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
        for (detail, expected) in cases {
            assert_eq!(missing_permission(detail), expected, "{detail}");
        }
    }

    #[test]
    fn configuration_errors_name_the_fix() {
        let cases = [
            ("MOVED 1 127.0.0.1:7000", "this Redis is a node of a cluster: write `redis-cluster://`"),
            ("ASK 1 127.0.0.1:7000", "this Redis is a node of a cluster: write `redis-cluster://`"),
            ("ERR DB index is out of range", "Redis has no database of that number: write one below"),
            (
                "ERR SELECT is not allowed in cluster mode",
                "has only database 0: write `redis-cluster://` and no database",
            ),
            (
                "ERR unknown command 'EVALSHA', with args beginning with:",
                "Redis does not have EVALSHA, which the limiter",
            ),
        ];
        for (reply, expected) in cases {
            let error = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes());
            let error = error.and_then(Value::extract_error).expect_err("an error");
            let error = Error::from(CommandError(error));
            assert_eq!(error.kind(), ErrorKind::Config, "{reply}");
            assert!(error.to_string().contains(expected), "{reply}: {error}");
        }
        for (kind, expected) in [
            (RedisKind::InvalidClientConfig, "rejected its settings: check `url`, `tls` or `client`"),
            (RedisKind::RESP3NotSupported, "does not support RESP3 (HELLO 3): use Redis 6.2 or later, or Valkey"),
        ] {
            let error = Error::from(CommandError((kind, "no").into()));
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn removes_what_a_server_repeats_of_a_command() {
        let cases = [
            ("unknown command 'EVALSHA', with args beginning with: 'f00' '1'", "unknown command"),
            ("unknown command `HELLO`, with args beginning with: `3`, `AUTH`", "unknown command"),
            ("can't do that to \"rl:{user:@7}10s\"", "can't do that to"),
            ("no such key: rl:{user:@7}10s", "no such key: rl:"),
            ("Protocol error", "Protocol error"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(text_before_quotes(text), expected);
        }
    }

    /// Names in a certificate are text that the server chose.
    #[test]
    fn escapes_and_truncates_a_network_error_and_its_source() {
        use std::error::Error as _;
        for (text, is_kept) in [("invalid peer certificate: no", true), ("\x1b[31m", false), (&*"a".repeat(999), false)]
        {
            let error = Error::from(CommandError::from(RedisError::from(io::Error::other(text))));
            let source = error.source().expect("a source");
            assert_eq!(source.is::<RedisError>(), is_kept, "{text}");
            for shown in [error.to_string(), source.to_string()] {
                assert!(!shown.contains(char::is_control) && shown.chars().count() < 300, "{shown}");
            }
        }
    }

    #[test]
    fn rejects_redirects_of_slots_out_of_range() {
        let redirect = |code: &str, slot: u32| {
            let reply = redis::parse_redis_value(format!("-{code} {slot} 127.0.0.1:7000\r\n").as_bytes());
            CommandError(reply.and_then(Value::extract_error).expect_err("an error")).redirect()
        };
        assert!(matches!(redirect("MOVED", 16_383), Some(Redirect::Moved { slot: 16_383, .. })));
        assert!(matches!(redirect("ASK", 16_383), Some(Redirect::Ask { slot: 16_383, .. })));
        assert_eq!((redirect("MOVED", 16_384), redirect("ASK", 16_384)), (None, None));
    }
}

#[cfg(test)]
mod server_text_tests {
    use super::*;

    #[test]
    fn escapes_only_characters_that_a_terminal_interprets() {
        let cases = [
            ("plain 'words', \"quoted\" \\ and `so` on", "plain 'words', \"quoted\" \\ and `so` on"),
            ("Zürich 東京 🦀", "Zürich 東京 🦀"),
            ("\x1b[31mred\x07", "\\u001b[31mred\\u0007"),
            ("one\r\ntwo\tthree\0", "one\\r\\ntwo\\tthree\\0"),
            ("\u{9b}31m \u{7f} \u{202e}desrever\u{2028}", "\\u009b31m \\u007f \\u202edesrever\\u2028"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(escape_and_truncate(text), expected);
        }
    }

    #[test]
    fn truncates_between_characters() {
        assert_eq!(escape_and_truncate(&"a".repeat(200)), "a".repeat(200));
        for (letter, kept) in [("a", 200), ("é", 200), ("🦀", 200), ("\x1b", 33)] {
            let text = escape_and_truncate(&letter.repeat(10_000));
            assert_eq!(text, escape_and_truncate(letter).repeat(kept) + "…");
        }
    }
}
