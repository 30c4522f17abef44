//! The trait of a contestant, and its entry in the lists.

use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::running::{Running, Shared};

/// A limiter that is set up for one limit and a number of keys, and decides.
pub trait Contestant: Send + Sync + 'static {
    /// Decides one call on the key with this number.
    fn decide(&self, key: usize) -> impl Future<Output = Result<Verdict, Failure>> + Send;
}

/// The decision of a contestant on one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The call may run.
    Allowed,
    /// The call may not run.
    Denied,
}

impl Verdict {
    /// Converts a peer's own result.
    #[must_use]
    pub fn from_allowed(allowed: bool) -> Self {
        if allowed { Self::Allowed } else { Self::Denied }
    }
}

/// A description of an error, in one line for the table.
pub type Failure = String;

/// Returns the first line of an error as a failure.
pub fn failed(error: impl std::fmt::Display) -> Failure {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// A limit of `max` calls in any window, or the nearest limit that a peer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rate {
    /// The most calls of a window.
    pub max: u32,
    /// The window in whole seconds: one peer supports no fractions.
    pub seconds: u64,
}

impl Rate {
    /// Returns the window as a duration.
    #[must_use]
    pub fn window(self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// The arguments with which a contestant is started.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The URL of Redis, for contestants that use it.
    pub url: String,
    /// The start of each key's name: letters, digits and `-`, which every contestant accepts unchanged.
    pub prefix: String,
    /// The number of keys.
    pub keys: usize,
    /// The limit of each of them.
    pub rate: Rate,
}

impl Setup {
    /// Creates a setup whose keys are named like users.
    #[must_use]
    pub fn users(url: String, keys: usize, rate: Rate) -> Self {
        Self { url, prefix: "user".to_owned(), keys, rate }
    }

    /// Returns the names of all keys.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        (0..self.keys).map(|key| format!("{}-{key}", self.prefix)).collect()
    }
}

/// The role of a contestant in the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `rate-limited`.
    Ours,
    /// A published crate.
    Peer,
    /// A published design, through the Redis client that `rate-limited` uses.
    Design,
    /// No limiter, but the least possible call.
    Floor,
}

/// The place where a contestant keeps its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// This process.
    InProcess,
    /// Redis.
    Redis,
}

/// The commands that a contestant sends. Redis counts those inside scripts and transactions under the same names.
#[derive(Debug, Clone, Copy)]
pub struct Commands {
    /// Commands on the wire.
    pub sent: &'static [&'static str],
    /// Commands among them whose times add up to that of a decision.
    pub timed: &'static [&'static str],
}

impl Commands {
    /// The commands of a contestant without a server.
    pub const NONE: Self = Self { sent: &[], timed: &[] };
    /// The commands of a contestant whose decision is a script call.
    pub const SCRIPT: Self = Self { sent: &["evalsha", "eval"], timed: &["evalsha", "eval"] };
}

/// One contestant's line of the lists.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The name in the tables.
    pub name: &'static str,
    /// The role in the comparison.
    pub kind: Kind,
    /// The place of its counters.
    pub place: Place,
    /// The commands that it sends.
    pub commands: Commands,
    /// Starts an instance.
    pub start: fn(Setup) -> Starting,
}

/// A future of a started contestant.
pub type Starting = Pin<Box<dyn Future<Output = Result<Box<dyn Running>, Failure>> + Send>>;

/// Erases the type of a contestant.
pub(crate) fn starting<C: Contestant>(made: impl Future<Output = Result<C, Failure>> + Send + 'static) -> Starting {
    Box::pin(async move { Ok(Box::new(Shared::new(made.await?)) as Box<dyn Running>) })
}
