//! Rules whose limits are in configuration alone.

use rate_limited::rate_limited;

#[rate_limited("getId", limit = "5/s", fallback = ())]
fn text_and_limit() {}

#[rate_limited("getId", key = "getId", fallback = ())]
fn text_and_key() {}

#[rate_limited("user:{id}", max = 5, window = "10s", algorithm = token_bucket, fallback = ())]
fn text_and_numbers(id: u64) {}

#[rate_limited("", fallback = ())]
fn empty_text() {}

#[rate_limited(limit = configured, "getId", fallback = ())]
fn text_in_the_middle() {}

#[rate_limited("getId" fallback = ())]
fn no_comma() {}

#[rate_limited(limit = configured, fallback = ())]
fn no_key() {}

#[rate_limited(key = 7, limit = configured, fallback = ())]
fn no_name() {}

#[rate_limited(key = "k", limit = configured, max = 5, window = "10s", fallback = ())]
fn numbers() {}

#[rate_limited(key = "k", limit = configured, limits = ["5/s"], fallback = ())]
fn list() {}

#[rate_limited(key = "k", limit = configured, algorithm = token_bucket, burst = 5, fallback = ())]
fn algorithm() {}

#[rate_limited(key = "k", limit = "configured", fallback = ())]
fn quoted() {}

#[rate_limited(key = "k", limit = configurd, fallback = ())]
fn misspelt() {}

#[rate_limited(key = "k", limits = configured, fallback = ())]
fn as_a_list() {}

#[rate_limited(key = "k", limits = ["5/s", configured], fallback = ())]
fn in_a_list() {}

#[rate_limited(key = "k", max = configured, window = "10s", fallback = ())]
fn as_a_number() {}

/// An argument of that name is an expression, as any other.
#[rate_limited(key = "k", limit = configured, fallback = ())]
fn argument(configured: bool) {}

// No further errors here: the functions are emitted.
fn main() {
    text_and_limit();
    quoted();
}
