//! Tests of `rate-limited`, in a separate package so that the facade's examples build without the test dependencies.
//!
//! The code in these documents needs axum, tonic and tower.

#[cfg(doctest)]
#[doc = include_str!("../docs/http.md")]
struct Http;

#[cfg(doctest)]
#[doc = include_str!("../docs/migrating.md")]
struct Migrating;

#[cfg(doctest)]
#[doc = include_str!("../docs/spring.md")]
struct Spring;
