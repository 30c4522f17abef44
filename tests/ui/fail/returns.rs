//! Return types that a denial or an error cannot become.

use rate_limited::{Denied, rate_limited};

struct Busy;

impl From<Denied> for Busy {
    fn from(_: Denied) -> Self {
        Self
    }
}

#[rate_limited(key = "k", limit = "5/10s")]
async fn option(id: u64) -> Option<u64> {
    Some(id)
}

#[rate_limited(key = "k", limit = "5/10s")]
fn text<'a>(id: &'a str) -> &'a str {
    id
}

#[rate_limited(key = "k", limit = "5/10s")]
async fn unit() {}

#[rate_limited(key = "k", limit = "5/10s")]
fn never() -> ! {
    loop {}
}

#[rate_limited(key = "k", limit = "5/10s")]
fn other_error() -> Result<u64, std::num::ParseIntError> {
    "1".parse()
}

#[rate_limited(key = "k", limit = "5/10s", on_error = raise)]
fn only_denied() -> Result<u64, Busy> {
    Ok(1)
}

#[rate_limited(key = "k", limit = "5/10s", fallback = None, on_error = raise)]
async fn raises() -> Option<u64> {
    None
}

#[rate_limited(key = "k", limit = "5/10s")]
fn option_of_impl_trait() -> Option<impl Copy> {
    Some(1)
}

#[rate_limited(key = "k", limit = "5/10s")]
async fn impl_trait_with_other_error() -> Result<impl Copy, std::num::ParseIntError> {
    "1".parse::<u64>()
}

fn main() {}
