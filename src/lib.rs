//! Rate limits as an attribute: exact, and shared by every process that uses one Redis.
//!
//! ```
//! use rate_limited::rate_limited;
//!
//! #[rate_limited(key = "getId", window = "10s", max = 5, fallback = degrade_fn)]
//! async fn get_id(order: u64) -> String {
//!     format!("id-{order}")
//! }
//!
//! async fn degrade_fn(order: u64) -> String {
//!     format!("order {order}: try again later")
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! # rate_limited::Limiter::memory().scope(async {
//! for order in 0..5 {
//!     assert_eq!(get_id(order).await, format!("id-{order}"));
//! }
//! assert_eq!(get_id(5).await, "order 5: try again later");
//! # }).await;
//! # }
//! ```
//!
//! # Overview
//!
//! | to | see |
//! |---|---|
//! | limit a function | [`rate_limited`](macro@rate_limited) |
//! | limit something else | [`Limiter::check`], [`Limit`], [`Key`] |
//! | choose the store and its options | [`Limiter::connect`], [`Builder`] |
//! | read why a call was denied, and until when | [`Denied`] |
//! | choose what happens when the store fails | [`OnError`] |
//! | change limits while the program runs, or try them out | [`Limiter::set_rules`], [`RuleSet`], [`Mode`] |
//! | list all annotated functions | [`sites`] |
//! | limit the requests of a web service | `tower::RateLimitLayer` (feature `tower`) |
//! | answer a denied request | [`http`] |
//! | test code that is annotated | [`Limiter::scope`], `ManualClock`, `Limiter::failing` (feature `test-util`) |
//!
//! # When the store is unavailable
//!
//! No call waits longer than its deadline, 100 ms unless the [`Builder`] sets another one. A call without a reply gets
//! its policy. By default a standby limiter in this process decides, which mirrors the permits that this process was
//! granted. See [`OnError`].
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `redis` | yes | the store that processes share |
//! | `sites` | yes | [`sites`], the list of annotated functions, by code that runs before `main` |
//! | `tls` | yes | `rediss://`, by rustls |
//! | `calendar` | | limits of calendar periods in any time zone, such as `1000/month@Europe/Berlin`: `Limit::calendar` |
//! | `leases` | | a clock that goes on while the machine is suspended, for permits that a process takes ahead |
//! | `metrics` | | counters, gauges and histograms by the crate `metrics` 0.24: `metrics` |
//! | `rules` | | rules from a file that may change while the program runs: `Builder::rules_file`, and rules as TOML |
//! | `serde` | | [`Rule`], [`Limit`], [`Mode`], [`Algorithm`], [`Layout`] and [`OnError`] in the formats of serde; [`RuleInForce`] and [`Origin`] are written |
//! | `tower` | | `tower::RateLimitLayer`, a layer that limits the requests of a service |
//! | `axum` | | the layer for axum 0.8, and responses for [`Denied`] and [`Error`]; a new major version of axum is one of this crate |
//! | `tonic` | | statuses of tonic 0.14 for [`Denied`] and [`Error`], and gRPC answers of the layer; a new major version of tonic is one of this crate |
//! | `test-util` | | `ManualClock`, a clock that tests move, and limiters that fail or are slow |
//!
//! Without `redis` there is the embedded store alone, and a small dependency tree.
//!
//! # Compatibility
//!
//! Rust 1.88 or later; Redis 6.2 or later. Linux, macOS and Windows; `redis+unix://` on Unix.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub use limiter_core::{
    Activity, ActivityCounts, Algorithm, Allowed, Block, Builder, Decision, Denied, Entered, Entry, Error, ErrorKind,
    FromDenied, FromFailure, Health, HealthState, InstallError, Key, KeyMatch, Layout, Limit, LimitState, LimitUsage,
    Limiter, LostSlots, Mode, Named, OnError, OnErrorSetting, Origin, Overflow, Permit, Receipt, Rule, RuleInForce,
    RuleSet, Site, Source, Usage, http, sites,
};

#[cfg(feature = "calendar")]
pub use limiter_core::{Anchor, Period};

#[cfg(feature = "redis")]
pub use limiter_core::{
    ActivityLog, Credentials, DenialBurst, Instance, KeyActivity, LimiterActivity, RuleActivity, redis,
};

#[cfg(feature = "tls")]
pub use limiter_core::Tls;

#[cfg(all(feature = "rules", feature = "redis"))]
pub use limiter_core::{Change, Published, SharedRules};

#[cfg(feature = "tower")]
pub use limiter_tower as tower;
/// Routes of axum for operators, besides the layer of [`tower`].
#[cfg(feature = "axum")]
pub mod axum {
    pub use limiter_tower::{Ops, ops};
}

#[cfg(feature = "metrics")]
pub use limiter_core::metrics;

#[cfg(feature = "test-util")]
pub use limiter_core::ManualClock;

#[doc = include_str!("../docs/rate_limited.md")]
pub use limiter_macros::rate_limited;

#[doc(hidden)]
pub use limiter_core::private as __private;

#[cfg(all(doctest, feature = "test-util"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(all(doctest, feature = "rules"))]
#[doc = include_str!("../docs/rules.md")]
struct Rules;

#[cfg(doctest)]
#[doc = include_str!("../docs/budgets.md")]
struct Budgets;

#[cfg(all(doctest, feature = "calendar"))]
#[doc = include_str!("../docs/calendar.md")]
struct Calendar;

#[cfg(all(doctest, feature = "rules"))]
#[doc = include_str!("../docs/plans.md")]
struct Plans;

#[cfg(doctest)]
#[doc = include_str!("../docs/concurrent.md")]
struct Concurrent;

#[cfg(doctest)]
#[doc = include_str!("../docs/leases.md")]
struct Leases;

#[cfg(doctest)]
#[doc = include_str!("../docs/live.md")]
struct Live;

#[cfg(doctest)]
#[doc = include_str!("../docs/operations.md")]
struct Operations;

#[cfg(doctest)]
#[doc = include_str!("../docs/keys.md")]
struct Keys;

#[cfg(all(doctest, feature = "metrics", feature = "rules"))]
#[doc = include_str!("../docs/metrics.md")]
struct Metrics;

#[cfg(doctest)]
#[doc = include_str!("../docs/algorithms.md")]
struct Algorithms;
