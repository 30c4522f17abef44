//! The run time of `rate-limited`: limits, keys, decisions, the two stores and the failure policies.
//!
//! Depend on the `rate-limited` crate, which re-exports all of this beside the attribute. The project's ARCHITECTURE.md
//! describes how the parts fit together.

// Each build without these features leaves out the users of some functions. The build with all of them shows dead code.
#![cfg_attr(
    not(all(feature = "metrics", feature = "redis", feature = "rules")),
    expect(dead_code, reason = "functions for other features")
)]

mod error;
mod limit;
mod key;
mod health;

mod sync;
mod run;
mod clock;
mod algorithm;

mod request;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(not(feature = "metrics"))]
mod metrics;
mod overflow;
mod store;
mod local;
mod decision;
pub mod http;
mod convert;
mod observer;
mod failure_policy;
mod guard;
mod site;
mod rule;
#[cfg(feature = "serde")]
mod serde;
mod limiter;
mod builder;
mod current;

#[doc(hidden)]
pub mod private;
#[doc(hidden)]
pub mod service;

/// The `tracing` target of all log events: the name of the crate that users depend on.
const TARGET: &str = "rate_limited";

pub use builder::{Builder, OnErrorSetting};
#[cfg(feature = "test-util")]
pub use clock::ManualClock;
pub use convert::{FromDenied, FromFailure};
pub use current::InstallError;
pub use decision::{Allowed, Decision, Denied};
/// The version of the `redis` crate that [`Builder::client`] takes its client from.
pub use error::Source;
pub use error::{Error, ErrorKind, OnError};
pub use health::{Health, HealthState};
pub use key::Key;
pub use limit::{Algorithm, Layout, Limit};
#[cfg(all(feature = "rules", feature = "redis"))]
pub use limiter::{Change, Published, SharedRules};
pub use limiter::{Limiter, Named};
pub use overflow::Overflow;
#[cfg(feature = "redis")]
pub use redis;
pub use rule::{KeyMatch, Mode, Origin, Rule, RuleInForce, RuleSet};
pub use site::{Site, sites};
#[cfg(feature = "redis")]
pub use store::redis::Credentials;
#[cfg(feature = "tls")]
pub use store::redis::Tls;
