//! Mistakes in the body: the compiler's messages are the same as without the attribute.

use rate_limited::rate_limited;

#[rate_limited(key = "k", limit = "5/10s", fallback = None)]
fn no_result(id: u64) -> Option<u64> {
    let _ = id;
}

#[rate_limited(key = "k", limit = "5/10s", fallback = None)]
fn semicolon(id: u64) -> Option<u64> {
    Some(id);
}

#[rate_limited(key = "k", limit = "5/10s", fallback = None)]
async fn other_result(id: u64) -> Option<u64> {
    "a"
}

#[rate_limited(key = "k", limit = "5/10s", fallback = ())]
fn unit(id: u64) {
    id
}

#[rate_limited(key = "k", limit = "5/10s", fallback = None)]
async fn question_mark(id: &str) -> Option<u64> {
    id.parse::<u64>()?;
    None
}

fn main() {}
