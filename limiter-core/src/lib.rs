//! The run time of `rate-limited`: limits, keys, decisions, the two stores and the failure policies.
//!
//! Depend on the `rate-limited` crate, which re-exports all of this beside the attribute. The project's ARCHITECTURE.md
//! describes how the parts fit together.

// Each build without these features leaves out the users of some functions. The build with all of them shows dead code.
#![cfg_attr(
    not(all(feature = "metrics", feature = "redis", feature = "rules")),
    expect(dead_code, reason = "functions for other features")
)]

// The modules in reading order. tests/tidy/imports.rs has the order in which they may use each other.

// Values that the public API has.
mod error; // errors, failure policies, and the source of a decision
mod calendar; // calendar periods: their zones, anchors and edges
mod limit; // limits, their algorithms and layouts, and their text
mod key; // the encoding of keys, in which no value can forge another key
mod health; // the state of a store, and its observers

// The ground: threads, processes, futures and time.
mod sync; // locks and atomics, loom's in its models; values of one process, which a child of `fork` does not share
mod run; // blocking on a future, joining several, and containing panics
mod background; // threads for futures without a caller that waits
mod clock; // the only reader of the time that decides about limits
mod block; // blocks of keys after a denial: the value, its arithmetic, and the blocked keys of this process
mod until_done; // futures that end although their caller is dropped
mod algorithm; // the arithmetic of one counter: pure, in whole numbers
mod instances; // how many limiters share a limit while the store is away: a set number, or those that live

// What decides about permits.
mod request; // requests to a store and its replies, and the permits of requests on one counter
mod concurrency; // limits of calls that run at once: slots, and the calls that hold or await them
#[cfg(feature = "metrics")]
pub mod metrics; // the series of metrics
#[cfg(not(feature = "metrics"))]
mod metrics;
mod overflow; // counts and reports of keys that share counters, for a full memory store
mod store; // the stores: in memory, on Redis, and a slow one for tests
mod local; // the state beside a shared store: standby limiter, denial cache, leases
mod receipt; // receipts that travel: the text of a right to settle a call once
mod usage; // the use of a limit after a charge
mod decision; // decisions, made from replies, and the receipts that a refund needs
pub mod http; // the answers of web services, as strings
mod collected; // the quotas of a task's decisions, for the fields of its answer
mod activity; // totals of decisions for each rule, and the keys that are denied or allowed most often
mod convert; // denials and failures as return values, responses of axum and statuses of tonic
mod observer; // reports of decisions and failures: callbacks, series, log
mod failure_policy; // the decision about a failed call
mod guard; // a shared store, with the policy for its failures

// What a program sets.
mod site; // the list of annotated functions
mod rule; // rules: settings by name, their levels, overrides and texts, and the plan of a call
#[cfg(feature = "serde")]
mod serde; // serialised forms of limits and rules
mod limiter; // the limiter: methods, decisions by plan, and waiting calls
mod builder; // the options of a limiter
mod current; // the default limiter, and those of scopes
mod permit; // the permit of an annotated call

// What generated code and limiter-tower use.
#[doc(hidden)]
pub mod private; // what the attribute expands to
#[doc(hidden)]
pub mod service; // the rules of tower layers

/// The `tracing` target of all log events: the name of the crate that users depend on.
const TARGET: &str = "rate_limited";

pub use activity::{Activity, ActivityCounts};
#[cfg(feature = "redis")]
pub use activity::{ActivityLog, DenialBurst, KeyActivity, LimiterActivity, RuleActivity};
pub use block::Block;
pub use builder::{Builder, OnErrorSetting};
#[cfg(feature = "calendar")]
pub use calendar::Anchor;
#[cfg(feature = "test-util")]
pub use clock::ManualClock;
pub use concurrency::LostSlots;
pub use convert::{FromDenied, FromFailure};
pub use current::InstallError;
pub use decision::{Allowed, Decision, Denied, LimitState};
pub use error::Source;
pub use error::{Error, ErrorKind, OnError};
pub use health::{Health, HealthState};
pub use key::Key;
pub use limit::{Algorithm, Layout, Limit};
#[cfg(all(feature = "rules", feature = "redis"))]
pub use limiter::{Change, Published, SharedRules};
pub use limiter::{Entered, Entry, Limiter, Named};
#[cfg(feature = "calendar")]
pub use limiter_syntax::Period;
pub use overflow::Overflow;
pub use permit::Permit;
pub use receipt::Receipt;
/// The version of the `redis` crate that [`Builder::client`] takes its client from.
#[cfg(feature = "redis")]
pub use redis;
pub use rule::{KeyMatch, Mode, Origin, Rule, RuleInForce, RuleSet};
pub use site::{Site, sites};
#[cfg(feature = "tls")]
pub use store::redis::Tls;
#[cfg(feature = "redis")]
pub use store::redis::{Credentials, Instance};
pub use usage::{LimitUsage, Usage};
