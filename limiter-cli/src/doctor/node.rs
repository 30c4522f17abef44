//! A connection to one server, for commands of the checks.

use std::collections::BTreeMap;
use std::time::Duration;

use rate_limited::redis::aio::MultiplexedConnection;
use rate_limited::redis::{AsyncConnectionConfig, Client, Cmd, ConnectionInfo, RedisError, Value, cmd};

use super::deployment::{Address, with_database};
use crate::output::visible;

/// The time in which a server must accept a connection, and reply to a command.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest text of a server that is written.
const MAX_SERVER_TEXT: usize = 120;

/// A server with a connection to it.
#[derive(Clone)]
pub(super) struct Node {
    /// The address, without user and password.
    pub(super) name: String,
    /// The user of the URL.
    pub(super) user: String,
    /// True if the user may not select the database, so the connection is to database 0.
    pub(super) lacks_select: bool,
    connection: MultiplexedConnection,
}

/// The reason why a server did not do what a command states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The user lacks the permission for the command.
    Command,
    /// The user lacks the permission for the key or the channel of the command.
    Pattern,
    /// The server has no such command, or its provider has disabled it.
    Missing,
    /// Another error of the server, by its code.
    Server(String),
    /// There is no reply.
    NoReply(String),
}

impl Node {
    /// Connects to a server. A user without permission for the database is connected to database 0.
    pub(super) async fn open(info: &ConnectionInfo) -> Result<Self, Refusal> {
        let mut opened = connect(info.clone()).await;
        let mut lacks_select = false;
        if matches!(opened, Err(Refusal::Command)) && info.redis_settings().db() != 0 {
            lacks_select = true;
            opened = connect(with_database(info, 0)).await;
        }
        let user = info.redis_settings().username().unwrap_or("default").to_owned();
        Ok(Self { name: Address(info).to_string(), user, lacks_select, connection: opened? })
    }

    /// Sends a command and returns its reply.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, Refusal> {
        let mut connection = self.connection.clone();
        let reply = connection.send_packed_command(command).await.and_then(Value::extract_error);
        reply.map_err(|error| Refusal::from_error(&error))
    }

    /// Reads a section of `INFO`.
    pub(super) async fn info(&self, section: &str) -> Result<BTreeMap<String, String>, Refusal> {
        let reply = self.send(cmd("INFO").arg(section)).await?;
        Ok(parse_info(&text(&reply).unwrap_or_default()))
    }

    /// Reads a setting by `CONFIG GET`; `None` if the server has none of this name.
    pub(super) async fn setting(&self, name: &str) -> Result<Option<String>, Refusal> {
        let reply = self.send(cmd("CONFIG").arg("GET").arg(name)).await?;
        Ok(field(&reply, name).as_deref().map(printable))
    }
}

async fn connect(info: ConnectionInfo) -> Result<MultiplexedConnection, Refusal> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(REPLY_TIMEOUT))
        .set_response_timeout(Some(REPLY_TIMEOUT));
    let client = Client::open(info).map_err(|error| Refusal::from_error(&error))?;
    let opened = client.get_multiplexed_async_connection_with_config(&config).await;
    opened.map_err(|error| Refusal::from_error(&error))
}

impl Refusal {
    fn from_error(error: &RedisError) -> Self {
        let detail = error.detail().unwrap_or_default();
        if error.is_timeout() {
            return Self::NoReply(format!("no reply within {} s", REPLY_TIMEOUT.as_secs()));
        }
        match error.code() {
            Some(code) => Self::from_reply(code, detail),
            None if error.is_io_error() => Self::NoReply(printable(&error.to_string())),
            // Its text may repeat the password, or a part of the URL.
            None => Self::NoReply(error.category().to_owned()),
        }
    }

    /// Returns the reason for an error reply. Its detail may repeat arguments of the command, so it is not kept.
    fn from_reply(code: &str, detail: &str) -> Self {
        let lower = detail.to_lowercase();
        // Redis has no code of its own for SELECT, and none for commands of a script.
        let is_refused = code == "NOPERM" || lower.contains("no permissions");
        if is_refused && lower.contains("permissions to access") {
            Self::Pattern
        } else if is_refused {
            Self::Command
        } else if ["unknown command", "unknown subcommand", "not allowed", "is disabled", "disabled by"]
            .iter()
            .any(|words| lower.starts_with(words) || (code == "ERR" && lower.contains(words)))
        {
            Self::Missing
        } else {
            Self::Server(printable(code))
        }
    }

    /// Returns a sentence about this command, such as `INFO is not permitted`.
    pub(super) fn of(&self, command: &str) -> String {
        match self {
            Self::Command | Self::Pattern | Self::Missing => format!("{command} is {}", self.reason()),
            Self::Server(_) | Self::NoReply(_) => format!("{command} failed: {}", self.reason()),
        }
    }

    /// Returns a clause for a finding, such as `not permitted`.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Command | Self::Pattern => "not permitted".to_owned(),
            Self::Missing => "not offered by this server".to_owned(),
            Self::Server(code) => format!("the server replied {code}"),
            Self::NoReply(reason) => reason.clone(),
        }
    }
}

/// Parses the lines `name:value` of `INFO`.
fn parse_info(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), printable(value.trim_end())))
        .collect()
}

/// Returns the text of a reply.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::Int(number) => Some(number.to_string()),
        Value::Okay => Some("OK".to_owned()),
        _ => None,
    }
}

/// Returns a field of a reply of pairs: a map, or an array of names and values by turns.
pub(super) fn field(reply: &Value, name: &str) -> Option<String> {
    let is_name = |key: &Value| text(key).is_some_and(|key| key == name);
    match reply {
        Value::Map(fields) => fields.iter().find(|(key, _)| is_name(key)).and_then(|(_, value)| text(value)),
        Value::Array(fields) => fields.chunks_exact(2).find(|pair| is_name(&pair[0])).and_then(|pair| text(&pair[1])),
        _ => None,
    }
}

/// Returns a server's text without control characters, and not too long.
pub(super) fn printable(text: &str) -> String {
    visible(&text.chars().take(MAX_SERVER_TEXT).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_replies_of_all_versions_are_classified() {
        let cases = [
            ("NOPERM", "User app has no permissions to run the 'get' command", Refusal::Command),
            ("NOPERM", "this user has no permissions to run the 'get' command or its subcommand", Refusal::Command),
            ("NOPERM", "this user has no permissions to access one of the keys used as arguments", Refusal::Pattern),
            ("NOPERM", "No permissions to access a key", Refusal::Pattern),
            ("NOPERM", "No permissions to access a channel", Refusal::Pattern),
            ("ERR", "this user has no permissions to run the 'select' command or its subcommand", Refusal::Command),
            ("ERR", "unknown command 'CONFIG', with args beginning with: 'GET' 's3cret' ", Refusal::Missing),
            ("ERR", "unknown command `config`, with args beginning with: ", Refusal::Missing),
            ("ERR", "command is disabled by the provider", Refusal::Missing),
            ("MOVED", "1 127.0.0.1:7000", Refusal::Server("MOVED".to_owned())),
            ("NOSCRIPT", "No matching script.", Refusal::Server("NOSCRIPT".to_owned())),
            ("OOM", "command not allowed when used memory > 'maxmemory'.", Refusal::Server("OOM".to_owned())),
        ];
        for (code, detail, expected) in cases {
            assert_eq!(Refusal::from_reply(code, detail), expected, "{code} {detail}");
        }
    }

    #[test]
    fn replies_are_read_as_text_and_fields() {
        let info = parse_info("# Memory\r\nused_memory:12\r\nmaxmemory_policy:noeviction\r\n");
        assert_eq!(info.get("maxmemory_policy").map(String::as_str), Some("noeviction"));
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let map = Value::Map(vec![(bulk("a"), bulk("1")), (bulk("b"), Value::Int(2))]);
        let array = Value::Array(vec![bulk("a"), bulk("1"), bulk("b"), Value::Int(2)]);
        for reply in [map, array] {
            assert_eq!((field(&reply, "b").as_deref(), field(&reply, "c")), (Some("2"), None));
        }
        assert_eq!(printable("a\u{1b}[31m"), "a\\u{1b}[31m");
        assert_eq!(printable("\u{202e}\u{9b}"), "\\u{202e}\\u{9b}");
    }
}
