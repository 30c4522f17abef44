//! One round of a scenario: its random numbers, its length and its counts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use limiter_testkit::Random;
use rate_limited::{Builder, Error, ErrorKind, Limiter};
use tokio::runtime::{self, Runtime};

use crate::transport::Transport;

/// The result of a round. `Err` describes a violation with all that is needed to reproduce it.
pub(super) type Outcome = Result<(), String>;

/// The state of one round, passed to its scenario.
#[derive(Debug)]
pub(super) struct Round {
    /// The source of all random parameters.
    pub(super) random: Random,
    /// True if the round should take about a second.
    pub(super) short: bool,
    /// True if the limiters have leases, and call limits that can be leased.
    pub(super) leases: bool,
    /// The transport of the limiters' connections.
    pub(super) transport: Transport,
    /// The counts of the round, by name.
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl Round {
    pub(super) fn count(&mut self, what: &'static str, times: u64) {
        *self.counts.entry(what).or_default() += times;
    }

    /// Returns one of the choices.
    pub(super) fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Returns a number below `bound`.
    pub(super) fn index(&mut self, bound: usize) -> usize {
        let below = self.random.below(u64::try_from(bound).expect("small"));
        usize::try_from(below).expect("small")
    }

    /// Returns a number from `low` to `high`, both included.
    pub(super) fn small(&mut self, low: u32, high: u32) -> u32 {
        u32::try_from(self.random.between(low.into(), high.into())).expect("small")
    }

    /// Returns a time from `low` to `high` milliseconds.
    pub(super) fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.random.between(low, high))
    }

    /// Returns true once in `times`, on average.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.random.below(times) == 0
    }
}

/// Creates a runtime with two threads for concurrent calls.
pub(super) fn runtime() -> Runtime {
    runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// The time in which a limiter must connect to a healthy store on the slowest machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Connects a limiter to a healthy store.
pub(super) fn connect(runtime: &Runtime, builder: impl Fn() -> Builder) -> Result<Limiter, String> {
    let limiter = once_connected(|| runtime.block_on(builder().connect()));
    limiter.map_err(|error| format!("connecting to a healthy store: {error}"))
}

/// Repeats an operation while there is no connection. An attempt to connect ends after a second, also on a machine that
/// stands still for so long.
pub(super) fn once_connected<T>(operation: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let give_up_at = Instant::now() + CONNECT_TIMEOUT;
    loop {
        match operation() {
            Err(error) if error.kind() == ErrorKind::Unavailable && Instant::now() < give_up_at => {}
            result => return result,
        }
    }
}
