//! The configuration of a server: the text of its `redis.conf` and its URL for clients.

use std::ffi::OsString;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use super::clock::ShiftedClock;
use super::{binary, certificates};
use crate::resp::{Client, Reply};
use crate::socket::Address;

/// The user for the testkit's own commands, on servers with users.
const ADMIN_USER: &str = "limiter-testkit";

const CONFIG_FILE: &str = "redis.conf";

#[derive(Debug)]
pub(super) struct Config {
    pub(super) socket: PathBuf,
    pub(super) endpoint: Endpoint,
    pub(super) access: Access,
    pub(super) settings: Vec<(String, String)>,
    pub(super) clock: Option<ShiftedClock>,
    pub(super) sentinel: bool,
}

/// The endpoint that clients connect to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Endpoint {
    Unix,
    Tcp(u16),
    Tls(u16),
}

/// The credentials that a server requires.
#[derive(Debug, Clone, Default)]
pub(super) enum Access {
    #[default]
    Open,
    Password(String),
    User {
        name: String,
        password: String,
        rules: String,
    },
}

impl Access {
    /// Returns user and password of a client with all permissions, or `None` if the server needs none.
    pub(super) fn admin(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Open => None,
            Self::Password(password) => Some(("default", password)),
            Self::User { password, .. } => Some((ADMIN_USER, password)),
        }
    }
}

impl Config {
    /// Creates the configuration of a server that keeps its files in this directory and listens on a Unix socket there.
    pub(super) fn new(directory: &Path) -> Self {
        let socket = directory.join("redis.sock");
        let (endpoint, access) = (Endpoint::Unix, Access::Open);
        Self { socket, endpoint, access, settings: Vec::new(), clock: None, sentinel: false }
    }

    /// Writes `redis.conf`. This happens once, before the first start, so that later changes by the server itself stay.
    pub(super) fn write_to(&self, directory: &Path) {
        fs::write(directory.join(CONFIG_FILE), self.text(directory)).expect("writing to the server's own directory");
    }

    /// Returns the arguments of the program.
    pub(super) fn arguments(&self, directory: &Path) -> Vec<OsString> {
        let mode = self.sentinel.then(|| "--sentinel".into());
        [directory.join(CONFIG_FILE).into()].into_iter().chain(mode).collect()
    }

    /// Returns the text of `redis.conf`.
    fn text(&self, directory: &Path) -> String {
        let mut text = format!(
            "unixsocket {}\nunixsocketperm 700\nbind 127.0.0.1\nsave \"\"\nappendonly no\ndaemonize no\ndir {}\n",
            quoted(&self.socket.to_string_lossy()),
            quoted(&directory.to_string_lossy()),
        );
        let mut line = |name: &str, value: &str| {
            writeln!(text, "{name} {value}").expect("writing to a string");
        };
        if binary::version() >= (7, 0) {
            line("enable-debug-command", "yes");
        }
        match self.endpoint {
            Endpoint::Unix => line("port", "0"),
            Endpoint::Tcp(port) => line("port", &port.to_string()),
            Endpoint::Tls(port) => {
                line("port", "0");
                line("tls-port", &port.to_string());
                line("tls-auth-clients", "no");
                for (name, file) in [
                    ("tls-ca-cert-file", certificates::CA_CERTIFICATE),
                    ("tls-cert-file", certificates::CERTIFICATE),
                    ("tls-key-file", certificates::KEY),
                    // For connections to other servers, as to a master.
                    ("tls-client-cert-file", certificates::CLIENT_CERTIFICATE),
                    ("tls-client-key-file", certificates::CLIENT_KEY),
                ] {
                    line(name, &quoted(&directory.join(file).to_string_lossy()));
                }
            }
        }
        match &self.access {
            Access::Open => {}
            Access::Password(password) => line("requirepass", &quoted(password)),
            Access::User { name, password, rules } => {
                line("user", "default off");
                line("user", &format!("{ADMIN_USER} on {} ~* &* +@all", quoted(&format!(">{password}"))));
                line("user", &format!("{name} on {} {rules}", quoted(&format!(">{password}"))));
            }
        }
        // A replica needs the credentials of its master. A sentinel is no replica and rejects these settings.
        if let Some((user, password)) = self.access.admin().filter(|_| !self.sentinel) {
            line("masteruser", user);
            line("masterauth", &quoted(password));
        }
        for (name, value) in &self.settings {
            line(name, value);
        }
        text
    }

    pub(super) fn address(&self) -> Address {
        match self.endpoint {
            Endpoint::Unix => Address::Unix(self.socket.clone()),
            Endpoint::Tcp(port) | Endpoint::Tls(port) => Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        }
    }

    /// Returns the URL of a server with this configuration at another address, such as a proxy's.
    pub(super) fn url(&self, address: &Address) -> String {
        match address {
            Address::Unix(path) => {
                let (user, password) = self.encoded_access();
                let user = user.map(|user| format!("user={user}"));
                let password = password.map(|password| format!("pass={password}"));
                let query: Vec<_> = user.into_iter().chain(password).collect();
                let mark = if query.is_empty() { "" } else { "?" };
                format!("redis+unix://{}{mark}{}", encoded(&path.to_string_lossy()), query.join("&"))
            }
            Address::Tcp(address) => format!("{}://{}{address}", self.scheme(), self.authority()),
        }
    }

    /// Returns the scheme of a URL with a TCP port: `rediss` with TLS, and `redis` without it.
    pub(super) fn scheme(&self) -> &'static str {
        if matches!(self.endpoint, Endpoint::Tls(_)) { "rediss" } else { "redis" }
    }

    /// Returns the part of a URL before the host: `user:password@`, `:password@`, or nothing.
    pub(super) fn authority(&self) -> String {
        let (user, password) = self.encoded_access();
        password.map(|password| format!("{}:{password}@", user.unwrap_or_default())).unwrap_or_default()
    }

    fn encoded_access(&self) -> (Option<String>, Option<String>) {
        match &self.access {
            Access::Open => (None, None),
            Access::Password(password) => (None, Some(encoded(password))),
            Access::User { name, password, .. } => (Some(encoded(name)), Some(encoded(password))),
        }
    }

    /// Connects over the Unix socket as a user with all permissions.
    pub(super) fn client(&self, timeout: Duration) -> io::Result<Client> {
        let mut client = Client::connect(&Address::Unix(self.socket.clone()), timeout)?;
        let Some((user, password)) = self.access.admin() else { return Ok(client) };
        match client.call(&["AUTH", user, password])? {
            Reply::Error(message) => Err(io::Error::new(io::ErrorKind::PermissionDenied, message)),
            _ => Ok(client),
        }
    }
}

/// Quotes a value for `redis.conf`, so that it is one word whatever it contains.
pub(super) fn quoted(value: &str) -> String {
    let escaped = value.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'>' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// Percent-encodes a value, except for the slashes of an absolute path.
fn encoded(value: &str) -> String {
    let path = value.starts_with('/');
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        b'/' if path => "/".to_owned(),
        _ => format!("%{byte:02X}"),
    };
    value.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_carry_the_credentials() {
        let password = Access::Password("p@s:/w d".into());
        let user = Access::User { name: "al:ice".into(), password: "pw&".into(), rules: String::new() };
        let table = [
            (Endpoint::Unix, Access::Open, "redis+unix:///tmp/a%20b/redis.sock"),
            (Endpoint::Unix, password.clone(), "redis+unix:///tmp/a%20b/redis.sock?pass=p%40s%3A%2Fw%20d"),
            (Endpoint::Unix, user.clone(), "redis+unix:///tmp/a%20b/redis.sock?user=al%3Aice&pass=pw%26"),
            (Endpoint::Tcp(17), Access::Open, "redis://127.0.0.1:17"),
            (Endpoint::Tcp(17), password, "redis://:p%40s%3A%2Fw%20d@127.0.0.1:17"),
            (Endpoint::Tls(17), user, "rediss://al%3Aice:pw%26@127.0.0.1:17"),
        ];
        for (endpoint, access, expected) in table {
            let socket = PathBuf::from("/tmp/a b/redis.sock");
            let config = Config { socket, endpoint, access, ..Config::new(Path::new("/tmp")) };
            assert_eq!(config.url(&config.address()), expected);
        }
    }

    #[test]
    fn a_quoted_value_cannot_end_its_quotes() {
        assert_eq!(quoted("a\"\n b"), r#""a\x22\x0a\x20b""#);
    }
}
