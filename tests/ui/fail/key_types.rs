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

fn main() {}
