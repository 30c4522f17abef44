//! Limiters that live, as the commands of operators see them: heartbeats and activity that a test writes.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::server::RedisServer;

/// Limiters with one inventory of rules under a prefix, `rl` by default. They are nothing but the keys that they have written.
#[derive(Clone, Debug)]
pub struct LiveLimiters<'s> {
    server: &'s RedisServer,
    prefix: String,
    digest: String,
}

/// The time for which heartbeats last.
const LIFE_MILLIS: u128 = 3_600_000;

impl<'s> LiveLimiters<'s> {
    /// Creates limiters on a server. They have written nothing yet.
    #[must_use]
    pub fn on(server: &'s RedisServer) -> Self {
        Self { server, prefix: "rl".to_owned(), digest: "0123456789abcdef".repeat(2) }
    }

    /// Sets the prefix.
    #[must_use]
    pub fn prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }

    /// Sets the digest of the inventory, by which limiters with other rules are apart: 32 hex digits.
    #[must_use]
    pub fn digest(self, digest: &str) -> Self {
        Self { digest: digest.to_owned(), ..self }
    }

    /// Writes the inventory and a heartbeat of each limiter, in place of those before. Each follows a version of the shared
    /// rules, or `-`. The first one is process 10 of the host `web-0`, and has an id of zeros.
    ///
    /// # Panics
    ///
    /// The server refuses a command.
    pub fn beat(&self, inventory: &str, versions: &[&str]) {
        let member = |(number, version): (usize, &&str)| {
            format!("{number:016x} web-{number} {} 0.1.0 951782399000 {version} up", 10 + number)
        };
        self.beat_as(inventory, &versions.iter().enumerate().map(member).collect::<Vec<_>>());
    }

    /// Writes the inventory and these heartbeats, in place of those before. Each is the text of a member: id, host, process,
    /// version of `rate-limited`, start in milliseconds, version of the shared rules, state of the store.
    ///
    /// # Panics
    ///
    /// The server refuses a command.
    pub fn beat_as(&self, inventory: &str, members: &[impl AsRef<str>]) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
        let (end, all) = ((now + LIFE_MILLIS).to_string(), self.name(&format!("members:{}", self.digest)));
        self.server.command(&["DEL", &all]);
        for member in members {
            self.server.command(&["ZADD", &all, &end, member.as_ref()]);
        }
        let count = format!("{} {end}", members.len());
        self.server.command(&["HSET", &self.name("counts"), &self.digest, &count]);
        self.server.command(&["SET", &self.name(&format!("inventory:{}", self.digest)), inventory]);
    }

    /// Adds an entry of activity: its first line has the id, the host and the process of a limiter, and the program's name.
    pub fn add_activity(&self, entry: &str) {
        self.server.command(&["XADD", &self.name("activity"), "*", "e", entry]);
    }

    /// Returns the name of a key.
    #[must_use]
    pub fn name(&self, part: &str) -> String {
        format!("{0}-live:{{{0}}}:{part}", self.prefix)
    }
}
