//! `recover` on functions whose signature shows that they return no error.

use rate_limited::rate_limited;

#[rate_limited(key = "k", limit = "5/s", fallback = (), recover = |_| ())]
fn nothing() {}

#[rate_limited(key = "k", limit = "5/s", fallback = (), recover = |_| ())]
async fn unit() -> () {}

#[rate_limited(key = "k", limit = "5/s", fallback = panic!(), recover = |_| ())]
fn never() -> ! {
    loop {}
}

#[rate_limited(key = "k", limit = "5/s", fallback = Ok(1_u64), recover = Err(error))]
fn opaque() -> Result<impl Copy, u64> {
    Ok(1_u64)
}

fn main() {
    drop(unit());
    nothing();
}
