//! What `rate-limited` promises, on the embedded store and on real servers that the tests own.

mod attribute;
mod child;
mod conformance;
mod deadlines;
mod exactness;
mod expiry;
mod failures;
mod fake;
mod keys;
mod observers;
mod oracle;
mod outage;
mod runtimes;
mod standby;
mod start;
mod support;
mod tls;
