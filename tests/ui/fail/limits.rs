//! `window`, `max` and `limit` as literals.

use rate_limited::rate_limited;

#[rate_limited(key = "k", window = "0s", max = 5, fallback = ())]
fn no_time() {}

#[rate_limited(key = "k", window = "10", max = 5, fallback = ())]
fn no_unit() {}

#[rate_limited(key = "k", window = "ten", max = 5, fallback = ())]
fn in_words() {}

#[rate_limited(key = "k", window = "10 s", max = 5, fallback = ())]
fn spaced() {}

#[rate_limited(key = "k", window = "10x", max = 5, fallback = ())]
fn unknown_unit() {}

#[rate_limited(key = "k", window = "367d", max = 5, fallback = ())]
fn too_long() {}

#[rate_limited(key = "k", window = 10, max = 5, fallback = ())]
fn window_number() {}

#[rate_limited(key = "k", window = "", max = 0, fallback = ())]
fn both_empty() {}

#[rate_limited(key = "k", window = "10s", max = -5, fallback = ())]
fn negative() {}

#[rate_limited(key = "k", window = "10s", max = 5.0, fallback = ())]
fn fraction() {}

#[rate_limited(key = "k", window = "10s", max = "5", fallback = ())]
fn quoted() {}

#[rate_limited(key = "k", window = "10s", max = 5u64, fallback = ())]
fn other_type() {}

#[rate_limited(key = "k", window = "10s", max = 4_294_967_296, fallback = ())]
fn too_many() {}

#[rate_limited(key = "k", limit = "5", fallback = ())]
fn no_slash() {}

#[rate_limited(key = "k", limit = "5/0s", fallback = ())]
fn limit_of_no_time() {}

#[rate_limited(key = "k", limit = "x/10s", fallback = ())]
fn no_number() {}

#[rate_limited(key = "k", limit = "0/10s", fallback = ())]
fn no_permits() {}

#[rate_limited(key = "k", limit = "5/10", fallback = ())]
fn limit_without_unit() {}

#[rate_limited(key = "k", limit = 5, fallback = ())]
fn limit_number() {}

#[rate_limited(key = "k", limit = "7/2months", fallback = ())]
fn no_fixed_length() {}

#[rate_limited(key = "k", limit = "0.5/s", fallback = ())]
fn fraction_of_a_permit() {}

#[rate_limited(key = "k", limit = 100, per = "min", fallback = ())]
fn limit_and_per() {}

#[rate_limited(key = "k", limit = 100, window = "min", fallback = ())]
fn limit_and_window() {}

fn main() {}
