//! Functions that return futures, written by hand or by a macro: the limit applies when the future runs.

#![deny(warnings)]

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use rate_limited::{Denied, Error, Key, Limiter, rate_limited};

/// The path under which `tonic` re-exports `async_trait`.
mod tonic {
    pub(crate) use async_trait::async_trait;
}

#[derive(Debug, PartialEq)]
struct Busy;

impl From<Denied> for Busy {
    fn from(_: Denied) -> Self {
        Self
    }
}

impl From<Error> for Busy {
    fn from(_: Error) -> Self {
        Self
    }
}

struct Request<T>(T);

#[async_trait]
trait Greeter: Sync {
    async fn greet(&self, name: &str) -> Result<String, Busy>;
    async fn count(&mut self, by: u64) -> Result<u64, Busy>;
    async fn consume(self, Request(name): Request<String>) -> String;
    async fn both(&self, (a, _): (u64, Request<u8>), last: u64) -> u64;
    async fn nothing();
    fn plain(&self) -> u64;

    #[rate_limited(key = "by default", limit = "1/1h", fallback = Self::not_now)]
    async fn greet_by_default(&self, name: &str, times: usize) -> String {
        self.greet(name).await.map_or_else(|_| "busy".to_owned(), |text| text.repeat(times))
    }

    async fn not_now(&self, name: &str, times: usize) -> String {
        format!("not now, {name}{times}")
    }
}

#[derive(Clone)]
struct English {
    limiter: Limiter,
    calls: u64,
}

#[tonic::async_trait]
impl Greeter for English {
    #[rate_limited(key = "greet {name}/{self.calls}", limit = "1/1h", limiter = self.limiter)]
    async fn greet(&self, name: &str) -> Result<String, Busy> {
        if name.is_empty() {
            return Ok(self.calls.to_string());
        }
        tokio::task::yield_now().await;
        Ok(format!("hello {name}"))
    }

    #[rate_limited(key = "count", limit = "3/1h", limiter = self.limiter, recover = |_| Ok(100), on_error = raise)]
    async fn count(&mut self, by: u64) -> Result<u64, Busy> {
        self.calls += by;
        if by == 0 {
            Err(Busy)?;
        }
        tokio::task::yield_now().await;
        Ok(self.calls)
    }

    #[rate_limited(key = "consume {name}", limit = "1/1h", limiter = self.limiter, fallback = Self::consumed)]
    async fn consume(self, Request(name): Request<String>) -> String {
        name + &self.calls.to_string()
    }

    #[rate_limited(key = "{a}/{last}", limit = "1/1h", limiter = self.limiter, cost = u32::try_from(*a).unwrap_or(1), fallback = a + last)]
    async fn both(&self, (a, _): (u64, Request<u8>), last: u64) -> u64 {
        a * last
    }

    #[rate_limited(key = "nothing", limit = "1/1h", fallback = panic!("denied"))]
    async fn nothing() {}

    #[rate_limited(key = "plain", limit = "1/1h", fallback = 7)]
    fn plain(&self) -> u64 {
        self.calls
    }
}

impl English {
    async fn consumed(self, Request(name): Request<String>) -> String {
        format!("not now, {name}{}", self.calls)
    }
}

struct Whole;

/// The attribute on a block, before `async_trait` or after it.
#[rate_limited(key = "whole", limit = "2/1h", fallback = "denied".to_owned())]
#[async_trait(?Send)]
impl Named for Whole {
    async fn name(&self) -> String {
        "whole".to_owned()
    }
}

#[async_trait(?Send)]
#[rate_limited(key = "whole", limit = "2/1h", fallback = "denied".to_owned())]
impl Named for u8 {
    #[rate_limited(skip)]
    async fn exempt(&self) -> u8 {
        *self
    }

    async fn name(&self) -> String {
        let not_send = Rc::new(Cell::new(*self));
        tokio::task::yield_now().await;
        not_send.get().to_string()
    }
}

#[async_trait(?Send)]
trait Named {
    async fn name(&self) -> String;

    async fn exempt(&self) -> u8 {
        0
    }
}

#[async_trait]
impl Named2 for Whole {
    #[rate_limited(key = "named 2", limit = "1/1h", fallback = |denied| async move { denied.name().to_owned() })]
    async fn name(&self) -> String {
        "whole".to_owned()
    }
}

#[async_trait]
trait Named2 {
    async fn name(&self) -> String;
}

#[rate_limited(key = "{id}", limit = "1/1h", fallback = denied_id)]
fn boxed<'a>(id: &'a str) -> Pin<Box<dyn Future<Output = &'a str> + Send + 'a>> {
    Box::pin(async move { id })
}

async fn denied_id(id: &str) -> &str {
    &id[1..]
}

#[rate_limited(key = "made {id}", limit = "1/1h")]
fn made(id: u64) -> impl Future<Output = Result<u64, Busy>> + Send {
    let twice = id * 2;
    async move {
        if twice == 0 {
            return Err(Busy);
        }
        Ok(twice)
    }
}

#[rate_limited(key = "impl trait {id}", limit = "1/1h")]
fn made_of_impl_trait(id: u64) -> impl Future<Output = Result<impl Iterator<Item = u64> + Send, Busy>> + Send {
    async move {
        if id == 0 {
            return Err(Busy);
        }
        Ok([id].into_iter())
    }
}

#[rate_limited(key = "future {text}", limit = "1/1h", fallback = 0, on_error = |_| async { 1 })]
fn combinator(text: String) -> BoxFuture<'static, usize> {
    async move { text.len() }.boxed()
}

#[rate_limited(key = "local", limit = "1/1h", recover = |_| Ok(3))]
fn local(cell: Rc<Cell<u64>>) -> LocalBoxFuture<'static, Result<u64, Busy>> {
    (async move {
        tokio::task::yield_now().await;
        if cell.get() == 0 { Err(Busy) } else { Ok(cell.get()) }
    })
    .boxed_local()
}

struct Later(Arc<u64>);

impl Later {
    #[rate_limited(key = "methods", limit = "2/1h", fallback = 0)]
    fn shared(&self) -> impl Future<Output = u64> {
        async { *self.0 }
    }

    #[rate_limited(key = Key::new("methods"), name = "methods", limit = "2/1h", fallback = 0)]
    fn owned(self: Box<Self>) -> std::boxed::Box<dyn std::future::Future<Output = u64> + Unpin + Send> {
        Box::new(Box::pin(async move { *self.0 }))
    }
}

fn sent<T: Send>(value: T) -> T {
    value
}

async fn check() {
    let mut english = English { limiter: Limiter::memory(), calls: 1 };
    // A future that is dropped before it runs takes no permit.
    drop(english.greet("you"));
    assert_eq!(sent(english.greet("you")).await, Ok("hello you".to_owned()));
    assert_eq!((english.greet("you").await, english.greet("").await), (Err(Busy), Ok("1".to_owned())));
    assert_eq!((english.count(1).await, english.count(0).await, english.count(1).await), (Ok(2), Ok(100), Ok(3)));
    assert_eq!(english.count(1).await, Err(Busy));
    let request = || Request("you".to_owned());
    assert_eq!(english.clone().consume(request()).await, "you3");
    assert_eq!(english.clone().consume(request()).await, "not now, you3");
    assert_eq!((english.both((1, Request(1)), 5).await, english.both((1, Request(1)), 5).await), (5, 6));
    English::nothing().await;
    assert_eq!((english.plain(), english.plain()), (3, 7));
    assert_eq!(english.greet_by_default("me", 2).await, "hello mehello me");
    assert_eq!(english.greet_by_default("me", 2).await, "not now, me2");

    assert_eq!(
        (Named::name(&Whole).await, 7.name().await, 7.name().await),
        ("whole".into(), "7".into(), "denied".into())
    );
    assert_eq!((Named2::name(&Whole).await, Named2::name(&Whole).await), ("whole".into(), "named 2".into()));

    assert_eq!((7.exempt().await, Whole.exempt().await), (7, 0));

    drop(boxed("id"));
    assert_eq!((boxed("id").await, boxed("id").await), ("id", "d"));
    let once = async |id| made_of_impl_trait(id).await.map(|numbers| numbers.sum::<u64>());
    assert_eq!((once(5).await, once(5).await, once(0).await), (Ok(5), Err(Busy), Err(Busy)));
    drop(made(1));
    assert_eq!((sent(made(1)).await, made(1).await, made(0).await), (Ok(2), Err(Busy), Err(Busy)));
    let text = || "text".to_owned();
    drop(combinator(text()));
    assert_eq!((sent(combinator(text())).await, combinator(text()).await), (4, 0));
    assert_eq!((local(Rc::default()).await, local(Rc::new(Cell::new(1))).await), (Ok(3), Err(Busy)));
    let later = || Later(Arc::new(7));
    drop(later().shared());
    assert_eq!((later().shared().await, Box::new(later()).owned().await, later().shared().await), (7, 7, 0));
}

#[tokio::main]
async fn main() {
    Limiter::memory().scope(check()).await;
}
