//! Unknown values in keys: rustc's own errors, pointing into the string where possible.

use rate_limited::{Key, rate_limited};

struct User {
    id: u64,
}

#[rate_limited(key = "user:{nope}", limit = "5/10s", fallback = ())]
fn unknown(id: u64) {}

#[rate_limited(key = "{tenant}/{nope}:{idd}", limit = "5/10s", fallback = ())]
fn two_unknown(tenant: &str, id: u64) {}

#[rate_limited(key = "{user.id}/{nope}", limit = "5/10s", fallback = ())]
fn unknown_beside_an_expression(user: &User) {}

#[rate_limited(key = key_of(user), name = "user", limit = "5/10s", fallback = ())]
fn unknown_function(user: &User) {}

#[rate_limited("user:{nope}", fallback = ())]
fn unknown_in_a_text_alone() {}

fn main() {
    let _ = Key::new("k");
}
