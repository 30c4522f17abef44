//! The health of a limiter's store, for readiness checks and observers.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::run::run_contained;
use crate::{Error, ErrorKind, TARGET};

/// The health of a limiter's store, as [`Limiter::health`](crate::Limiter::health) returns it.
///
/// Of several servers it is the worst: see [`HealthState`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The state of the store.
    pub state: HealthState,
    /// The time since which the store has been in this state, by the system's clock.
    pub since: SystemTime,
    /// The URL of the server in this state, without user and password. While several servers are in it, it is one of
    /// them. While a cluster is `Up`, it is the cluster's URL. `None` for a limiter in memory, and for one whose URL
    /// cannot be used.
    pub server: Option<String>,
}

/// The state of a limiter's store.
///
/// Only `Up` means that the store decides. In every other state [`OnError`](crate::OnError) decides about the calls that
/// the store does not. From the best to the worst: `Up`, `Connecting`, `Loading`, `NotServing`, `Full`, `ReadOnly`,
/// `Refused`, `Down`.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HealthState {
    /// The server is connected and accepts writes. A limiter in memory is always up.
    Up,
    /// The first attempt to connect is running.
    Connecting,
    /// The server cannot be reached, or has stopped replying.
    Down,
    /// The server is loading its data, or busy with a script.
    Loading,
    /// The server is a replica, so it rejects writes.
    ReadOnly,
    /// The server is at its memory limit, so it rejects writes.
    Full,
    /// The server replies but does not serve the limiter.
    ///
    /// It cannot save its data, has too few replicas, or is of another kind than the URL states. Or the cluster is
    /// down, or has no node for some slots.
    NotServing,
    /// The server refuses the user, the password, a permission or the certificate, or its own certificate is not trusted.
    Refused,
}

impl Health {
    pub(crate) fn new(state: HealthState, since: SystemTime, server: Option<String>) -> Self {
        Self { state, since, server }
    }
}

impl HealthState {
    /// The state's name in lower case, for logs and metrics: `up`, `connecting`, `down`, `loading`, `read_only`, `full`,
    /// `not_serving` or `refused`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Connecting => "connecting",
            Self::Down => "down",
            Self::Loading => "loading",
            Self::ReadOnly => "read_only",
            Self::Full => "full",
            Self::NotServing => "not_serving",
            Self::Refused => "refused",
        }
    }

    /// The state of a server after this failure of a probe or of an attempt to connect.
    pub(crate) fn after(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Loading => Self::Loading,
            ErrorKind::ReadOnly => Self::ReadOnly,
            ErrorKind::OutOfMemory => Self::Full,
            ErrorKind::Refused => Self::Refused,
            ErrorKind::NotServing | ErrorKind::Config | ErrorKind::Protocol => Self::NotServing,
            ErrorKind::Timeout
            | ErrorKind::Unavailable
            | ErrorKind::Overloaded
            | ErrorKind::Forked
            | ErrorKind::InvalidLimit
            | ErrorKind::Settled
            | ErrorKind::Conflict => Self::Down,
        }
    }

    /// The position between the best state and the worst.
    pub(crate) fn severity(self) -> u8 {
        match self {
            Self::Up => 0,
            Self::Connecting => 1,
            Self::Loading => 2,
            Self::NotServing => 3,
            Self::Full => 4,
            Self::ReadOnly => 5,
            Self::Refused => 6,
            Self::Down => 7,
        }
    }
}

impl fmt::Display for HealthState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The observers of the store's state. Their panics are caught.
#[derive(Clone, Default)]
pub(crate) struct HealthObservers(Vec<HealthObserver>);

type HealthObserver = Arc<dyn Fn(&Health) + Send + Sync>;

impl HealthObservers {
    pub(crate) fn add(&mut self, observer: impl Fn(&Health) + Send + Sync + 'static) {
        self.0.push(Arc::new(observer));
    }

    /// Calls each observer, in the order of registration.
    pub(crate) fn call(&self, health: &Health) {
        for observer in &self.0 {
            if !run_contained(|| observer(health)) {
                tracing::error!(target: TARGET, "an observer of the rate limiter's state panicked");
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for HealthObservers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HealthObservers").field(&self.0.len()).finish()
    }
}
