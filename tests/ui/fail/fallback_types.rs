//! Fallbacks and handlers of the wrong type, arity or asyncness: one error each, at the user's own token.

use rate_limited::{Denied, Error, rate_limited};

fn degraded(id: u64) -> Option<String> {
    Some(id.to_string())
}

async fn degraded_later(id: u64) -> Option<String> {
    Some(id.to_string())
}

fn complain(error: &Error) -> Option<u64> {
    drop(error.to_string());
    None
}

#[rate_limited(key = "k", limit = "5/10s", fallback = degraded)]
fn result(id: u64) -> Option<u64> {
    Some(id)
}

#[rate_limited(key = "k", limit = "5/10s", fallback = degraded)]
async fn result_in_async(id: u64) -> Option<u64> {
    Some(id)
}

#[rate_limited(key = "k", limit = "5/10s", fallback = degraded_later)]
async fn result_later(id: u64) -> Option<u64> {
    Some(id)
}

#[rate_limited(key = "k", limit = "5/10s", fallback = degraded_later)]
fn colour(id: u64) -> Option<String> {
    Some(id.to_string())
}

#[rate_limited(key = "k", limit = "5/10s", fallback = self::degraded)]
fn argument(id: &str) -> Option<String> {
    Some(id.to_owned())
}

#[rate_limited(key = "k", limit = "5/10s", fallback = degraded)]
fn too_many_arguments(id: u64, name: &str) -> Option<String> {
    Some(name.repeat(id as usize))
}

#[rate_limited(key = "k", limit = "5/10s", fallback = degraded)]
fn too_few_arguments() -> Option<String> {
    None
}

#[rate_limited(key = "k", limit = "5/10s", fallback = |denied| denied.to_string())]
fn closure() -> Option<String> {
    None
}

#[rate_limited(key = "k", limit = "5/10s", fallback = |denied: Error| None)]
async fn closure_argument() -> Option<String> {
    None
}

#[rate_limited(key = "k", limit = "5/10s", fallback = "degraded")]
fn string() -> Option<u64> {
    None
}

#[rate_limited(key = "k", limit = "5/10s", fallback = degraded_later(1).await)]
fn awaited_in_sync() -> Option<String> {
    None
}

#[rate_limited(key = "k", limit = "5/10s", fallback = None, on_error = complain)]
async fn handler() -> Option<u64> {
    None
}

#[rate_limited(key = "k", limit = "5/10s", fallback = |denied: Denied| None, on_error = |error| error.nope())]
fn handler_closure() -> Option<u64> {
    None
}

fn main() {}
