//! Several attributes on one function: an argument about the whole decision may be in only one of them.

use rate_limited::rate_limited;

#[rate_limited(key = "a", limit = "5/s", fallback = (), wait = "1s", on_error = open)]
#[rate_limited(key = "b", limit = "5/s", fallback = (), wait = "1s", on_error = closed)]
fn waits_twice() {}

#[rate_limited(key = "a", limit = "5/s", limiter = limiter)]
#[rate_limited(key = "b", limit = "5/s", limiter = limiter, recover = Err(error))]
#[rate_limited(key = "c", limit = "5/s", recover = Err(error))]
async fn two_limiters(limiter: &rate_limited::Limiter) -> Result<(), rate_limited::Denied> {
    let _ = limiter;
    Ok(())
}

#[rate_limited(key = "a", limit = "5/s", fallback = (), crate = ::rate_limited)]
#[rate_limited::rate_limited(key = "b", limit = "5/s", fallback = (), crate = ::rate_limited)]
fn two_crates() {}

#[rate_limited(key = "a", limit = "5/s", fallback = ())]
#[rate_limited]
#[::rate_limited::rate_limited(key = "c", fallback = (), colour = "red")]
fn mistakes_in_the_others() {}

#[rate_limited(key = "a", limit = "5/s", fallback = ())]
#[rate_limited = "b"]
fn named_value() {}

#[rate_limited(skip)]
fn nothing_to_skip() {}

#[rate_limited(skip, key = "a", limit = "5/s")]
fn skip_and_more() {}

#[rate_limited(skip = true)]
fn skip_with_a_value() {}

#[rate_limited(key = "a", limit = "5/s", fallback = ())]
#[rate_limited(skip)]
fn skip_beside_another() {}

#[rate_limited(ignore)]
fn skip_by_another_name() {}

#[rate_limited(skip, wait = "1s")]
fn skip_and_wait() {}

// No further errors here: the functions are emitted.
fn main() {
    waits_twice();
    mistakes_in_the_others();
    skip_and_more();
    skip_beside_another();
}
