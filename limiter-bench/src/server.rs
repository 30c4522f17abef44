//! The comparison's own Redis, and the server's own figures.

use std::any::Any;
use std::time::{Duration, Instant};
use std::{panic, thread};

use limiter_testkit::{Client, RedisServer, Reply};

use crate::contestant::{Commands, Failure, failed};

/// The time for which the server has to be idle.
const IDLE_TIME: Duration = Duration::from_millis(15);
/// The most time to wait until the server is idle.
const MAX_IDLE_WAIT: Duration = Duration::from_secs(5);

/// A server on a port of its own. It ends when this value is dropped.
#[derive(Debug)]
pub struct Server {
    redis: RedisServer,
}

/// The commands of one contestant since the counts were reset.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// The number of commands on the wire.
    pub sent: u64,
    /// The server's time for them, in microseconds.
    pub micros: u64,
}

/// The calls of one command, by clients and by scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    /// The name in lower case, with the subcommand as in `config|resetstat`.
    pub name: String,
    /// The number of calls.
    pub calls: u64,
    /// The server's time for all of them, in microseconds.
    pub micros: u64,
}

impl Server {
    /// Starts a server that listens on TCP, as in production.
    ///
    /// # Errors
    ///
    /// The server does not start or does not reply. The failure is one line.
    pub fn start() -> Result<Self, Failure> {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(|_| {})); // the failure below has its message
        let started = panic::catch_unwind(|| RedisServer::builder().tcp().start());
        panic::set_hook(hook);
        started.map(|redis| Self { redis }).map_err(|payload| failed(panic_message(&*payload)))
    }

    /// Returns the URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        self.redis.url()
    }

    /// Returns the version, such as `7.0`.
    #[must_use]
    pub fn version(&self) -> String {
        let (major, minor) = self.redis.version();
        format!("{major}.{minor}")
    }

    /// Returns the name and the version, such as `Redis 7.0`.
    ///
    /// # Errors
    ///
    /// The server is unavailable.
    pub fn name(&self) -> Result<String, Failure> {
        let info = self.call(&["INFO", "server"])?;
        let valkey = info.lines().find_map(|line| line.strip_prefix("valkey_version:"));
        Ok(valkey.map_or_else(|| format!("Redis {}", self.version()), |version| format!("Valkey {}", version.trim())))
    }

    /// Waits until the server is idle, removes all keys, and resets the counts of commands.
    ///
    /// # Errors
    ///
    /// The server is unavailable.
    pub fn clear(&self) -> Result<(), Failure> {
        self.wait_until_idle()?;
        self.call(&["FLUSHALL", "SYNC"])?;
        self.reset_counts()
    }

    /// Resets the counts of commands to 0, and keeps the keys.
    ///
    /// # Errors
    ///
    /// The server is unavailable.
    pub fn reset_counts(&self) -> Result<(), Failure> {
        self.call(&["CONFIG", "RESETSTAT"]).map(drop)
    }

    /// Removes all scripts.
    ///
    /// # Errors
    ///
    /// The server is unavailable.
    pub fn remove_scripts(&self) -> Result<(), Failure> {
        self.call(&["SCRIPT", "FLUSH", "SYNC"]).map(drop)
    }

    /// Allows clients to publish, or forbids it.
    ///
    /// # Errors
    ///
    /// The server is unavailable.
    #[cfg(feature = "slots")]
    pub fn allow_publish(&self, allow: bool) -> Result<(), Failure> {
        self.call(&["ACL", "SETUSER", "default", if allow { "+publish" } else { "-publish" }]).map(drop)
    }

    /// Waits until no client sends commands. One contestant updates Redis after its decisions, also when it is dropped,
    /// and that work must not count for the next contestant.
    fn wait_until_idle(&self) -> Result<(), Failure> {
        let until = Instant::now() + MAX_IDLE_WAIT;
        let mut before = self.commands()?;
        while Instant::now() < until {
            thread::sleep(IDLE_TIME);
            let now = self.commands()?;
            if now <= before + 1 {
                break; // the 1 is this command
            }
            before = now;
        }
        Ok(())
    }

    /// Returns the number of commands since the server started, including those of scripts.
    fn commands(&self) -> Result<u64, Failure> {
        self.figure("stats", "total_commands_processed:")
    }

    /// Returns the commands of one contestant since the last reset.
    ///
    /// # Errors
    ///
    /// The server is unavailable.
    pub fn work(&self, commands: &Commands) -> Result<Work, Failure> {
        let mut work = Work::default();
        for Used { name, calls, micros } in self.used_commands()? {
            if commands.sent.contains(&name.as_str()) {
                work.sent += calls;
            }
            if commands.timed.contains(&name.as_str()) {
                work.micros += micros;
            }
        }
        Ok(work)
    }

    /// Returns all commands since the last reset, including those of scripts.
    ///
    /// # Errors
    ///
    /// The server is unavailable.
    pub fn used_commands(&self) -> Result<Vec<Used>, Failure> {
        Ok(self.call(&["INFO", "commandstats"])?.lines().filter_map(parse_command_line).collect())
    }

    /// Returns the memory in use, in bytes.
    ///
    /// # Errors
    ///
    /// The server is unavailable.
    pub fn used_memory(&self) -> Result<u64, Failure> {
        self.figure("memory", "used_memory:")
    }

    fn figure(&self, section: &str, name: &str) -> Result<u64, Failure> {
        let text = self.call(&["INFO", section])?;
        let figure = text.lines().find_map(|line| line.strip_prefix(name));
        figure.ok_or_else(|| format!("INFO without {name}"))?.trim().parse().map_err(failed)
    }

    /// Returns the sum of `MEMORY USAGE` over all keys.
    ///
    /// # Errors
    ///
    /// The server is unavailable.
    pub fn size_of_keys(&self) -> Result<u64, Failure> {
        let keys = self.client()?.call(&["KEYS", "*"]).map_err(failed)?.array();
        self.size_of(&keys.into_iter().map(Reply::bytes).collect::<Vec<_>>())
    }

    /// Returns the sum of `MEMORY USAGE` over these keys. A missing key counts as 0.
    ///
    /// # Errors
    ///
    /// The server is unavailable.
    pub fn size_of<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<u64, Failure> {
        let mut client = self.client()?;
        let mut sum = 0;
        for key in keys {
            let command: [&[u8]; 5] = [b"MEMORY", b"USAGE", key.as_ref(), b"SAMPLES", b"0"];
            let size = client.call(&command).map_err(failed)?;
            if size != Reply::Nil {
                sum += u64::try_from(size.integer()).map_err(failed)?;
            }
        }
        Ok(sum)
    }

    fn call(&self, command: &[&str]) -> Result<String, Failure> {
        Ok(self.client()?.call(command).map_err(failed)?.text())
    }

    fn client(&self) -> Result<Client, Failure> {
        self.redis.client().map_err(|error| format!("Redis is unavailable: {error}"))
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let message = payload.downcast_ref::<String>().map(String::as_str);
    message.or(payload.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

/// Parses a line such as `cmdstat_get:calls=3,usec=5,…`.
fn parse_command_line(line: &str) -> Option<Used> {
    let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let field = |name: &str| {
        let field = fields.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        field?.parse().ok()
    };
    Some(Used { name: name.to_owned(), calls: field("calls")?, micros: field("usec")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_line_of_commandstats() {
        let line = "cmdstat_evalsha:calls=12,usec=345,usec_per_call=28.75,rejected_calls=0,failed_calls=0";
        assert_eq!(parse_command_line(line), Some(Used { name: "evalsha".to_owned(), calls: 12, micros: 345 }));
        assert_eq!(parse_command_line("# Commandstats"), None);
    }

    #[test]
    fn commands_inside_scripts_are_not_counted_as_sent() {
        let server = Server::start().expect("a server");
        server.clear().expect("cleared");
        let mut client = server.client().expect("a connection");
        client.call(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "key"]).expect("a reply");
        assert_eq!(server.work(&Commands::SCRIPT).expect("work").sent, 1);
        assert_eq!(server.work(&Commands::NONE).expect("work").sent, 0);
    }

    #[test]
    fn clear_waits_until_no_client_sends() {
        let server = Server::start().expect("a server");
        let mut late_client = server.client().expect("a connection");
        let sending = thread::spawn(move || {
            let until = Instant::now() + 10 * IDLE_TIME;
            while Instant::now() < until {
                late_client.call(&["SET", "late", "1"]).expect("a reply");
            }
        });
        while server.commands().expect("a count") < 100 {}
        server.clear().expect("cleared");
        assert!(sending.is_finished());
        assert_eq!(server.size_of_keys().expect("a size"), 0);
        sending.join().expect("it ends");
    }
}
