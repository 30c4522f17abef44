//! What takes part: the trait of a contestant, and how it is entered in the lists.

use std::pin::Pin;
use std::time::Duration;

use serde::Serialize;

use crate::running::{Running, Shared};

/// A limiter that is set up for one limit and a number of keys, and decides.
pub trait Contestant: Send + Sync + 'static {
    /// Whether one call on the key with this number may run now.
    fn decide(&self, key: usize) -> impl Future<Output = Result<Verdict, Failure>> + Send;
}

/// What a contestant says of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may run.
    Allowed,
    /// It may not.
    Denied,
}

impl Verdict {
    /// From a peer's own answer.
    #[must_use]
    pub fn of(allowed: bool) -> Self {
        if allowed { Self::Allowed } else { Self::Denied }
    }
}

/// What went wrong, in one line for the table.
pub type Failure = String;

/// A failure from what reports one: its first line.
pub fn failed(error: impl std::fmt::Display) -> Failure {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// At most `max` calls in any `window`, or what comes nearest to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rate {
    /// Calls.
    pub max: u32,
    /// Whole seconds: one peer knows no others.
    pub seconds: u64,
}

impl Rate {
    /// The window.
    #[must_use]
    pub fn window(self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// What a contestant is started with.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Redis, for those that use it.
    pub url: String,
    /// What the names of its keys begin with: letters, digits and `-`, which every contestant takes as they are.
    pub prefix: String,
    /// How many keys there are.
    pub keys: usize,
    /// The limit of each of them.
    pub rate: Rate,
}

impl Setup {
    /// With keys like those of users.
    #[must_use]
    pub fn users(url: String, keys: usize, rate: Rate) -> Self {
        Self { url, prefix: "user".to_owned(), keys, rate }
    }

    /// The names of the keys.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        (0..self.keys).map(|key| format!("{}-{key}", self.prefix)).collect()
    }
}

/// What a contestant is to the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `rate-limited`.
    Ours,
    /// A published crate.
    Peer,
    /// A published design, through the Redis client that `rate-limited` uses.
    Design,
    /// No limiter: what the least possible call costs.
    Floor,
}

/// Where a contestant counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In this process.
    InProcess,
    /// In Redis.
    Redis,
}

/// The commands that a contestant sends. Redis counts those inside scripts and transactions under the same names.
#[derive(Debug, Clone, Copy)]
pub struct Commands {
    /// Each is a command on the wire.
    pub sent: &'static [&'static str],
    /// Those of them whose time includes all that was done.
    pub timed: &'static [&'static str],
}

impl Commands {
    /// For one that talks to no server.
    pub const NONE: Self = Self { sent: &[], timed: &[] };
    /// For one whose decision is a script call.
    pub const SCRIPT: Self = Self { sent: &["evalsha", "eval"], timed: &["evalsha", "eval"] };
}

/// One line of the lists.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// As in the tables.
    pub name: &'static str,
    /// What it is to the comparison.
    pub kind: Kind,
    /// Where it counts.
    pub place: Place,
    /// What it sends.
    pub commands: Commands,
    /// Makes one.
    pub start: fn(Setup) -> Starting,
}

/// A contestant on its way.
pub type Starting = Pin<Box<dyn Future<Output = Result<Box<dyn Running>, Failure>> + Send>>;

/// Hides which contestant it is.
pub(crate) fn starting<C: Contestant>(made: impl Future<Output = Result<C, Failure>> + Send + 'static) -> Starting {
    Box::pin(async move { Ok(Box::new(Shared::new(made.await?)) as Box<dyn Running>) })
}
