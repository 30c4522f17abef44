//! Names of arguments, commas, and arguments that exclude or require each other.

use rate_limited::rate_limited;

#[rate_limited]
fn nothing() {}

#[rate_limited(key = "k")]
fn no_limit() {}

#[rate_limited(limit = "5/10s", fallback = ())]
fn no_key() {}

#[rate_limited(key = "k", window = "10s", fallback = ())]
fn no_max() {}

#[rate_limited(key = "k", max = 5, fallback = ())]
fn no_window() {}

#[rate_limited(key = "k", limit = "5/10s", window = "10s", fallback = ())]
fn two_limits() {}

#[rate_limited(key = "k", max = 5, window = "10s", limit = "5/10s", fallback = ())]
fn three_limits() {}

#[rate_limited(key = "k", limit = "5/10s", key = "other", fallback = (), fallback = None)]
fn twice() {}

#[rate_limited(kee = "k", limit = "5/10s", fallbak = ())]
fn slips() {}

#[rate_limited(value = "k", window_time = "10s", limit_max = 5, degrade_callback = f, error_callback = g)]
fn words_of_other_limiters() {}

#[rate_limited(key = "k", limit = "5/10s", colour = "red", fallback = ())]
fn unknown() {}

#[rate_limited(key = "k", limit = "5/10s", leases = "true", fallback = ())]
fn flag_in_quotes() {}

#[rate_limited(key = "k", limit = "5/10s", leases = _busy, fallback = ())]
fn flag_at_run_time(_busy: bool) {}

#[rate_limited("k", limit = "5/10s")]
fn no_name() {}

#[rate_limited(key("k"), limit: "5/10s", fallback =)]
fn no_values() {}

#[rate_limited(key = "k" limit = "5/10s", fallback = ())]
fn no_comma() {}

#[rate_limited(key = "k", limit = "5/10s", fallback = a b, crate = ::rate_limited)]
fn two_values() {}

#[rate_limited(key = "k", limit = "5/10s", fallback = (), crate = rate_limited)]
fn relative_crate() {}

#[rate_limited(key = "k", limit = "5/10s", fallback = (), crate = "::rate_limited")]
fn quoted_crate() {}

#[rate_limited(key = "k", limit = "5/10s", fallback = (), limiter = "redis://localhost")]
fn quoted_limiter() {}

#[rate_limited(key = "k", rates = ["5/10s"], fallback = (), timeout = "1s", weight = 2, condition = true)]
fn more_words_of_other_limiters() {}

#[rate_limited(key = "k", rate = "5/s", fallback = ())]
fn text_of_a_rate() {}

// No further errors here: the functions are emitted despite the mistakes in their attributes.
fn main() {
    nothing();
    no_limit();
    no_key();
    twice();
    unknown();
    no_name();
}
