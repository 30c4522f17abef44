//! Items that the attribute does not support, or not yet. All of them are still emitted.

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
use std::fmt::Display;

#[rate_limited(key = "k", limit = "5/10s")]
type Alias = dyn Display;

#[rate_limited(key = "k", limit = "5/10s")]
macro_rules! one {
    () => {
        1
    };
}

#[rate_limited(key = "k", limit = "5/10s")]
unsafe extern "C" {}

impl Struct {
    #[rate_limited(key = "k", limit = "5/10s", fallback = Self::CONSTANT)]
    const CONSTANT: u64 = one!();

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
    make()
}

#[rate_limited(key = "k", limit = "5/10s", fallback = None)]
fn boxed<'a>(id: &'a str) -> Pin<Box<dyn Future<Output = &'a str> + Send + 'a>> {
    let future = async move { id };
    Box::pin(future)
}

async fn make() -> u64 {
    1
}

#[tokio::test]
#[rate_limited(key = "k", limit = "5/10s", fallback = ())]
async fn below_the_test() {}

impl Trait for Enum {
    fn method(&self) {}
}

#[tokio::main]
#[rate_limited(key = "k", limit = "5/10s", fallback = ())]
async fn main() {
    const ONE: u64 = STATIC.constant();
    drop((future(), boxed("a")));
    assert_eq!(ONE, Struct::CONSTANT);
    let _: Option<Box<Alias>> = None;
}
