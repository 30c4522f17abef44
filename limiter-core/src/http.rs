//! Answers of web services: status codes, header fields and problem texts, as plain strings for any framework.
//!
//! With the features `axum` and `tonic` of `rate-limited` a [`Denied`](crate::Denied) is a response by itself. Other
//! frameworks take the parts:
//!
//! ```
//! # use limiter_core as rate_limited;
//! use rate_limited::http::{self, Fields};
//! use rate_limited::{Decision, Key, Limiter};
//!
//! let (limiter, key, limit) = (Limiter::memory(), Key::new("api"), "1/1m".parse()?);
//! limiter.named("api").check_blocking(&key, &limit)?;
//! let decision = limiter.named("api").check_blocking(&key, &limit)?;
//! let fields = http::fields(&decision, Fields::Draft11);
//! assert_eq!(fields[0], ("ratelimit-policy", r#""api";q=1;w=60"#.to_owned()));
//! if let Decision::Denied(denied) = decision {
//!     let seconds = denied.retry_after_secs();
//!     assert_eq!(fields[1], ("ratelimit", format!(r#""api";r=0;t={seconds}"#)));
//!     assert_eq!(fields[2], ("retry-after", seconds.to_string()));
//!     assert_eq!(http::status(&denied), 429);
//!     // The body, of the type `application/problem+json`. Send it with `cache-control: no-store`.
//!     assert!(http::problem(&denied).starts_with(r#"{"type":"https://iana.org/assignments/"#));
//! }
//! # Ok::<(), rate_limited::Error>(())
//! ```
//!
//! No field and no body contains a key. They contain the rule's name.

mod fields;
mod policy_name;
mod problem;
#[cfg(all(test, not(limiter_loom), feature = "redis", feature = "test-util"))]
mod tests;

pub(crate) use fields::write_fields;
pub use fields::{FIELD_NAMES, Fields, fields};
pub use problem::{error_problem, error_status, problem, status};
