//! Expressions of another type where a rule needs a number, a condition, a duration or a limit.

use rate_limited::rate_limited;

#[rate_limited(key = "k", limit = "5/s", cost = size, fallback = ())]
fn cost(size: usize) {}

#[rate_limited(key = "k", limit = "5/s", when = size, fallback = ())]
fn when(size: usize) {}

#[rate_limited(key = "k", limit = "5/s", wait = millis * 2, fallback = ())]
async fn wait(millis: u64) {}

#[rate_limited(key = "k", limits = ["5/s", text], fallback = ())]
fn limits(text: &str) {}

#[rate_limited(key = "k", limit = "5/s", algorithm = token_bucket, burst = size, fallback = ())]
fn burst(size: usize) {}

#[rate_limited(key = "k", limit = "5/s", fallback = None)]
#[rate_limited(key = "l", limit = "5/s")]
fn second_rule_without_a_fallback() -> Option<u64> {
    None
}

#[rate_limited(key = "k", limit = "5/s", fallback = later)]
async fn pattern((id, _): (u64, u64)) -> u64 {
    id
}

async fn later(id: u64) -> u64 {
    id
}

struct Service;

#[rate_limited(key = "k", limit = "5/s", fallback = Self::degraded)]
impl Service {
    fn one(&self) -> u64 {
        1
    }

    fn two(&self, _more: u64) -> u64 {
        2
    }
}

impl Service {
    fn degraded(&self) -> u64 {
        0
    }
}

#[rate_limited(key = "k", concurrent = calls, fallback = ())]
fn concurrent(calls: u16) {}

fn main() {}
