//! The decision service of [`rate_limited`]: the same exact limits for gateways, scripts and every language.
//!
//! It counts nothing itself. It is a front end on a [`Limiter`](rate_limited::Limiter) and its rules.

mod service;
