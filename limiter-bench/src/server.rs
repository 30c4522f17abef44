//! The comparison's own Redis, and what it says of itself.

use std::time::{Duration, Instant};
use std::{panic, thread};

use limiter_testkit::{Client, RedisServer, Reply};

use crate::contestant::{Commands, Failure, failed};

/// For how long the server has to be idle, and how long that is waited for.
const PAUSE: Duration = Duration::from_millis(15);
const PATIENCE: Duration = Duration::from_secs(5);

/// A server on a port of its own, which ends with this value.
#[derive(Debug)]
pub struct Server {
    redis: RedisServer,
}

/// What it has done since it started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// Commands on the wire.
    pub sent: u64,
    /// Time for them, in microseconds.
    pub micros: u64,
}

/// One command, called by a client or by a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    /// In lower case, with its subcommand as in `config|resetstat`.
    pub name: String,
    /// How often.
    pub calls: u64,
    /// Time for all of them, in microseconds.
    pub micros: u64,
}

impl Server {
    /// Over TCP, as servers are used.
    ///
    /// # Errors
    ///
    /// There is no server, or it does not answer: in one line.
    pub fn start() -> Result<Self, Failure> {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(|_| {})); // what it says is said below, once
        let started = panic::catch_unwind(|| RedisServer::builder().tcp().start());
        panic::set_hook(hook);
        started.map(|redis| Self { redis }).map_err(|payload| {
            let message = payload.downcast_ref::<String>().map(String::as_str);
            failed(message.or(payload.downcast_ref::<&str>().copied()).unwrap_or("no reason given"))
        })
    }

    /// For clients.
    #[must_use]
    pub fn url(&self) -> String {
        self.redis.url()
    }

    /// Such as `7.0`.
    #[must_use]
    pub fn version(&self) -> String {
        let (major, minor) = self.redis.version();
        format!("{major}.{minor}")
    }

    /// Forgets all keys, and counts commands from 0, once nobody sends any more.
    ///
    /// # Errors
    ///
    /// The server is away.
    pub fn clear(&self) -> Result<(), Failure> {
        self.settle()?;
        self.ask(&["FLUSHALL", "SYNC"])?;
        self.reset_counts()
    }

    /// Counts commands from 0, and keeps the keys.
    ///
    /// # Errors
    ///
    /// The server is away.
    pub fn reset_counts(&self) -> Result<(), Failure> {
        self.ask(&["CONFIG", "RESETSTAT"]).map(drop)
    }

    /// Forgets all scripts.
    ///
    /// # Errors
    ///
    /// The server is away.
    pub fn remove_scripts(&self) -> Result<(), Failure> {
        self.ask(&["SCRIPT", "FLUSH", "SYNC"]).map(drop)
    }

    /// Waits for those who still send after they were dropped: one contestant tells Redis later what it decided. That
    /// must not be the next one's burden.
    fn settle(&self) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        let mut before = self.commands()?;
        while Instant::now() < until {
            thread::sleep(PAUSE);
            let now = self.commands()?;
            if now <= before + 1 {
                break; // the 1 is this question
            }
            before = now;
        }
        Ok(())
    }

    /// All commands since the server started, those inside scripts too.
    fn commands(&self) -> Result<u64, Failure> {
        self.figure("stats", "total_commands_processed:")
    }

    /// The commands of one contestant, so far.
    ///
    /// # Errors
    ///
    /// The server is away.
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

    /// All commands since it was last told to count anew, those that scripts called too.
    ///
    /// # Errors
    ///
    /// The server is away.
    pub fn used_commands(&self) -> Result<Vec<Used>, Failure> {
        Ok(self.ask(&["INFO", "commandstats"])?.lines().filter_map(command_line).collect())
    }

    /// Bytes in use.
    ///
    /// # Errors
    ///
    /// The server is away.
    pub fn used_memory(&self) -> Result<u64, Failure> {
        self.figure("memory", "used_memory:")
    }

    fn figure(&self, section: &str, name: &str) -> Result<u64, Failure> {
        let text = self.ask(&["INFO", section])?;
        let figure = text.lines().find_map(|line| line.strip_prefix(name));
        figure.ok_or_else(|| format!("INFO without {name}"))?.trim().parse().map_err(failed)
    }

    /// What `MEMORY USAGE` says of all keys together.
    ///
    /// # Errors
    ///
    /// The server is away.
    pub fn size_of_keys(&self) -> Result<u64, Failure> {
        let keys = self.client()?.call(&["KEYS", "*"]).map_err(failed)?.array();
        self.size_of(&keys.into_iter().map(Reply::bytes).collect::<Vec<_>>())
    }

    /// What `MEMORY USAGE` says of these keys together. What is not there takes nothing.
    ///
    /// # Errors
    ///
    /// The server is away.
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

    fn ask(&self, command: &[&str]) -> Result<String, Failure> {
        Ok(self.client()?.call(command).map_err(failed)?.text())
    }

    fn client(&self) -> Result<Client, Failure> {
        self.redis.client().map_err(|error| format!("Redis is away: {error}"))
    }
}

/// `cmdstat_get:calls=3,usec=5,…`
fn command_line(line: &str) -> Option<Used> {
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
        assert_eq!(command_line(line), Some(Used { name: "evalsha".to_owned(), calls: 12, micros: 345 }));
        assert_eq!(command_line("# Commandstats"), None);
    }

    #[test]
    fn tells_commands_on_the_wire_from_those_in_scripts() {
        let server = Server::start().expect("a server");
        server.clear().expect("cleared");
        let mut client = server.client().expect("a connection");
        client.call(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "key"]).expect("an answer");
        assert_eq!(server.work(&Commands::SCRIPT).expect("work").sent, 1);
        assert_eq!(server.work(&Commands::NONE).expect("work").sent, 0);
    }

    #[test]
    fn is_cleared_only_once_nobody_sends_any_more() {
        let server = Server::start().expect("a server");
        let mut straggler = server.client().expect("a connection");
        let sending = thread::spawn(move || {
            let until = Instant::now() + 10 * PAUSE;
            while Instant::now() < until {
                straggler.call(&["SET", "late", "1"]).expect("an answer");
            }
        });
        while server.commands().expect("a count") < 100 {}
        server.clear().expect("cleared");
        assert!(sending.is_finished());
        assert_eq!(server.size_of_keys().expect("a size"), 0);
        sending.join().expect("it ends");
    }
}
