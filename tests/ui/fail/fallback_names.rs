//! Fallbacks and handlers named by paths that do not exist.

use rate_limited::rate_limited;

struct Service;

impl Service {
    #[rate_limited(key = "k", limit = "5/10s", fallback = Self::degraded)]
    fn method(&self) {}
}

#[rate_limited(key = "k", limit = "5/10s", fallback = degraded)]
fn function() {}

#[rate_limited(key = "k", limit = "5/10s", fallback = (), on_error = crate::complain)]
async fn handler() {}

#[rate_limited(key = "k", limit = "5/10s", fallback = BUSY)]
fn constant() -> u64 {
    1
}

#[rate_limited(key = "k", limit = "5/10s", fallback = key)]
fn local_of_the_attribute() -> u64 {
    1
}

#[rate_limited(key = "k", limit = "5/10s", fallback = 1 + site)]
fn another_local_of_the_attribute() -> u64 {
    1
}

fn main() {}
