//! The decision service of [`rate_limited`]: the same exact limits for gateways, scripts and every language.
//!
//! It counts nothing itself. It is a front end on a [`Limiter`](rate_limited::Limiter) and its rules: a call names a rule and
//! the values of its key, and counts together with the annotated functions and layers of that rule. The program
//! `limiter-server` runs it by itself, and [`Server`] is for a program of your own. `docs/service.md` of `rate-limited`
//! describes routes, gateways and failures.

mod error;
mod access;
mod service;
mod reports;
mod listen;
mod http;
mod resp;
mod envoy;
mod grpc;
mod server;

pub use error::Error;
pub use listen::ListenAddress;
pub use server::{BoundServer, Server};
