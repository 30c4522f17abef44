//! The run time of `rate-limited`: limits, keys, decisions, the two stores and the failure policies.
//!
//! Depend on the `rate-limited` crate, which re-exports all of this beside the attribute. The project's ARCHITECTURE.md
//! describes how the parts fit together.

mod contain;
mod error;
mod named_value;
mod limit;
mod key;
mod source;
mod on_error;
mod health;

mod sync;
mod block_on;
mod join_all;
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

/// The `tracing` target of all log events: the name of the crate that users depend on.
const TARGET: &str = "rate_limited";

pub use builder::{Builder, OnErrorSetting};
#[cfg(feature = "test-util")]
pub use clock::ManualClock;
pub use convert::{FromDenied, FromFailure};
pub use current::InstallError;
pub use decision::{Allowed, Decision, Denied};
pub use error::{Error, ErrorKind};
pub use health::{Health, HealthState};
pub use key::Key;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use limit::lease_any_limit;
pub use limit::{Algorithm, Layout, Limit};
#[cfg(all(feature = "rules", feature = "redis"))]
pub use limiter::{Change, Published, SharedRules};
pub use limiter::{Limiter, Named};
pub use on_error::OnError;
pub use overflow::Overflow;
/// The version of the `redis` crate that [`Builder::client`] takes its client from.
#[cfg(feature = "redis")]
pub use redis;
pub use rule::{KeyMatch, Mode, Origin, Rule, RuleInForce, RuleSet};
pub use site::{Site, sites};
pub use source::Source;
#[cfg(feature = "redis")]
pub use store::redis::Credentials;
#[cfg(feature = "tls")]
pub use store::redis::Tls;
