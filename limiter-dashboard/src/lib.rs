//! A page for operators of [`rate_limited`]: who is denied, by which rule, in which limiters, and edits of the shared rules.
//!
//! [`Dashboard`] is a router of axum 0.8, to be mounted under any path of a service. The command `limiter dashboard` runs it
//! by itself. `docs/dashboard.md` of `rate-limited` describes the page and its permissions.

mod error;
mod dashboard;
mod access;
mod hosts;
mod answer;
mod assets;
mod feed;
mod series;
mod key_denials;
mod events;
mod views;
mod routes;
mod server;
mod timed_writes;

pub use dashboard::Dashboard;
pub use error::Error;
pub use server::DashboardServer;
