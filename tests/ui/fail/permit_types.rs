//! The permit's variable in the body, as rustc sees it.

#![deny(unused_variables)]

use rate_limited::{Permit, rate_limited};

#[rate_limited(key = "k", limit = "5/s", fallback = (), permit = allowed)]
fn unused() {}

#[rate_limited(key = "k", limit = "5/s", permit = allowed, recover = Err(error))]
async fn unused_beside_recover() -> Result<(), rate_limited::Denied> {
    Ok(())
}

#[rate_limited(key = "k", limit = "5/s", fallback = (), permit = allowed)]
fn of_another_type() {
    let _: u32 = allowed;
}

#[rate_limited(key = "k", limit = "5/s", fallback = drop(allowed), permit = allowed)]
fn not_in_the_fallback() {
    drop::<Permit>(allowed);
}

fn main() {}
