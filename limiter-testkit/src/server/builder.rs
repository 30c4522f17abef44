//! What kind of server to start.

use std::env;
use std::path::PathBuf;

use tempfile::TempDir;

use super::clock::ShiftedClock;
use super::config::{Access, Config, Endpoint, quoted};
use super::process::{Failure, Process};
use super::{DEADLINE, RedisServer, certificates, port};

/// How often another port is tried when somebody else takes the one that was found free.
pub(crate) const PORT_ATTEMPTS: usize = 8;

/// Describes a [`RedisServer`] before it starts; see [`RedisServer::builder`].
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs before `start`"]
pub struct RedisServerBuilder {
    listen: Listen,
    access: Access,
    settings: Vec<(String, String)>,
    shifted_clock: bool,
    expired: bool,
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
    /// Listens on a free port of 127.0.0.1 as well, and [`RedisServer::url`] names that.
    pub fn tcp(mut self) -> Self {
        self.listen = Listen::Tcp;
        self
    }

    /// As [`tcp`](Self::tcp), with TLS and a certificate made for this server; see [`RedisServer::ca_certificate`].
    pub fn tls(mut self) -> Self {
        self.listen = Listen::Tls;
        self
    }

    /// As [`tls`](Self::tls), with a certificate that was good until 2020.
    pub fn expired_tls(mut self) -> Self {
        self.expired = true;
        self.tls()
    }

    /// Asks for this password.
    pub fn password(mut self, password: &str) -> Self {
        self.access = Access::Password(password.to_owned());
        self
    }

    /// Asks for this user, who may do everything, and refuses everybody else.
    pub fn user(self, name: &str, password: &str) -> Self {
        self.user_with_rules(name, password, "~* &* +@all")
    }

    /// As [`user`](Self::user), with the rights of these ACL rules, such as `~* +@all -flushall`.
    pub fn user_with_rules(mut self, name: &str, password: &str, rules: &str) -> Self {
        self.access = Access::User { name: name.to_owned(), password: password.to_owned(), rules: rules.to_owned() };
        self
    }

    /// Refuses writes above so many bytes of memory. An empty server takes about a million.
    pub fn maxmemory(self, bytes: u64) -> Self {
        self.setting("maxmemory", &bytes.to_string())
    }

    /// Has a wall clock that [`RedisServer::set_clock`] sets. Needs a C compiler, `cc`, and a system with `LD_PRELOAD`.
    pub fn shifted_clock(mut self) -> Self {
        self.shifted_clock = true;
        self
    }

    /// Any other line of `redis.conf`. The value is written as it is: quote it where the format asks for it.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// As [`setting`](Self::setting), for a value of several words of any characters.
    pub(crate) fn setting_of(self, name: &str, words: &[&str]) -> Self {
        let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
        self.setting(name, &words.join(" "))
    }

    /// Lets replicas have its data at once, instead of after a wait for more of them.
    pub(crate) fn quick_replication(self) -> Self {
        self.setting("repl-diskless-sync", "yes").setting("repl-diskless-sync-delay", "0")
    }

    /// User and password of whoever may do everything, unless everybody may.
    pub(crate) fn admin(&self) -> Option<(&str, &str)> {
        self.access.admin()
    }

    /// Runs as a sentinel, which watches over other servers.
    pub(crate) fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// Starts it and waits until it answers.
    ///
    /// # Panics
    ///
    /// There is no `redis-server`, or it does not answer within 20 s: with the end of its log.
    #[must_use]
    pub fn start(self) -> RedisServer {
        self.start_on(port::free_port)
    }

    /// As [`start`](Self::start), with the ports to try.
    pub(super) fn start_on(self, mut next_port: impl FnMut() -> u16) -> RedisServer {
        let needs_port = self.listen != Listen::UnixOnly;
        let mut start = || self.start_at(if needs_port { next_port() } else { 0 });
        let server = (0..PORT_ATTEMPTS).find_map(|_| start());
        server.unwrap_or_else(|| panic!("no free port for redis-server after {PORT_ATTEMPTS} attempts"))
    }

    /// As [`start`](Self::start), on this port; `None` if somebody else has it.
    pub(crate) fn start_at(&self, port: u16) -> Option<RedisServer> {
        let directory = server_directory();
        let mut config = Config::on(directory.path());
        config.endpoint = match self.listen {
            Listen::UnixOnly => Endpoint::Unix,
            Listen::Tcp => Endpoint::Tcp(port),
            Listen::Tls => Endpoint::Tls(port),
        };
        if self.listen == Listen::Tls {
            certificates::write_to(directory.path(), self.expired);
        }
        config.access = self.access.clone();
        config.settings.clone_from(&self.settings);
        config.clock = self.shifted_clock.then(|| ShiftedClock::build(directory.path()));
        config.sentinel = self.sentinel;
        config.write_to(directory.path());
        match Process::start(&config, directory.path(), DEADLINE) {
            Ok(process) => Some(RedisServer { process: Some(process), config, directory }),
            Err(Failure::PortTaken(_)) => None,
            Err(failure) => panic!("{failure}"),
        }
    }
}

/// A directory that only this user can read. The path of a Unix socket has room for about 100 bytes.
fn server_directory() -> TempDir {
    let mut parent = env::temp_dir();
    if parent.as_os_str().len() > 70 {
        parent = PathBuf::from("/tmp");
    }
    let directory = tempfile::Builder::new().prefix("limiter-").tempdir_in(parent);
    directory.expect("a temporary directory for redis-server")
}
