//! Arguments of a rule beside its key: `limits`, `algorithm`, `burst`, `cost`, `when`, `wait`.

use rate_limited::rate_limited;

#[rate_limited(key = "k", limits = [], fallback = ())]
fn no_limits() {}

#[rate_limited(key = "k", limits = "5/s", fallback = ())]
fn no_list() {}

#[rate_limited(key = "k", limits = ["5/s", "10", 7, "0/m"], fallback = ())]
fn wrong_ones() {}

#[rate_limited(key = "k", limits = ["5/s", "100/min", "200/60s"], fallback = ())]
fn one_window_twice() {}

#[rate_limited(key = "k", limit = "5/s", limits = ["5/s"], fallback = ())]
fn limit_and_limits() {}

#[rate_limited(key = "k", limits = ["5/s"], max = 5, window = "1s", fallback = ())]
fn limits_and_parts() {}

#[rate_limited(key = "k", limit = "5/s", algorithm = "token_bucket", fallback = ())]
fn quoted_algorithm() {}

#[rate_limited(key = "k", limit = "5/s", algorithm = tokn_bucket, fallback = ())]
fn misspelt_algorithm() {}

#[rate_limited(key = "k", limit = "5/s", algorithm = gcra, fallback = ())]
fn algorithm_of_another_name() {}

#[rate_limited(key = "k", limit = "5/s", algorithm = random, fallback = ())]
fn no_algorithm() {}

#[rate_limited(key = "k", limit = "5/s", algorithm = Algorithm::TokenBucket, fallback = ())]
fn algorithm_by_path() {}

#[rate_limited(key = "k", limit = "5/s", burst = 10, fallback = ())]
fn burst_alone() {}

#[rate_limited(key = "k", limit = "5/s", algorithm = fixed_window, burst = 10, fallback = ())]
fn burst_of_a_window() {}

#[rate_limited(key = "k", limit = "5/s", algorithm = token_bucket, burst = 0, fallback = ())]
fn burst_of_nothing() {}

#[rate_limited(key = "k", limit = "5/s", algorithm = leaky_bucket, burst = "10", fallback = ())]
fn quoted_burst() {}

#[rate_limited(key = "k", limit = "5/s", cost = 0, fallback = ())]
fn costs_nothing() {}

#[rate_limited(key = "k", limit = "5/s", cost = -1, fallback = ())]
fn costs_less() {}

#[rate_limited(key = "k", limit = "5/s", cost = 6, fallback = ())]
fn costs_too_much() {}

#[rate_limited(key = "k", max = 5, window = "1s", cost = 6, fallback = ())]
fn costs_more_than_max() {}

#[rate_limited(key = "k", limits = ["100/min", "5/s"], cost = 6, fallback = ())]
fn costs_more_than_one_of_them() {}

#[rate_limited(key = "k", limit = "50/s", algorithm = token_bucket, burst = 5, cost = 6, fallback = ())]
fn costs_more_than_burst() {}

#[rate_limited(key = "k", limit = "5/s", cost = "2", fallback = ())]
fn quoted_cost() {}

#[rate_limited(key = "k", limit = "5/s", cost = 4_294_967_296, fallback = ())]
fn cost_out_of_range() {}

#[rate_limited(key = "k", limit = "5/s", when = "user.is_admin", fallback = ())]
fn quoted_condition() {}

#[rate_limited(key = "k", limit = "5/s", when = 1, fallback = ())]
fn condition_of_a_number() {}

#[rate_limited(key = "k", limit = "5/s", wait = "0s", fallback = ())]
fn waits_for_nothing() {}

#[rate_limited(key = "k", limit = "5/s", wait = "500", fallback = ())]
fn waits_for_no_unit() {}

#[rate_limited(key = "k", limit = "5/s", wait = 500, fallback = ())]
fn waits_for_a_number() {}

#[rate_limited(key = "k", limit = "5/s", wait = "400d", fallback = ())]
fn waits_too_long() {}

#[rate_limited(key = "k", wait = "1s", fallback = ())]
fn waits_beside_no_limit() {}

fn main() {}
