//! `fallback` and `on_error`, as far as the attribute reads them.

#![allow(unused_variables)]

use rate_limited::rate_limited;

#[rate_limited(key = "k", limit = "5/10s", fallback = || None)]
fn no_argument() -> Option<u64> {
    None
}

#[rate_limited(key = "k", limit = "5/10s", fallback = |id, denied| None)]
fn two_arguments(id: u64) -> Option<u64> {
    Some(id)
}

#[rate_limited(key = "k", limit = "5/10s", fallback = async |denied| None)]
fn async_closure() -> Option<u64> {
    None
}

#[rate_limited(key = "k", limit = "5/10s", fallback = Some(denied))]
fn hidden_argument(denied: u64) -> Option<u64> {
    Some(denied)
}

#[rate_limited(key = "k", limit = "5/10s", fallback = None, on_error = Some(format!("{error}")))]
fn hidden_argument_in_a_string(error: &str) -> Option<String> {
    Some(error.to_owned())
}

#[rate_limited(key = "k", limit = "5/10s", on_error = raise)]
fn impl_trait() -> impl Iterator<Item = u64> {
    [1].into_iter()
}

#[rate_limited(key = "k", limit = "5/10s", fallback = None, on_error = opne)]
fn policy_slip() -> Option<u64> {
    None
}

#[rate_limited(key = "k", limit = "5/10s", fallback = None, on_error = "open")]
fn quoted_policy() -> Option<u64> {
    None
}

#[rate_limited(key = "k", limit = "5/10s", fallback = None, on_error = |a, b| None)]
fn handler_of_two() -> Option<u64> {
    None
}

#[rate_limited(key = "k", limit = "5/10s", fallback = None, recover = Err(error + 1))]
fn hidden_by_recover((error, _): (u64, u64)) -> Result<u64, u64> {
    Err(error)
}

#[rate_limited(key = "k", limit = "5/10s", fallback = Err(0), recover = || Ok(1))]
fn recover_of_nothing() -> Result<u64, u64> {
    Err(1)
}

#[rate_limited(key = "k", limit = "5/10s", fallback = Err(0), recover = async |error| Err(error))]
fn recover_later() -> Result<u64, u64> {
    Err(1)
}

fn main() {}
