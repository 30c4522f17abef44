//! What is not limited, and what is not limited yet. The items are all there nevertheless.

use std::pin::Pin;

use rate_limited::rate_limited;

#[rate_limited(key = "k", limit = "5/10s")]
struct Struct;

#[rate_limited(key = "k", limit = "5/10s")]
enum Enum {}

#[rate_limited(key = "k", limit = "5/10s")]
static STATIC: Struct = Struct;

#[rate_limited(key = "k", limit = "5/10s")]
mod module {}

#[rate_limited(key = "k", limit = "5/10s")]
impl Struct {
    #[rate_limited(key = "k", limit = "5/10s", fallback = Self::CONSTANT)]
    const CONSTANT: u64 = 1;

    #[rate_limited(key = "k", limit = "5/10s", fallback = 2)]
    const fn constant(&self) -> u64 {
        1
    }
}

#[rate_limited(key = "k", limit = "5/10s")]
trait Trait {
    #[rate_limited(key = "k", limit = "5/10s")]
    fn method(&self);
}

#[rate_limited(key = "k", limit = "5/10s", fallback = None)]
fn future() -> impl Future<Output = u64> + Send {
    async { 1 }
}

#[rate_limited(key = "k", limit = "5/10s", fallback = None)]
fn boxed<'a>(id: &'a str) -> Pin<Box<dyn Future<Output = &'a str> + Send + 'a>> {
    Box::pin(async move { id })
}

impl Trait for Enum {
    fn method(&self) {}
}

fn main() {
    const ONE: u64 = STATIC.constant();
    drop((future(), boxed("a")));
    assert_eq!(ONE, Struct::CONSTANT);
}
