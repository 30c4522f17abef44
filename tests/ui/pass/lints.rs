//! Lints: none fires for the generated code, and those about the function's own code still fire.

#![deny(
    warnings,
    unused,
    unused_qualifications,
    unused_lifetimes,
    unused_import_braces,
    single_use_lifetimes,
    trivial_casts,
    elided_lifetimes_in_paths,
    unreachable_pub,
    unsafe_code,
    variant_size_differences,
    clippy::all,
    clippy::pedantic,
    clippy::used_underscore_binding,
    clippy::shadow_unrelated,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::let_underscore_must_use
)]
#![allow(clippy::needless_pass_by_value, reason = "a fallback gets what the function gets")]

use rate_limited::{Denied, Limiter, rate_limited};

#[derive(Debug, PartialEq)]
struct Busy;

impl From<Denied> for Busy {
    fn from(_: Denied) -> Self {
        Self
    }
}

struct Token(u8);

#[rate_limited(key = "plain {id}", limit = "1/1h", fallback = degraded)]
async fn plain(id: u64, _name: &str) -> u64 {
    tokio::task::yield_now().await;
    id
}

fn degraded(id: u64, name: &str) -> u64 {
    id + u64::from(name.is_empty())
}

#[rate_limited(key = "patterns {id}", limits = ["1/1h", "5/1d"], when = id > 0, cost = 1, fallback = with_pair)]
fn patterns((id, _token): (u64, Token), _: Token, mut last: u64) -> u64 {
    last += id;
    last
}

fn with_pair(pair: (u64, Token), token: Token, last: u64) -> u64 {
    let Token(second) = token;
    pair.0 + u64::from(pair.1.0 + second) + last
}

#[rate_limited(key = "recovers {id}", limit = "1/1h", on_error = open, recover = |error| if error == Busy { Ok(0) } else { Err(error) })]
#[rate_limited(key = "global", limit = "9/1h", algorithm = sliding_window)]
async fn recovers(id: u64, (text, _): (String, Token)) -> Result<usize, Busy> {
    tokio::task::yield_now().await;
    if id == 0 {
        return Err(Busy);
    }
    Ok(text.len())
}

#[rate_limited(key = "recovers {id}", limit = "1/1h", wait = "1ms", recover = Ok(usize::from(error == Busy)))]
fn recovers_sync(id: u64, text: &str) -> Result<usize, Busy> {
    if id == 0 { Err(Busy) } else { Ok(text.len()) }
}

#[rate_limited(key = "settles {id}", limit = "9/1h", cost = 0, settle = |()| 1, fallback = ())]
async fn settles(id: u64, _name: &str) {
    tokio::task::yield_now().await;
    assert!(id > 0);
}

#[rate_limited(key = "settles {id}", limit = "9/1h", settle = |_| u32::from(second.0), permit = _permit)]
#[rate_limited(key = "all", limit = "9/1h", settle = length, recover = Err(error))]
fn settles_sync((id, _token): (u64, Token), second: &Token, mut last: u64) -> Result<u64, Busy> {
    last += id;
    if last == 0 { Err(Busy) } else { Ok(last) }
}

fn length(answer: &Result<u64, Busy>) -> u32 {
    u32::from(answer.is_ok())
}

struct Service<'a>(&'a Limiter);

#[rate_limited(key = "service", limit = "1/1h", limiter = self.0, fallback = |denied| denied.limit().max())]
impl Service<'_> {
    async fn later(&self) -> u32 {
        tokio::task::yield_now().await;
        0
    }

    fn now(&self) -> u32 {
        u32::from(format!("{:?}", self.0).is_empty())
    }
}

#[expect(unused_variables)]
#[rate_limited(key = "unused", limit = "1/1h", fallback = false)]
fn unused_argument(id: u64) -> bool {
    true
}

#[expect(unused_mut)]
#[rate_limited(key = "unused", limit = "1/1h", fallback = Err(Busy), recover = Err(error))]
async fn unused_mut(mut id: u64) -> Result<u64, Busy> {
    tokio::task::yield_now().await;
    Ok(id)
}

#[expect(unused_variables)]
#[rate_limited(key = "unused", limit = "1/1h", fallback = Err(Busy), recover = Err(error))]
async fn unused_where_it_is_bound_anew(id: u64) -> Result<u64, Busy> {
    tokio::task::yield_now().await;
    Ok(1)
}

#[expect(unused_variables, reason = "`id` is of no use to anybody, since the fallback gets the pair")]
#[rate_limited(key = "unused", limit = "1/1h", fallback = with_token)]
fn unused_in_a_pattern((id, _): (u64, Token)) -> u8 {
    1
}

fn with_token(pair: (u64, Token)) -> u8 {
    pair.1.0
}

#[expect(dead_code)]
#[rate_limited(key = "unused", limit = "1/1h", fallback = ())]
fn never_called() {}

#[expect(unreachable_code)]
#[rate_limited(key = "unreachable", limit = "1/1h", fallback = 0)]
fn unreachable_rest() -> u64 {
    return 1;
    2
}

#[expect(unused_must_use)]
#[rate_limited(key = "must use", limit = "1/1h", fallback = 0)]
fn ignores_a_result() -> u64 {
    recovers_sync(1, "a");
    1
}

#[expect(clippy::needless_return)]
#[rate_limited(key = "return", limit = "1/1h", fallback = 0)]
fn returns() -> u64 {
    return 1;
}

async fn check() {
    assert_eq!((plain(1, "").await, plain(1, "").await), (1, 2));
    let call = || patterns((1, Token(2)), Token(3), 4);
    assert_eq!((call(), call()), (5, 10));
    let text = || ("abc".to_owned(), Token(1));
    assert_eq!((recovers(1, text()).await, recovers(1, text()).await), (Ok(3), Err(Busy)));
    assert_eq!((recovers(0, text()).await, recovers_sync(0, "")), (Ok(0), Err(Busy)));
    settles(1, "").await;
    assert_eq!(settles_sync((1, Token(2)), &Token(3), 4), Ok(5));
    let limiter = Limiter::memory();
    assert_eq!((Service(&limiter).later().await, Service(&limiter).now()), (0, 1));
    assert!(unused_argument(1) && unused_mut(1).await.is_err() && unused_where_it_is_bound_anew(1).await.is_err());
    assert_eq!(unused_in_a_pattern((1, Token(2))), 2);
    assert_eq!((unreachable_rest(), ignores_a_result(), returns()), (1, 1, 1));
}

#[tokio::main]
pub(crate) async fn main() {
    Limiter::memory().scope(check()).await;
}
