//! `window`, `max`, `limit` and `limiter` as expressions of another type.

use rate_limited::rate_limited;

#[rate_limited(key = "k", window = seconds * 2, max = count.len(), fallback = ())]
fn numbers(seconds: u64, count: &str) {}

#[rate_limited(key = "k", limit = limit.to_owned(), fallback = ())]
fn text(limit: &str) {}

#[rate_limited(key = "k", limit = "5/10s", limiter = url.clone(), fallback = ())]
fn no_limiter(url: String) {}

#[rate_limited(key = "k", limit = "5/10s", limiter = self.limiter, fallback = ())]
fn no_self() {}

fn main() {}
