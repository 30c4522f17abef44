//! `concurrent`, and texts such as `50 concurrent`.

use rate_limited::rate_limited;

#[rate_limited(key = "k", concurrent = 0, fallback = ())]
fn none() {}

#[rate_limited(key = "k", concurrent = 65_536, fallback = ())]
fn too_many() {}

#[rate_limited(key = "k", concurrent = "50", fallback = ())]
fn quoted() {}

#[rate_limited(key = "k", concurrent = 50, window = "10s", fallback = ())]
fn beside_a_window() {}

#[rate_limited(key = "k", limit = "5/s", concurrent = 50, fallback = ())]
fn beside_a_limit() {}

#[rate_limited(key = "k", concurrent = 50, algorithm = token_bucket, burst = 5, fallback = ())]
fn beside_an_algorithm() {}

#[rate_limited(key = "k", limit = "5/s", algorithm = concurrent, fallback = ())]
fn no_algorithm() {}

#[rate_limited(key = "k", limit = "50 concurrent", settle = |_| 1, fallback = ())]
fn settled() {}

#[rate_limited(key = "k", limit = "0 concurrent", fallback = ())]
fn text_of_none() {}

#[rate_limited(key = "k", limits = ["5/s", "5.5 concurrent"], fallback = ())]
fn text_of_a_fraction() {}

#[rate_limited(key = "k", limits = ["5 concurrent", "9 concurrent"], fallback = ())]
fn twice() {}

fn main() {}
