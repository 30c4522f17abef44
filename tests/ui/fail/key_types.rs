//! Values in keys whose types cannot be formatted.

use rate_limited::rate_limited;

struct User {
    id: u64,
}

#[rate_limited(key = "user:{user}", limit = "5/10s", fallback = ())]
fn no_display(user: &User) {}

#[rate_limited(key = "user:{user:?}", limit = "5/10s", fallback = ())]
fn no_debug(user: &User) {}

#[rate_limited(key = "user:{user.name}", limit = "5/10s", fallback = ())]
fn no_field(user: &User) {}

#[rate_limited(key = user, name = "user", limit = "5/10s", fallback = ())]
fn no_key(user: &User) {}

#[rate_limited(key = id, name = "user", limit = "5/10s", fallback = ())]
fn no_key_without_a_value(id: Option<u64>) {}

#[rate_limited(key = "user:{id}", limit = "5/10s", fallback = ())]
fn no_text_without_a_value(id: Option<u64>) {}

fn main() {}
