//! Growth of a function's future by the attribute, which must not depend on the size of the body's state.

use std::time::Duration;

use rate_limited::{Denied, Limit, Permit, rate_limited};

/// The largest growth of a future, beside arguments that are bound again.
const MAX_EXTRA_BYTES: usize = 528;

struct Busy;

impl From<Denied> for Busy {
    fn from(_: Denied) -> Self {
        Self
    }
}

async fn pause() {}

macro_rules! body {
    ($state:ident) => {{
        let state = [1_u8; $state];
        pause().await;
        state.iter().map(|byte| u64::from(*byte)).sum::<u64>()
    }};
}

async fn plain<const N: usize>(id: u64) -> u64 {
    id + body!(N)
}

#[rate_limited(key = "user:{id}", limit = "5/10s", fallback = other)]
async fn function<const N: usize>(id: u64) -> u64 {
    id + body!(N)
}

/// A fallback with a large state, which is not part of the future.
async fn other(id: u64) -> u64 {
    let state = [0_u8; 4096];
    pause().await;
    id + u64::from(state[0])
}

#[rate_limited(key = "user:{id}", max = 5, window = Duration::from_secs(id), fallback = denied.limit().max().into(),
    on_error = |error| { u64::from(error.is_transient()) })]
async fn handled<const N: usize>(id: u64) -> u64 {
    id + body!(N)
}

#[rate_limited(key = "user:{id}", limits = ["5/s", "100/1m", limit], wait = "1s", cost = 2, fallback = 0)]
async fn several<const N: usize>(id: u64, limit: Limit) -> u64 {
    id + body!(N)
}

#[rate_limited(key = "user:{id}", limit = "5/s", fallback = 0)]
#[rate_limited(key = "global", limit = "100/s", when = id > 0, fallback = 1)]
#[rate_limited(key = "all", limit = "1000/s", fallback = other)]
async fn three_rules<const N: usize>(id: u64) -> u64 {
    id + body!(N)
}

async fn plain_result<const N: usize>(id: u64) -> Result<u64, Busy> {
    Ok(id + body!(N) as u64)
}

#[rate_limited(key = "user:{id}", limit = "5/s", recover = Err(error))]
async fn recovered<const N: usize>(id: u64) -> Result<u64, Busy> {
    Ok(id + body!(N) as u64)
}

#[rate_limited(key = "user:{id}", limit = "5/s", settle = |_| 1)]
async fn settled<const N: usize>(id: u64) -> Result<u64, Busy> {
    Ok(id + body!(N) as u64)
}

type Pair = (u64, [u64; 8]);

async fn plain_pair<const N: usize>((id, _): Pair) -> u64 {
    id + body!(N)
}

#[rate_limited(key = "user:{id}", limit = "5/s", fallback = other_pair)]
async fn pair<const N: usize>((id, _): Pair) -> u64 {
    id + body!(N)
}

async fn other_pair(pair: Pair) -> u64 {
    pair.1.into_iter().sum()
}

fn assert_growth(limited: usize, plain: usize, rebound: usize) {
    let growth = limited - plain;
    println!("{growth} bytes more than {plain}");
    assert!(growth <= MAX_EXTRA_BYTES + rebound, "{growth} bytes more than {plain}");
}

fn check<const N: usize>() {
    let plain = size_of_val(&plain::<N>(1));
    assert!(plain > N);
    assert_growth(size_of_val(&function::<N>(1)), plain, 0);
    assert_growth(size_of_val(&handled::<N>(1)), plain, 0);
    let limit = "1000/1h".parse().expect("a limit");
    assert_growth(size_of_val(&several::<N>(1, limit)), plain + size_of::<Limit>(), 0);
    assert_growth(size_of_val(&three_rules::<N>(1)), plain, 0);
    assert_growth(size_of_val(&recovered::<N>(1)), size_of_val(&plain_result::<N>(1)), size_of::<u64>());
    let rebound = size_of::<u64>() + size_of::<Permit>();
    assert_growth(size_of_val(&settled::<N>(1)), size_of_val(&plain_result::<N>(1)), rebound);
    let argument = (1, [0; 8]);
    assert_growth(size_of_val(&pair::<N>(argument)), size_of_val(&plain_pair::<N>(argument)), size_of::<Pair>());
}

#[test]
fn future_grows_by_the_decision_and_not_by_the_body() {
    check::<16>();
    check::<{ 16 * 1024 }>();
}
