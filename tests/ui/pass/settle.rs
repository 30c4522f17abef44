//! `settle` on every kind of function: what the closure gets is inferred.

#![deny(warnings, rust_2018_idioms, unused, unused_qualifications, trivial_casts)]
#![allow(unused_crate_dependencies)]

use std::cell::Cell;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;

use async_trait::async_trait;
use rate_limited::{Denied, Limiter, Permit, rate_limited};

#[derive(Debug, Clone, PartialEq)]
struct Answer {
    tokens: u32,
}

impl Answer {
    fn new(tokens: u32) -> Self {
        Self { tokens }
    }

    fn tokens(&self) -> u32 {
        self.tokens
    }
}

#[derive(Debug, PartialEq)]
enum Problem {
    Busy,
    Failed(u32),
}

impl From<Denied> for Problem {
    fn from(_: Denied) -> Self {
        Self::Busy
    }
}

impl From<std::num::ParseIntError> for Problem {
    fn from(_: std::num::ParseIntError) -> Self {
        Self::Failed(7)
    }
}

fn cost(answer: &Result<Answer, Problem>) -> u32 {
    match answer {
        Ok(answer) => answer.tokens,
        Err(Problem::Failed(tokens)) => *tokens,
        Err(Problem::Busy) => 0,
    }
}

fn length(text: &str) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

mod costs {
    pub(super) fn of_any<T>(_: &T) -> u32 {
        3
    }
}

#[rate_limited(key = "value", limit = "100/1h", settle = |answer| answer.tokens, fallback = Answer { tokens: 0 })]
fn value(tokens: u32) -> Answer {
    Answer { tokens }
}

#[rate_limited(key = "value", limit = "100/1h", settle = Answer::tokens, fallback = Answer { tokens: 0 })]
async fn of_a_method(tokens: u32) -> Answer {
    tokio::task::yield_now().await;
    Answer { tokens }
}

#[rate_limited(key = "result", limit = "100/1h", cost = 10, settle = cost)]
fn result(text: &str) -> Result<Answer, Problem> {
    if text.is_empty() {
        return Err(Problem::Failed(1));
    }
    Ok(Answer { tokens: text.parse()? })
}

#[rate_limited(key = "result", limit = "100/1h", cost = 10, settle = cost)]
async fn result_later(text: String) -> Result<Answer, Problem> {
    tokio::task::yield_now().await;
    if text.is_empty() {
        return Err(Problem::Failed(1));
    }
    Ok(Answer { tokens: text.parse()? })
}

/// The reference to a `String` becomes one to a `str`.
#[rate_limited(key = "text", limit = "100/1h", settle = length, fallback = String::new())]
async fn text(word: &str) -> String {
    word.to_owned()
}

#[rate_limited(key = "unit", limit = "100/1h", settle = |()| 4, fallback = ())]
fn unit() {}

#[rate_limited(key = "unit", limit = "100/1h", settle = |_| 4, fallback = ())]
async fn unit_later() -> () {}

#[rate_limited(key = "unit", limit = "100/1h", settle = costs::of_any, fallback = ())]
async fn unit_of_a_path() {
    if true {
        return;
    }
    tokio::task::yield_now().await;
}

#[rate_limited(key = "opaque", limit = "100/1h", settle = |shown| length(&shown.to_string()), fallback = 0)]
fn opaque() -> impl Display {
    1234
}

#[rate_limited(key = "opaque", limit = "100/1h", settle = |shown| length(&shown.to_string()), fallback = 0)]
async fn opaque_later(number: u32) -> impl Display {
    if number == 1 {
        return 1;
    }
    tokio::task::yield_now().await;
    number
}

#[rate_limited(key = "opaque", limit = "100/1h", settle = |shown| shown.as_ref().map_or(9, |shown| *shown))]
async fn opaque_result(text: &str) -> Result<impl Display + use<>, Problem> {
    let number: u32 = text.parse()?;
    if number == 0 {
        return Err(Problem::Failed(0));
    }
    Ok(number)
}

#[rate_limited(key = "opaque", limit = "100/1h", settle = |shown| shown.as_ref().map_or(9, Vec::len) as u32)]
fn opaque_parts<'a>(text: &'a str) -> Result<Vec<impl Display + use<'a>>, Problem> {
    let _: u32 = text.parse()?;
    Ok(text.split('0').collect())
}

#[rate_limited(key = "generic", limit = "100/1h", settle = |values| values.len() as u32, fallback = Vec::new())]
async fn generic<T: Clone, const N: usize>(value: &T) -> Vec<T> {
    tokio::task::yield_now().await;
    vec![value.clone(); N]
}

#[rate_limited(key = "lifetimes", limit = "100/1h", settle = |word| length(word), fallback = "")]
async fn lends<'a>(text: &'a mut String, by: &str) -> &'a str {
    text.push_str(by);
    text
}

#[rate_limited(key = "lifetimes", limit = "100/1h", settle = |word| length(word), fallback = panic!())]
fn lends_mut(text: &mut String) -> &mut str {
    text.push('!');
    text
}

#[rate_limited(key = "unsized", limit = "100/1h", settle = |shown| length(&shown.to_string()), fallback = Box::new(""))]
async fn coerces(small: bool) -> Box<dyn Display> {
    if small {
        return Box::new(1_u8);
    }
    Box::new("large")
}

/// The closure gets arguments that the body does not consume.
#[rate_limited(key = "arguments", limit = "100/1h", settle = |_| extra + text.len() as u32, fallback = 0)]
fn arguments((extra, _): (u32, u32), text: &str) -> usize {
    text.len()
}

#[rate_limited(key = "arguments", limit = "100/1h", settle = move |sum| sum + extra + text.len() as u32, fallback = sum_of)]
async fn arguments_later((extra, _): (u32, u32), text: &str, mut sum: u32) -> u32 {
    sum += extra;
    sum
}

async fn sum_of(_: (u32, u32), _: &str, sum: u32) -> u32 {
    sum
}

struct Model(u32);

#[rate_limited(key = "methods", limit = "1000/1h", cost = 2, settle = |answer| answer.tokens(), fallback = Answer::new(0))]
impl Model {
    fn shared(&self) -> Answer {
        Answer { tokens: self.0 }
    }

    async fn exclusive(&mut self, add: u32) -> Answer {
        self.0 += add;
        tokio::task::yield_now().await;
        Answer { tokens: self.0 }
    }

    async fn owned(self) -> Answer {
        Answer { tokens: self.0 }
    }

    #[rate_limited(key = "own", limit = "100/1h", settle = |()| 1, fallback = ())]
    fn own(&self) {}

    #[rate_limited(skip)]
    fn new() -> Self {
        Self(5)
    }
}

#[rate_limited(key = "boxed", limit = "100/1h", settle = |answer| answer.tokens, fallback = Answer { tokens: 0 })]
fn boxed(tokens: &u32) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>> {
    Box::pin(async move {
        if *tokens == 0 {
            return Answer { tokens: 1 };
        }
        Answer { tokens: *tokens }
    })
}

#[async_trait]
trait Ask {
    async fn ask(&self, (tokens, _): (u32, u32)) -> Result<Answer, Problem>;
}

#[async_trait]
impl Ask for Model {
    #[rate_limited(key = "ask", limit = "100/1h", settle = cost)]
    async fn ask(&self, (tokens, _): (u32, u32)) -> Result<Answer, Problem> {
        if tokens == 0 {
            Err(Problem::Failed(2))?;
        }
        Ok(Answer { tokens: tokens + self.0 })
    }
}

#[rate_limited(key = "user:{id}", name = "user", limit = "100/1h", settle = |answer| answer.as_ref().map_or(0, Answer::tokens))]
#[rate_limited(key = "calls", limit = "100/1h")]
#[rate_limited(key = "bytes", limit = "100/1h", cost = size, settle = |_| size, when = size > 0)]
async fn several(id: u32, size: u32) -> Result<Answer, Denied> {
    Ok(Answer { tokens: id })
}

#[rate_limited(key = "permit", limit = "100/1h", settle = |answer| answer.as_ref().map_or(1, |_| 2), permit = permit)]
async fn with_permit() -> Result<Permit, Problem> {
    tokio::task::yield_now().await;
    Ok(permit)
}

#[rate_limited(key = "all", limit = "100/1h", cost = 0, settle = cost, permit = _permit, wait = "1ms", on_error = raise,
    recover = |error| if error == Problem::Failed(7) { Ok(Answer { tokens: 0 }) } else { Err(error) })]
fn everything(text: &str) -> Result<Answer, Failure> {
    Ok(Answer { tokens: text.parse()? })
}

type Failure = Problem;

impl From<rate_limited::Error> for Problem {
    fn from(_: rate_limited::Error) -> Self {
        Self::Busy
    }
}

#[rate_limited("configured {id}", cost = 0, settle = |id| *id, fallback = 0)]
fn configured(id: u32) -> u32 {
    id
}

#[rate_limited(key = "send", limit = "100/1h", settle = |number| *number, fallback = 0)]
async fn stays_send(cell: Cell<u32>) -> u32 {
    tokio::task::yield_now().await;
    cell.get()
}

macro_rules! function {
    ($name:ident, $settle:expr) => {
        #[rate_limited(key = "macro", limit = "100/1h", settle = $settle, fallback = 0)]
        fn $name() -> u32 {
            5
        }
    };
}

function!(from_macro, |number| *number);

fn sent<T: Send>(value: T) -> T {
    value
}

fn check_sync() {
    assert_eq!(value(3), Answer { tokens: 3 });
    assert_eq!(result("8"), Ok(Answer { tokens: 8 }));
    assert_eq!((result(""), result("x")), (Err(Problem::Failed(1)), Err(Problem::Failed(7))));
    unit();
    assert_eq!(opaque().to_string(), "1234");
    assert_eq!(opaque_parts("102").map(|parts| parts.len()), Ok(2));
    assert_eq!(lends_mut(&mut "a".to_owned()), "a!");
    assert_eq!(arguments((1, 2), "abc"), 3);
    assert_eq!(Model::new().shared(), Answer { tokens: 5 });
    Model::new().own();
    assert_eq!((everything("5"), everything("x")), (Ok(Answer { tokens: 5 }), Ok(Answer { tokens: 0 })));
    assert_eq!((configured(3), from_macro()), (3, 5));
}

async fn check() {
    check_sync();
    assert_eq!(of_a_method(4).await, Answer { tokens: 4 });
    assert_eq!(result_later("9".to_owned()).await, Ok(Answer { tokens: 9 }));
    assert_eq!(result_later(String::new()).await, Err(Problem::Failed(1)));
    assert_eq!(text("word").await, "word");
    unit_later().await;
    unit_of_a_path().await;
    assert_eq!((opaque_later(1).await.to_string(), opaque_later(22).await.to_string()), ("1".into(), "22".into()));
    assert_eq!(opaque_result("7").await.map(|shown| shown.to_string()), Ok("7".to_owned()));
    assert!(opaque_result("x").await.is_err());
    assert_eq!(generic::<_, 3>(&'x').await, ['x'; 3]);
    assert_eq!(lends(&mut "a".to_owned(), "b").await, "ab");
    assert_eq!((coerces(true).await.to_string(), coerces(false).await.to_string()), ("1".into(), "large".into()));
    assert_eq!(arguments_later((1, 2), "abc", 4).await, 5);
    assert_eq!(Model::new().exclusive(2).await, Answer { tokens: 7 });
    assert_eq!(Model::new().owned().await, Answer { tokens: 5 });
    assert_eq!((boxed(&0).await, boxed(&6).await), (Answer { tokens: 1 }, Answer { tokens: 6 }));
    assert_eq!(Model::new().ask((1, 1)).await, Ok(Answer { tokens: 6 }));
    assert_eq!(Model::new().ask((0, 1)).await, Err(Problem::Failed(2)));
    assert_eq!(several(1, 2).await.ok(), Some(Answer { tokens: 1 }));
    assert_eq!(with_permit().await.map(|permit| permit.name().to_owned()), Ok("permit".to_owned()));
    assert_eq!(sent(stays_send(Cell::new(3))).await, 3);
}

#[tokio::main]
async fn main() {
    Limiter::memory().scope(check()).await;
}
