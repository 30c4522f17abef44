//! What `rate-limited` promises, on the embedded store and on real servers that the tests own.

mod algorithms;
mod attribute;
mod blocking;
mod child;
mod clocks;
mod cluster;
mod conformance;
mod deadlines;
mod exactness;
mod expiry;
mod failures;
mod fake;
mod keys;
mod logging;
mod observers;
mod oracle;
mod outage;
mod processes;
mod rules;
mod runtimes;
mod several;
mod standby;
mod start;
mod support;
mod tls;
mod waiting;
