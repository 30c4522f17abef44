//! The permit of an allowed call in the body.

#![deny(warnings, rust_2018_idioms, unused, unused_qualifications, trivial_casts)]
#![allow(unused_crate_dependencies)]

use std::future::Future;
use std::pin::Pin;

use async_trait::async_trait;
use rate_limited::{Allowed, Denied, Error, Limiter, Source, rate_limited};

#[rate_limited(key = "sync", limit = "3/1h", permit = allowed, fallback = None)]
fn sync() -> Option<u32> {
    Some(allowed.remaining())
}

#[rate_limited(key = "by value", limit = "1/1h", permit = allowed)]
async fn by_value() -> Result<Allowed, Denied> {
    tokio::task::yield_now().await;
    Ok(allowed.into())
}

/// It is unused without a warning.
#[rate_limited(key = "unused", limit = "1/1h", permit = _allowed, fallback = false)]
fn unused() -> bool {
    true
}

#[rate_limited(key = "user:{id}", name = "user", limit = "2/1h", fallback = "user".to_owned())]
#[rate_limited(key = "all", limit = "3/1h", permit = permit, fallback = degrade, when = *id != 0)]
async fn two_rules((id, _): (u64, u64)) -> String {
    format!("{} {}", permit.name(), permit.remaining())
}

async fn degrade(pair: (u64, u64)) -> String {
    format!("degraded {}", pair.1)
}

#[rate_limited(key = "handled", limit = "1/1h", permit = allowed, fallback = Err(denied.name().to_owned()),
    on_error = |error| Err(error.to_string()), recover = |error: String| Err(format!("{error}, recovered")))]
async fn handled(fails: bool) -> Result<u32, String> {
    if fails { Err(allowed.name().to_owned()) } else { Ok(allowed.limit().max()) }
}

#[rate_limited(key = "handled sync", limit = "1/1h", permit = allowed, fallback = Err("denied".to_owned()),
    on_error = handle, recover = |error: String| Err(format!("{error}, recovered")))]
fn handled_sync() -> Result<Allowed, String> {
    let name = allowed.name().to_owned();
    if name.is_empty() { Err(name) } else { Ok(allowed.into()) }
}

fn handle(error: Error) -> Result<Allowed, String> {
    Err(error.to_string())
}

#[rate_limited(key = "boxed {id}", limit = "1/1h", permit = allowed, fallback = 7)]
fn boxed(id: &str) -> Pin<Box<dyn Future<Output = u32> + Send + '_>> {
    Box::pin(async move { allowed.remaining() })
}

#[async_trait]
trait Buy {
    async fn buy(&self, (id, _): (u64, u64)) -> Result<Allowed, Denied>;
}

struct Shop;

#[async_trait]
impl Buy for Shop {
    #[rate_limited(key = "buy:{id}", limit = "1/1h", permit = allowed)]
    async fn buy(&self, (id, _): (u64, u64)) -> Result<Allowed, Denied> {
        assert_eq!(id, 1);
        Ok(allowed.into())
    }
}

struct Mailer;

#[rate_limited(key = "block", limit = "1/1h", fallback = 0)]
impl Mailer {
    fn send(&self) -> u32 {
        1
    }

    #[rate_limited(key = "own", limit = "5/1h", permit = allowed, fallback = 0)]
    fn purge(&self) -> u32 {
        allowed.limit().max()
    }
}

#[rate_limited(key = "unlimited", limit = "1/1h", permit = allowed, when = false, fallback = None)]
fn unlimited() -> Option<Allowed> {
    Some(allowed.into())
}

#[rate_limited("configured {id}", permit = allowed, fallback = None)]
fn configured(id: u8) -> Option<Allowed> {
    Some(allowed.into())
}

/// The name of the macro's variable, whose hygiene the body shares.
macro_rules! function {
    ($name:ident) => {
        #[rate_limited(key = "macro", limit = "9/1h", permit = allowed, fallback = 0)]
        fn $name() -> u32 {
            allowed.remaining()
        }
    };
}

function!(from_macro);

fn main() {
    let limiter = Limiter::memory();
    limiter.scope_sync(|| {
        assert_eq!((sync(), sync(), sync(), sync()), (Some(2), Some(1), Some(0), None));
        assert_eq!((unused(), unused()), (true, false));
        assert_eq!(handled_sync().map(|allowed| allowed.name().to_owned()), Ok("handled sync".to_owned()));
        assert_eq!(handled_sync().map(drop), Err("denied, recovered".to_owned()).or(Err("denied".to_owned())));
        assert_eq!((Mailer.send(), Mailer.purge(), from_macro()), (1, 5, 8));
        for allowed in [unlimited(), unlimited(), configured(1), configured(1)] {
            let allowed = allowed.expect("is not limited");
            assert_eq!((allowed.source(), allowed.remaining()), (Source::Mode, u32::MAX));
            limiter.refund_blocking(&allowed).expect("refunds nothing");
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("builds");
    runtime.block_on(limiter.scope(async {
        let allowed = by_value().await.expect("is allowed");
        assert!(by_value().await.is_err());
        limiter.refund(&allowed).await.expect("refunds");
        assert!(by_value().await.is_ok(), "the permit was given back");

        assert_eq!(two_rules((1, 2)).await, "user 1");
        assert_eq!(two_rules((0, 2)).await, "user 1");
        assert_eq!(two_rules((1, 2)).await, "user 0");
        assert_eq!(two_rules((1, 2)).await, "user");
        assert_eq!(two_rules((2, 2)).await, "all 0");
        assert_eq!(two_rules((3, 2)).await, "degraded 2");

        assert_eq!(handled(true).await, Err("handled, recovered".to_owned()));
        assert_eq!(handled(false).await, Err("handled".to_owned()), "a denial is not recovered");

        assert_eq!((boxed("a").await, boxed("a").await), (0, 7));
        assert_eq!(Shop.buy((1, 2)).await.map(|allowed| allowed.name().to_owned()).ok().as_deref(), Some("buy:{id}"));
        assert!(Shop.buy((1, 2)).await.is_err());
    }));
}
