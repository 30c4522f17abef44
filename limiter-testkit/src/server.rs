//! A real `redis-server`, started and owned by the test process.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use self::config::Config;
use self::process::Process;
use crate::resp::{Client, Reply};
use crate::socket::Address;

mod binary;
mod builder;
mod certificates;
mod clock;
mod config;
mod port;
mod process;
mod query;
#[cfg(test)]
mod tests;

pub(crate) use builder::MAX_PORT_ATTEMPTS;
pub use builder::RedisServerBuilder;
pub(crate) use certificates::Certificates;
pub(crate) use port::{BUS_OFFSET, free_port_with_bus};

/// The time in which a server must start, and in which it must reply to one command.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// A real Redis server, empty at the start. The server ends with this value and with the test process, however that
/// process ends.
///
/// Methods that disturb other users of the server, such as `pause` and `kill`, take `&mut self`. The shared server is
/// therefore safe from them.
///
/// ```
/// use limiter_testkit::RedisServer;
///
/// let server = RedisServer::start();
/// server.command(&["SET", "greeting", "hello", "PX", "5000"]);
/// assert_eq!(server.command(&["GET", "greeting"]).text(), "hello");
/// assert!(server.pttl("greeting") > 0);
/// ```
#[derive(Debug)]
pub struct RedisServer {
    process: Option<Process>, // the first field, so that it ends before its directory is removed
    config: Config,
    directory: TempDir,
}

impl RedisServer {
    /// Starts a server for one test, on a Unix socket.
    ///
    /// The binary is `redis-server`, or the one named by the environment variable `RATE_LIMITED_REDIS_SERVER`.
    ///
    /// # Panics
    ///
    /// There is no such binary, or the server does not reply within 20 s. The message has the end of its log.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Returns a builder for a server with a TCP port, TLS, a password or other settings.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// Returns the server that all tests of this process share, on a Unix socket. Use keys from [`unique`].
    ///
    /// # Panics
    ///
    /// Panics like [`start`](Self::start).
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<RedisServer> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Returns a second shared server, whose wall clock is stopped: no key in it expires. It serves limiters with a
    /// manual clock, which is slower than the real clock on a busy machine.
    ///
    /// It has 1000 databases, and each test may use one of its own. See [`stop_clock`](Self::stop_clock) for the error of
    /// its clock.
    ///
    /// On systems without settable clocks (see [`RedisServerBuilder::shifted_clock`]) its clock runs normally.
    ///
    /// # Panics
    ///
    /// Panics like [`start`](Self::start).
    #[must_use]
    pub fn timeless() -> &'static Self {
        static TIMELESS: OnceLock<RedisServer> = OnceLock::new();
        TIMELESS.get_or_init(|| {
            let mut builder = Self::builder().setting("databases", "1000");
            let has_clock = cfg!(target_os = "linux");
            if has_clock {
                builder = builder.shifted_clock();
            }
            let mut server = builder.start();
            if has_clock {
                server.stop_clock();
            }
            server
        })
    }

    /// Returns the URL for clients, with the credentials: `redis+unix://…`, `redis://…` or `rediss://…`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(&self.address())
    }

    /// Returns the URL of this server at the address of a proxy.
    pub(crate) fn url_at(&self, address: &Address) -> String {
        self.config.url(address)
    }

    /// Returns the scheme of a URL with a TCP port: `rediss` with TLS, and `redis` without it.
    pub(crate) fn scheme(&self) -> &'static str {
        self.config.scheme()
    }

    /// Returns the part of a URL before the hosts: `user:password@`, `:password@`, or nothing.
    pub(crate) fn authority(&self) -> String {
        self.config.authority()
    }

    /// Returns user and password of a client with all permissions, or `None` if the server needs none.
    pub(crate) fn admin(&self) -> Option<(&str, &str)> {
        self.config.access.admin()
    }

    /// Returns the address in [`url`](Self::url).
    #[must_use]
    pub fn address(&self) -> Address {
        self.config.address()
    }

    /// Returns the path of the Unix socket, which every server has beside its port.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.config.socket
    }

    /// Returns the PEM file of the certificate authority that signed a TLS server's certificate.
    #[must_use]
    pub fn ca_certificate(&self) -> Option<PathBuf> {
        let path = self.directory.path().join(certificates::CA_CERTIFICATE);
        path.exists().then_some(path)
    }

    /// Returns a client certificate that a TLS server trusts, and its key, as PEM files. The server requires one with
    /// `setting("tls-auth-clients", "yes")`.
    #[must_use]
    pub fn client_certificate(&self) -> Option<(PathBuf, PathBuf)> {
        let [certificate, key] =
            [certificates::CLIENT_CERTIFICATE, certificates::CLIENT_KEY].map(|file| self.directory.path().join(file));
        certificate.exists().then_some((certificate, key))
    }

    /// Returns the major and minor version of the binary.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        binary::version()
    }

    /// Runs one command on a new connection, as a user with all permissions.
    ///
    /// # Panics
    ///
    /// The server rejects the command, or does not reply within 20 s. The message has the end of its log.
    #[track_caller]
    pub fn command(&self, arguments: &[&str]) -> Reply {
        match self.try_command(arguments) {
            Ok(Reply::Error(message)) => panic!("{arguments:?} was rejected: {message}"),
            Ok(reply) => reply,
            Err(error) => panic!("{arguments:?} failed: {error}\n{}", self.log_tail()),
        }
    }

    /// Runs one command like [`command`](Self::command), with arguments of any bytes. An error reply is
    /// [`Reply::Error`].
    ///
    /// # Errors
    ///
    /// The server is not reachable, or does not reply within 20 s.
    pub fn try_command(&self, arguments: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.client()?.call(arguments)
    }

    /// Opens a connection for several commands, as a user with all permissions.
    ///
    /// # Errors
    ///
    /// The server is not reachable, or does not reply within 20 s.
    pub fn client(&self) -> io::Result<Client> {
        self.config.client(REPLY_TIMEOUT)
    }

    /// Returns all keys, sorted, without those of heartbeats. A limiter writes these from a while after its start on.
    #[track_caller]
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let mut keys = self.all_keys();
        keys.retain(|key| !key.contains("-live:{"));
        keys
    }

    /// Returns all keys, sorted.
    #[track_caller]
    #[must_use]
    pub fn all_keys(&self) -> Vec<String> {
        let replies = self.command(&["KEYS", "*"]).array();
        let mut keys: Vec<_> =
            replies.into_iter().map(|key| String::from_utf8_lossy(&key.bytes()).into_owned()).collect();
        keys.sort();
        keys
    }

    /// Returns the keys that contain `text`, sorted: those of one test on a shared server.
    #[track_caller]
    #[must_use]
    pub fn keys_with(&self, text: &str) -> Vec<String> {
        let mut keys = self.keys();
        keys.retain(|key| key.contains(text));
        keys
    }

    /// Returns the remaining time to live of a key in milliseconds: -1 without an expiry, -2 if there is no such key.
    #[track_caller]
    #[must_use]
    pub fn pttl(&self, key: &str) -> i64 {
        self.command(&["PTTL", key]).integer()
    }

    /// Flushes all cached scripts, so that the next `EVALSHA` fails with `NOSCRIPT`.
    #[track_caller]
    pub fn flush_scripts(&self) {
        self.command(&["SCRIPT", "FLUSH"]);
    }

    /// Returns one section of `INFO`, such as `commandstats`.
    #[track_caller]
    #[must_use]
    pub fn info(&self, section: &str) -> BTreeMap<String, String> {
        let text = self.command(&["INFO", section]).text();
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// Returns the number of script calls since the server started.
    ///
    /// # Panics
    ///
    /// The server does not reply as a Redis server.
    #[track_caller]
    #[must_use]
    pub fn script_calls(&self) -> u64 {
        let stats = self.info("commandstats");
        let calls = stats.get("cmdstat_evalsha").and_then(|stat| stat.split(['=', ',']).nth(1));
        calls.map_or(0, |calls| calls.parse().expect("a number"))
    }

    /// Stops the process (`SIGSTOP`). Connections stay open, the system accepts new ones, and the server sends no
    /// reply.
    ///
    /// # Panics
    ///
    /// The server has been killed.
    pub fn pause(&mut self) {
        self.process().pause();
    }

    /// Continues a paused process. It replies to all commands that arrived meanwhile.
    ///
    /// # Panics
    ///
    /// The server has been killed.
    pub fn resume(&mut self) {
        self.process().resume();
    }

    /// Sets the server's wall clock ahead of the real one by this many microseconds, or behind it if negative.
    ///
    /// Returns once the server's `TIME` shows the new time: some servers read the system's clock only now and then.
    ///
    /// # Panics
    ///
    /// The server was started without [`RedisServerBuilder::shifted_clock`], or does not show the time within 20 s.
    pub fn set_clock(&mut self, micros: i64) {
        let clock = self.config.clock.as_ref();
        clock.expect("a server with a clock to set: `RedisServer::builder().shifted_clock()`").set(micros);
        let deadline = Instant::now() + REPLY_TIMEOUT;
        while (self.clock_offset_micros() - micros).abs() > 500_000 {
            assert!(
                Instant::now() < deadline,
                "the server's clock does not show the time that was set\n{}",
                self.log_tail()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops the server's wall clock, so that no key expires any more. Returns once the server's `TIME` stands still.
    ///
    /// The stopped clock of Valkey 9.1 still moves: see [`stopped_clock_error_millis`](Self::stopped_clock_error_millis).
    ///
    /// # Panics
    ///
    /// Panics like [`set_clock`](Self::set_clock).
    pub fn stop_clock(&mut self) {
        let clock = self.config.clock.as_ref();
        let clock = clock.expect("a server with a clock to stop: `RedisServer::builder().shifted_clock()`");
        let stopped_at = real_micros();
        clock.stop(stopped_at);
        let deadline = Instant::now() + REPLY_TIMEOUT;
        loop {
            thread::sleep(Duration::from_millis(5));
            let passed = real_micros() - stopped_at;
            if self.micros() - stopped_at < passed / 2 {
                break;
            }
            assert!(Instant::now() < deadline, "the server's clock does not stop\n{}", self.log_tail());
        }
    }

    /// Returns by how many milliseconds the server's [stopped clock](Self::stop_clock) is ahead at most: 1 on Valkey, else 0.
    ///
    /// Valkey 9.1 reads the wall clock once a millisecond, and adds the time since the last look. A TTL that is set and then
    /// read may be longer by so much.
    #[must_use]
    pub fn stopped_clock_error_millis(&self) -> i64 {
        i64::from(self.info("server").contains_key("valkey_version"))
    }

    /// Returns by how many microseconds the server's clock is ahead of the real one.
    fn clock_offset_micros(&self) -> i64 {
        self.micros() - real_micros()
    }

    /// Returns the server's time in microseconds since 1970.
    fn micros(&self) -> i64 {
        let time = self.command(&["TIME"]).array().into_iter().map(Reply::text);
        let time: Vec<i64> = time.map(|number| number.parse().expect("seconds and microseconds")).collect();
        time[0] * 1_000_000 + time[1]
    }

    /// Kills the process (`SIGKILL`). All connections and data are lost.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Kills the process if it runs, and starts it again with the same URL and no data. Its settings are those of the
    /// first start, or of the last `CONFIG REWRITE`.
    ///
    /// # Panics
    ///
    /// Panics like [`start`](Self::start).
    pub fn restart(&mut self) {
        self.kill();
        match Process::start(&self.config, self.directory.path(), REPLY_TIMEOUT) {
            Ok(process) => self.process = Some(process),
            Err(failure) => panic!("{failure}"),
        }
    }

    /// Returns the end of the server's log, for a message.
    #[must_use]
    pub fn log_tail(&self) -> String {
        process::log_tail(self.directory.path())
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("this server has been killed: `restart` it first")
    }
}

/// Returns a name that is unique across all test processes, for keys and prefixes on a shared server.
#[must_use]
pub fn unique(prefix: &str) -> String {
    static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{number}", std::process::id())
}

/// Returns the real time in microseconds since 1970.
fn real_micros() -> i64 {
    let real = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros();
    i64::try_from(real).expect("before the year 294000")
}
