//! `recover` replaces errors of the body, and nothing else.

use std::cell::{Cell, RefCell};

use rate_limited::{Denied, Limiter, rate_limited};

#[derive(Debug, PartialEq)]
enum Problem {
    Busy,
    Number(String),
    Other,
}

impl From<Denied> for Problem {
    fn from(_: Denied) -> Self {
        Self::Busy
    }
}

impl From<std::num::ParseIntError> for Problem {
    fn from(error: std::num::ParseIntError) -> Self {
        Self::Number(error.to_string())
    }
}

fn zero(error: Problem) -> Result<u64, Problem> {
    if matches!(error, Problem::Number(_)) { Ok(0) } else { Err(error) }
}

async fn zero_later(error: Problem) -> Result<u64, Problem> {
    tokio::task::yield_now().await;
    zero(error)
}

#[rate_limited(key = "a{text}", limit = "1/1h", recover = zero)]
fn sync(text: &str) -> Result<u64, Problem> {
    for word in text.split(' ') {
        match word {
            "none" => continue,
            "other" => return Err(Problem::Other),
            "early" => return Ok(1),
            _ => return Ok(word.parse::<u64>()?),
        }
    }
    Err(Problem::Other)
}

#[rate_limited(key = "a{text}", limit = "1/1h", recover = zero_later)]
async fn function_of_a_future(text: String) -> Result<u64, Problem> {
    tokio::task::yield_now().await;
    if text == "other" {
        return Err(Problem::Other);
    }
    Ok(text.parse::<u64>()?)
}

#[rate_limited(key = "closure", limit = "9/1h", recover = |error| match error {
    Problem::Number(text) => Ok(text.len() as u64),
    other => Err(other),
})]
async fn closure(text: &str) -> Result<u64, Problem> {
    Ok(text.parse()?)
}

#[rate_limited(key = "expression", limit = "9/1h", recover = if error == Problem::Other { Ok(number) } else { zero_later(error).await })]
async fn expression(number: u64) -> Result<u64, Problem> {
    if number < 10 { Err(Problem::Other) } else { Err(Problem::Busy) }
}

#[rate_limited(key = "expression", limit = "9/1h", recover = Ok(text.len() as u64 + u64::from(error != Problem::Other)))]
fn arguments_in_scope(text: String) -> Result<u64, Problem> {
    Ok(text.parse()?)
}

#[rate_limited(key = "unsized", limit = "9/1h", recover = Ok(Box::new("recovered")))]
async fn coerces(text: &str) -> Result<Box<dyn std::fmt::Display>, Problem> {
    let number: u64 = text.parse()?;
    if number > 5 {
        return Ok(Box::new(number));
    }
    Ok(Box::new("small"))
}

#[rate_limited(key = "lifetimes", limit = "9/1h", recover = Err(error))]
async fn lends<'a>(text: &'a mut String, by: &str) -> Result<&'a mut str, Problem> {
    let at: usize = by.parse()?;
    if at == 0 {
        return Ok(text);
    }
    Ok(&mut text[at..])
}

#[rate_limited(key = "lifetimes", limit = "9/1h", recover = |error| Err(error))]
fn lends_sync(text: &mut String) -> Result<&mut str, Problem> {
    let at: usize = text.parse()?;
    if at > text.len() { Ok(text) } else { Ok(&mut text[at..]) }
}

struct Counter(u64);

impl Counter {
    #[rate_limited(key = "method", limit = "9/1h", recover = self.recovered(error))]
    fn shared(&self, add: u64) -> Result<u64, Problem> {
        if add == 0 { Err(Problem::Other) } else { Ok(self.0 + add) }
    }

    fn recovered(&self, error: Problem) -> Result<u64, Problem> {
        assert_eq!(error, Problem::Other);
        Ok(self.0)
    }

    #[rate_limited(key = "method", limit = "9/1h", recover = zero)]
    async fn exclusive(&mut self, text: &str) -> Result<u64, Problem> {
        self.0 += 1;
        self.0 += text.parse::<u64>()?;
        tokio::task::yield_now().await;
        Ok(self.0)
    }

    #[rate_limited(key = "method", limit = "9/1h", recover = |error| Err(error))]
    async fn owned<T: ToString>(mut self, add: T) -> Result<Self, Problem> {
        self.0 += add.to_string().parse::<u64>()?;
        Ok(self)
    }
}

#[rate_limited(key = "not safe", limit = "9/1h", recover = zero)]
unsafe fn not_safe(value: *const u64) -> Result<u64, Problem> {
    if value.is_null() { Err(Problem::Number(String::new())) } else { Ok(unsafe { *value }) }
}

#[rate_limited(key = "send", limit = "9/1h", recover = zero)]
async fn stays_send(cell: Cell<u64>, (a, mut b): (u64, u64)) -> Result<u64, Problem> {
    b += a;
    tokio::task::yield_now().await;
    cell.set(cell.get() + b);
    Ok(cell.get())
}

#[rate_limited(key = "denied", limit = "1/1h", fallback = Err(Problem::Busy), recover = |_| Ok(1))]
async fn a_denial_is_no_error_of_the_body() -> Result<u64, Problem> {
    Err(Problem::Other)
}

struct Loud<'a>(&'static str, &'a RefCell<Vec<&'static str>>);

impl Drop for Loud<'_> {
    fn drop(&mut self) {
        self.1.borrow_mut().push(self.0);
    }
}

type Log<'a> = &'a RefCell<Vec<&'static str>>;

async fn plain<'a>(
    _: Loud<'a>,
    b: Loud<'a>,
    (c, d): (Loud<'a>, Loud<'a>),
    keep: bool,
    log: Log<'a>,
) -> Result<(), Problem> {
    let _local = Loud("local", log);
    if !keep {
        drop(b);
    }
    let _ = (c.0, d.0);
    Err(Problem::Other)
}

#[rate_limited(key = "{keep}", limit = "9/1h", recover = Err(error))]
async fn limited<'a>(
    _: Loud<'a>,
    b: Loud<'a>,
    (c, d): (Loud<'a>, Loud<'a>),
    keep: bool,
    log: Log<'a>,
) -> Result<(), Problem> {
    let _local = Loud("local", log);
    if !keep {
        drop(b);
    }
    let _ = (c.0, d.0);
    Err(Problem::Other)
}

async fn drop_order() {
    for keep in [true, false] {
        let (expected, log) = (RefCell::default(), RefCell::default());
        let loud = |name, log| Loud(name, log);
        let pair = |log| (loud("c", log), loud("d", log));
        plain(loud("a", &expected), loud("b", &expected), pair(&expected), keep, &expected).await.unwrap_err();
        limited(loud("a", &log), loud("b", &log), pair(&log), keep, &log).await.unwrap_err();
        assert_eq!(log, expected);
    }
}

fn sent<T: Send>(value: T) -> T {
    value
}

async fn check() {
    assert_eq!(sync("7"), Ok(7));
    assert_eq!(sync("x"), Ok(0));
    assert_eq!(sync("none early"), Ok(1));
    assert_eq!(sync("none other"), Err(Problem::Other));
    assert_eq!(sync("x"), Err(Problem::Busy), "a denial is not recovered from");
    assert_eq!(function_of_a_future("8".to_owned()).await, Ok(8));
    assert_eq!(function_of_a_future("y".to_owned()).await, Ok(0));
    assert_eq!(function_of_a_future("other".to_owned()).await, Err(Problem::Other));
    assert_eq!(closure("x").await, Ok("invalid digit found in string".len() as u64));
    assert_eq!((expression(7).await, expression(10).await), (Ok(7), Err(Problem::Busy)));
    assert_eq!(arguments_in_scope("abc".to_owned()), Ok(4));
    assert_eq!(coerces("9").await.unwrap().to_string(), "9");
    assert_eq!(coerces("4").await.unwrap().to_string(), "small");
    assert_eq!(coerces("x").await.unwrap().to_string(), "recovered");
    assert_eq!(lends(&mut "abc".to_owned(), "1").await, Ok("bc".to_owned().as_mut_str()));
    assert!(lends(&mut "abc".to_owned(), "x").await.is_err());
    assert_eq!(lends_sync(&mut "1".to_owned()), Ok("".to_owned().as_mut_str()));

    let mut counter = Counter(1);
    assert_eq!((counter.shared(0), counter.shared(1)), (Ok(1), Ok(2)));
    assert_eq!((counter.exclusive("1").await, counter.exclusive("x").await), (Ok(3), Ok(0)));
    assert_eq!(counter.owned(3).await.unwrap().0, 7);
    assert_eq!(unsafe { (not_safe(&7), not_safe(std::ptr::null())) }, (Ok(7), Ok(0)));
    assert_eq!(sent(stays_send(Cell::new(1), (2, 3))).await, Ok(6));
    assert_eq!(a_denial_is_no_error_of_the_body().await, Ok(1));
    assert_eq!(a_denial_is_no_error_of_the_body().await, Err(Problem::Busy));
    drop_order().await;
}

#[tokio::main]
async fn main() {
    Limiter::memory().scope(check()).await;
}
