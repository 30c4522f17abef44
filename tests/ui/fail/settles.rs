//! `settle` that is no function of what the body returned, and functions that have nothing to settle.

use rate_limited::rate_limited;

#[rate_limited(key = "k", limit = "5/s", fallback = (), settle = 5)]
fn number() {}

#[rate_limited(key = "k", limit = "5/s", fallback = (), settle = tokens)]
fn argument(tokens: u32) {
    let _ = tokens;
}

#[rate_limited(key = "k", limit = "5/s", fallback = (), settle = || 5)]
fn no_argument() {}

#[rate_limited(key = "k", limit = "5/s", fallback = (), settle = |answer, cost| 5)]
fn two_arguments() {}

#[rate_limited(key = "k", limit = "5/s", fallback = (), settle = async |_| 5)]
async fn later() {}

#[rate_limited(key = "k", limit = "5/s", fallback = (), settle = |_| 5, settle = |_| 6)]
fn twice() {}

#[rate_limited(key = "k", limit = "5/s", fallback = panic!(), settle = |_| 5)]
fn never() -> ! {
    loop {}
}

#[rate_limited(key = "k", limit = "5/s", settle = |_| 5)]
async fn stream() -> Result<impl futures_util::Stream<Item = u8>, rate_limited::Denied> {
    Ok(futures_util::stream::empty())
}

#[rate_limited(key = "k", limit = "5/s", fallback = (), cost = 0)]
fn without_settle() {}

struct Methods;

#[rate_limited(key = "k", limit = "5/s", fallback = ())]
impl Methods {
    #[rate_limited(skip, settle = |_| 5)]
    fn exempt() {}

    fn limited() {}
}

fn main() {
    drop((later(), stream()));
    number();
    argument(1);
    no_argument();
    two_arguments();
    twice();
    without_settle();
    Methods::exempt();
    Methods::limited();
}
