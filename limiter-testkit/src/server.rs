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

mod ask;
mod binary;
mod builder;
mod certificates;
mod clock;
mod config;
mod port;
mod process;
#[cfg(test)]
mod tests;

pub(crate) use builder::PORT_ATTEMPTS;
pub use builder::RedisServerBuilder;
pub(crate) use port::{BUS_OFFSET, free_port_with_bus};

/// How long a server may take to start, and to answer one command.
const DEADLINE: Duration = Duration::from_secs(20);

/// A real Redis with nothing in it. It ends with this value, and with the test process however that one ends.
///
/// What disturbs a server's other users (pausing, killing) asks for `&mut`, so that the shared one is safe from it.
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
    process: Option<Process>, // first, so that it has ended when its directory goes
    config: Config,
    directory: TempDir,
}

impl RedisServer {
    /// A server of your own on a Unix socket.
    ///
    /// The binary is `redis-server`, or what the environment variable `RATE_LIMITED_REDIS_SERVER` names.
    ///
    /// # Panics
    ///
    /// There is no such binary, or it does not answer within 20 s: with the end of its log.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server of your own with a TCP port, TLS, a password or other settings.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// The one server of this test process, on a Unix socket. Take keys from [`unique`]: other tests use it too.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<RedisServer> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// The other server of this test process, whose wall clock stands still: no key in it ever expires. It is for
    /// limiters by a clock that tests move, which is slower than the real one when the machine is busy.
    ///
    /// It has 1000 databases, of which tests may take one each.
    ///
    /// Where clocks cannot be set (see [`RedisServerBuilder::shifted_clock`]) it is a server like others.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
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

    /// The URL a client needs, credentials included: `redis+unix://…`, `redis://…` or `rediss://…`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(&self.address())
    }

    /// The URL of this server behind a proxy.
    pub(crate) fn url_at(&self, address: &Address) -> String {
        self.config.url(address)
    }

    /// What stands before the hosts in a URL: `user:password@`, or less.
    pub(crate) fn authority(&self) -> String {
        self.config.authority()
    }

    /// User and password of whoever may do everything, unless everybody may.
    pub(crate) fn admin(&self) -> Option<(&str, &str)> {
        self.config.access.admin()
    }

    /// Where [`url`](Self::url) points to.
    #[must_use]
    pub fn address(&self) -> Address {
        self.config.address()
    }

    /// The Unix socket, which every server has beside its port.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.config.socket
    }

    /// The certificate authority that signed a TLS server's certificate, as a PEM file.
    #[must_use]
    pub fn ca_certificate(&self) -> Option<PathBuf> {
        let path = self.directory.path().join(certificates::CA_CERTIFICATE);
        path.exists().then_some(path)
    }

    /// A certificate of a client that a TLS server trusts, and its key, as PEM files. It asks for them with
    /// `setting("tls-auth-clients", "yes")`.
    #[must_use]
    pub fn client_certificate(&self) -> Option<(PathBuf, PathBuf)> {
        let [certificate, key] =
            [certificates::CLIENT_CERTIFICATE, certificates::CLIENT_KEY].map(|file| self.directory.path().join(file));
        certificate.exists().then_some((certificate, key))
    }

    /// Major and minor version of the binary.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        binary::version()
    }

    /// Runs one command on a connection of its own, as a user who may do everything.
    ///
    /// # Panics
    ///
    /// The server refuses it, or does not answer within 20 s: with the end of its log.
    #[track_caller]
    pub fn command(&self, arguments: &[&str]) -> Reply {
        match self.try_command(arguments) {
            Ok(Reply::Error(message)) => panic!("{arguments:?} was refused: {message}"),
            Ok(reply) => reply,
            Err(error) => panic!("{arguments:?} failed: {error}\n{}", self.log_tail()),
        }
    }

    /// As [`command`](Self::command), for arguments of any bytes; a refusal is [`Reply::Error`].
    ///
    /// # Errors
    ///
    /// The server is away, or does not answer within 20 s.
    pub fn try_command(&self, arguments: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.client()?.call(arguments)
    }

    /// A connection for several commands, as a user who may do everything.
    ///
    /// # Errors
    ///
    /// The server is away, or does not answer within 20 s.
    pub fn client(&self) -> io::Result<Client> {
        self.config.client(DEADLINE)
    }

    /// All keys there are, sorted.
    #[track_caller]
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let replies = self.command(&["KEYS", "*"]).array();
        let mut keys: Vec<_> =
            replies.into_iter().map(|key| String::from_utf8_lossy(&key.bytes()).into_owned()).collect();
        keys.sort();
        keys
    }

    /// The keys that contain `text`, sorted: those of one test on a shared server.
    #[track_caller]
    #[must_use]
    pub fn keys_with(&self, text: &str) -> Vec<String> {
        let mut keys = self.keys();
        keys.retain(|key| key.contains(text));
        keys
    }

    /// How many milliseconds the key has to live: -1 for ever, -2 if there is no such key.
    #[track_caller]
    #[must_use]
    pub fn pttl(&self, key: &str) -> i64 {
        self.command(&["PTTL", key]).integer()
    }

    /// Forgets all cached scripts, so that the next `EVALSHA` is refused with `NOSCRIPT`.
    #[track_caller]
    pub fn flush_scripts(&self) {
        self.command(&["SCRIPT", "FLUSH"]);
    }

    /// One section of `INFO`, such as `commandstats`.
    #[track_caller]
    #[must_use]
    pub fn info(&self, section: &str) -> BTreeMap<String, String> {
        let text = self.command(&["INFO", section]).text();
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// Stops the process as it is (`SIGSTOP`): connections stay open, the system accepts new ones, nothing answers.
    ///
    /// # Panics
    ///
    /// The server has been killed.
    pub fn pause(&mut self) {
        self.process().pause();
    }

    /// Lets a paused process go on: it answers all that came in meanwhile.
    ///
    /// # Panics
    ///
    /// The server has been killed.
    pub fn resume(&mut self) {
        self.process().resume();
    }

    /// Sets the server's wall clock ahead of the real one, by so many microseconds; behind it where they are negative.
    /// Returns when the server's `TIME` shows it: not every server reads the system's clock each time.
    ///
    /// # Panics
    ///
    /// The server was started without [`RedisServerBuilder::shifted_clock`], or does not show it within 20 s.
    pub fn set_clock(&mut self, micros: i64) {
        let clock = self.config.clock.as_ref();
        clock.expect("a server with a clock to set: `RedisServer::builder().shifted_clock()`").set(micros);
        let until = Instant::now() + DEADLINE;
        while (self.ahead_by() - micros).abs() > 500_000 {
            assert!(Instant::now() < until, "the server's clock does not follow\n{}", self.log_tail());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops the server's wall clock: no key expires any more. Returns when the server's `TIME` stands still.
    ///
    /// # Panics
    ///
    /// As [`set_clock`](Self::set_clock).
    pub fn stop_clock(&mut self) {
        let clock = self.config.clock.as_ref();
        let clock = clock.expect("a server with a clock to stop: `RedisServer::builder().shifted_clock()`");
        let now = real_micros();
        clock.stop(now);
        let until = Instant::now() + DEADLINE;
        while self.micros() != now {
            assert!(Instant::now() < until, "the server's clock does not stop\n{}", self.log_tail());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// How many microseconds the server's clock is ahead of the real one.
    fn ahead_by(&self) -> i64 {
        self.micros() - real_micros()
    }

    /// The server's time in microseconds since 1970.
    fn micros(&self) -> i64 {
        let time = self.command(&["TIME"]).array().into_iter().map(Reply::text);
        let time: Vec<i64> = time.map(|number| number.parse().expect("seconds and microseconds")).collect();
        time[0] * 1_000_000 + time[1]
    }

    /// Ends the process at once (`SIGKILL`), and with it all connections and data.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Ends the process if need be and starts it anew, with the same URL and no data, and with its settings of the
    /// beginning, or of the last `CONFIG REWRITE`.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn restart(&mut self) {
        self.kill();
        match Process::start(&self.config, self.directory.path(), DEADLINE) {
            Ok(process) => self.process = Some(process),
            Err(failure) => panic!("{failure}"),
        }
    }

    /// The end of the server's log, for a message.
    #[must_use]
    pub fn log_tail(&self) -> String {
        process::log_tail(self.directory.path())
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("this server has been killed: `restart` it first")
    }
}

/// A name that no other call in any test process gets: for keys and prefixes on a shared server.
#[must_use]
pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{count}", std::process::id())
}

/// The real time in microseconds since 1970.
fn real_micros() -> i64 {
    let real = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros();
    i64::try_from(real).expect("before the year 294000")
}
