//! `recover` of the wrong type, arity or asyncness, and on functions that return no `Result`: one error each.

use rate_limited::{Denied, rate_limited};

fn number(_: String) -> u64 {
    1
}

fn result(error: String) -> Result<u64, String> {
    Err(error)
}

async fn result_later(error: String) -> Result<u64, String> {
    Err(error)
}

fn two(error: String, _: u64) -> Result<u64, String> {
    Err(error)
}

fn of_a_denial(_: Denied) -> Result<u64, String> {
    Ok(1)
}

#[rate_limited(key = "k", limit = "5/s", fallback = String::new(), recover = |_| String::new())]
fn text() -> String {
    String::new()
}

#[rate_limited(key = "k", limit = "5/s", fallback = None, recover = |_| None)]
async fn option() -> Option<u64> {
    None
}

#[rate_limited(key = "k", limit = "5/s", fallback = Ok(1), recover = number)]
fn wrong_type() -> Result<u64, String> {
    Ok(1)
}

#[rate_limited(key = "k", limit = "5/s", fallback = Ok(1), recover = number)]
async fn wrong_type_later() -> Result<u64, String> {
    Ok(1)
}

#[rate_limited(key = "k", limit = "5/s", fallback = Ok(1), recover = result_later)]
fn wrong_colour() -> Result<u64, String> {
    Ok(1)
}

#[rate_limited(key = "k", limit = "5/s", fallback = Ok(1), recover = two)]
fn wrong_arity() -> Result<u64, String> {
    Ok(1)
}

#[rate_limited(key = "k", limit = "5/s", fallback = Ok(1), recover = of_a_denial)]
fn wrong_argument() -> Result<u64, String> {
    Ok(1)
}

#[rate_limited(key = "k", limit = "5/s", fallback = Ok(1), recover = result)]
fn other_error() -> Result<u64, u64> {
    Ok(1)
}

#[rate_limited(key = "k", limit = "5/s", fallback = Ok(1), recover = "sorry")]
fn string() -> Result<u64, String> {
    Ok(1)
}

#[rate_limited(key = "k", limit = "5/s", fallback = Ok(1), recover = |error| Ok(error))]
async fn closure() -> Result<u64, String> {
    Ok(1)
}

#[rate_limited(key = "k", limit = "5/s", fallback = Ok(1), recover = nope)]
async fn no_such_function() -> Result<u64, String> {
    Ok(1)
}

fn main() {}
