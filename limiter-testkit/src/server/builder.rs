//! The options of a server.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;

use super::certificates::Certificates;
use super::clock::ShiftedClock;
use super::config::{Access, Config, Endpoint, quoted};
use super::process::{Process, StartFailure};
use super::{REPLY_TIMEOUT, RedisServer, port};

/// The number of ports that are tried when another process takes the one that was found free.
pub(crate) const MAX_PORT_ATTEMPTS: usize = 8;

/// The options of a [`RedisServer`] before it starts; see [`RedisServer::builder`].
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs before `start`"]
pub struct RedisServerBuilder {
    listen: Listen,
    access: Access,
    settings: Vec<(String, String)>,
    shifted_clock: bool,
    expired: bool,
    /// Those of several servers. Without them, a TLS server gets certificates of its own.
    certificates: Option<Arc<Certificates>>,
    sentinel: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Listen {
    #[default]
    UnixOnly,
    Tcp,
    Tls,
}

impl RedisServerBuilder {
    /// Adds a free port of 127.0.0.1, which [`RedisServer::url`] then names.
    pub fn tcp(mut self) -> Self {
        self.listen = Listen::Tcp;
        self
    }

    /// Adds a port like [`tcp`](Self::tcp), with TLS and a certificate made for this server; see
    /// [`RedisServer::ca_certificate`].
    pub fn tls(mut self) -> Self {
        self.listen = Listen::Tls;
        self
    }

    /// Adds a port like [`tls`](Self::tls), with a certificate that expired in 2020.
    pub fn expired_tls(mut self) -> Self {
        self.expired = true;
        self.tls()
    }

    /// Adds a port like [`tls`](Self::tls), with certificates that other servers have too. The server's own connections
    /// to its master and to other sentinels are over TLS as well.
    pub(crate) fn tls_within(mut self, certificates: &Arc<Certificates>) -> Self {
        self.certificates = Some(Arc::clone(certificates));
        self.tls().setting("tls-replication", "yes")
    }

    /// Returns true if the server's port is for TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.listen == Listen::Tls
    }

    /// Requires this password.
    pub fn password(mut self, password: &str) -> Self {
        self.access = Access::Password(password.to_owned());
        self
    }

    /// Requires this user, who has all permissions, and rejects all other users.
    pub fn user(self, name: &str, password: &str) -> Self {
        self.user_with_rules(name, password, "~* &* +@all")
    }

    /// Requires a user like [`user`](Self::user), with these ACL rules, such as `~* +@all -flushall`.
    pub fn user_with_rules(mut self, name: &str, password: &str, rules: &str) -> Self {
        self.access = Access::User { name: name.to_owned(), password: password.to_owned(), rules: rules.to_owned() };
        self
    }

    /// Rejects writes above this many bytes of memory. An empty server uses about a million.
    pub fn maxmemory(self, bytes: u64) -> Self {
        self.setting("maxmemory", &bytes.to_string())
    }

    /// Gives the server a wall clock that [`RedisServer::set_clock`] sets. This needs a C compiler, `cc`, and a system
    /// with `LD_PRELOAD`.
    pub fn shifted_clock(mut self) -> Self {
        self.shifted_clock = true;
        self
    }

    /// Adds another line to `redis.conf`. The value is written as it is: quote it where the format needs quotes.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a line like [`setting`](Self::setting), with a value of several words of any characters.
    pub(crate) fn quoted_setting(self, name: &str, words: &[&str]) -> Self {
        let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
        self.setting(name, &words.join(" "))
    }

    /// Starts the transfer to a new replica at once, instead of waiting for more replicas.
    pub(crate) fn quick_replication(self) -> Self {
        self.setting("repl-diskless-sync", "yes").setting("repl-diskless-sync-delay", "0")
    }

    /// Returns user and password of a client with all permissions, or `None` if the server needs none.
    pub(crate) fn admin(&self) -> Option<(&str, &str)> {
        self.access.admin()
    }

    /// Runs the server as a sentinel, which monitors other servers.
    pub(crate) fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// Starts the server and waits for its first reply.
    ///
    /// # Panics
    ///
    /// There is no `redis-server`, or it does not reply within 20 s. The message has the end of its log.
    #[must_use]
    pub fn start(self) -> RedisServer {
        self.start_with_ports(port::free_port)
    }

    /// Starts the server like [`start`](Self::start), on the first free one of these ports.
    pub(super) fn start_with_ports(self, mut next_port: impl FnMut() -> u16) -> RedisServer {
        let needs_port = self.listen != Listen::UnixOnly;
        let mut start = || self.start_at(if needs_port { next_port() } else { 0 });
        let server = (0..MAX_PORT_ATTEMPTS).find_map(|_| start());
        server.unwrap_or_else(|| panic!("no free port for redis-server after {MAX_PORT_ATTEMPTS} attempts"))
    }

    /// Starts the server like [`start`](Self::start), on this port; `None` if another process has taken it.
    pub(crate) fn start_at(&self, port: u16) -> Option<RedisServer> {
        let directory = server_directory();
        let mut config = Config::new(directory.path());
        config.endpoint = match self.listen {
            Listen::UnixOnly => Endpoint::Unix,
            Listen::Tcp => Endpoint::Tcp(port),
            Listen::Tls => Endpoint::Tls(port),
        };
        if self.is_tls() {
            self.certificates().write_to(directory.path());
        }
        config.access = self.access.clone();
        config.settings.clone_from(&self.settings);
        config.clock = self.shifted_clock.then(|| ShiftedClock::build(directory.path()));
        config.sentinel = self.sentinel;
        config.write_to(directory.path());
        match Process::start(&config, directory.path(), REPLY_TIMEOUT) {
            Ok(process) => Some(RedisServer { process: Some(process), config, directory }),
            Err(StartFailure::PortTaken(_)) => None,
            Err(failure) => panic!("{failure}"),
        }
    }

    fn certificates(&self) -> Arc<Certificates> {
        let create = if self.expired { Certificates::create_expired } else { Certificates::create };
        self.certificates.clone().unwrap_or_else(|| Arc::new(create()))
    }
}

/// Creates a directory that only this user can read. Its path is short, because the path of a Unix socket is limited to
/// about 100 bytes.
fn server_directory() -> TempDir {
    let mut parent = env::temp_dir();
    if parent.as_os_str().len() > 70 {
        parent = PathBuf::from("/tmp");
    }
    let directory = tempfile::Builder::new().prefix("limiter-").tempdir_in(parent);
    directory.expect("a temporary directory for redis-server")
}
