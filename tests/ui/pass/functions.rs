//! Each kind of function: the first call runs, and later ones get the fallback.

use std::fmt::{Debug, Display};

use rate_limited::{Denied, Error, Limiter, rate_limited};

#[rate_limited(key = "plain", limit = "1/1h", fallback = "denied")]
fn plain() -> &'static str {
    "ran"
}

#[rate_limited(key = "unit", limit = "1/1h", fallback = *log += 10)]
fn unit(log: &mut u32) {
    *log += 1;
}

#[rate_limited(key = "async unit", limit = "1/1h", fallback = *log += 10)]
async fn async_unit(log: &mut u32) {
    tokio::task::yield_now().await;
    *log += 1;
}

#[rate_limited(key = "never", limit = "1/1h", fallback = panic!("denied"))]
fn never() -> ! {
    panic!("ran")
}

#[rate_limited(key = "async never", limit = "1/1h", fallback = panic!("denied"))]
async fn async_never() -> ! {
    panic!("ran")
}

#[rate_limited(key = "generic {id}", limit = "1/1h", fallback = generic_denied)]
async fn generic<T: Display, const N: usize>(id: T, bytes: [u8; N]) -> String
where
    T: Clone + Send,
{
    format!("ran {} {}", id.clone(), bytes.len())
}

async fn generic_denied<T: Display, const N: usize>(id: T, _bytes: [u8; N]) -> String {
    format!("denied {id} {N}")
}

#[rate_limited(key = "lifetimes", limit = "1/1h", fallback = second)]
fn lifetimes<'a, 'b: 'a>(first: &'a str, second: &'b str) -> &'a str {
    if second.is_empty() { second } else { first }
}

#[rate_limited(key = "elided", limit = "1/1h", fallback = elided_denied)]
async fn elided(text: &str) -> Option<&str> {
    text.split('-').next()
}

fn elided_denied(text: &str) -> Option<&str> {
    text.split('-').nth(1)
}

#[rate_limited(key = "impl trait", limit = "1/1h", fallback = vec![0].into_iter())]
fn impl_trait(values: impl IntoIterator<Item = u64> + Debug) -> impl Iterator<Item = u64> {
    values.into_iter().collect::<Vec<_>>().into_iter()
}

#[derive(Debug, PartialEq)]
enum Busy {
    Denied,
    Failed,
}

impl From<Denied> for Busy {
    fn from(_: Denied) -> Self {
        Self::Denied
    }
}

impl From<Error> for Busy {
    fn from(_: Error) -> Self {
        Self::Failed
    }
}

#[rate_limited(key = "impl trait in a result", limit = "1/1h")]
fn impl_trait_in_result(text: &str) -> Result<impl Iterator<Item = u64> + use<>, Busy> {
    let number = text.len().try_into().map_err(|_| Busy::Failed)?;
    Ok(std::iter::once(number))
}

#[rate_limited(key = "async impl trait in a result", limit = "1/1h", on_error = raise)]
async fn async_impl_trait_in_result(id: u64) -> Result<(impl Display + Send, u64), Busy> {
    if id == 0 {
        return Err(Busy::Failed);
    }
    Ok((format!("ran {id}"), id))
}

#[rate_limited(key = "boxed", limit = "1/1h", fallback = |denied| Box::new(denied.to_string()))]
fn boxed(text: &str) -> Box<dyn Display + '_> {
    Box::new(text)
}

#[rate_limited(key = "{a}:{b}:{c}", limit = "1/1h", fallback = a + b + c)]
fn patterns((a, b): (u64, u64), [c, ..]: [u64; 2], _: u64) -> u64 {
    a * b * c
}

#[rate_limited(key = "not safe", limit = "1/1h", fallback = 0)]
unsafe fn not_safe(value: *const u64) -> u64 {
    unsafe { *value }
}

#[rate_limited(key = "early", limit = "1/1h", fallback = Some(0))]
async fn early(text: &str) -> Option<u64> {
    let number = text.parse::<u64>().ok()?;
    if number > 5 {
        return None;
    }
    Some(number)
}

#[rate_limited(key = "recursive {depth}", limit = "1/1h", fallback = 100)]
fn recursive(depth: u32) -> u32 {
    if depth == 0 { 0 } else { 1 + recursive(depth - 1) }
}

#[rate_limited(key = "with items", limit = "1/1h", fallback = 0)]
fn with_items() -> u64 {
    #![allow(dead_code)]
    const ONE: u64 = 1;
    fn unused() {}
    #[rate_limited(key = "inner", limit = "1/1h", fallback = 0)]
    fn inner() -> u64 {
        ONE
    }
    inner() + ONE
}

macro_rules! limited {
    ($name:ident, $argument:ident, $max:literal, $key:expr, $fallback:expr) => {
        #[rate_limited(key = "{OWN}:{x}", name = $key, max = $max, window = "1h", fallback = $fallback)]
        fn $name($argument: u64, x: u64) -> u64 {
            $argument + x
        }
    };
}

mod macros {
    use rate_limited::rate_limited;

    const OWN: &str = "own";

    limited!(made, id, 1, "made", id + 100);
    limited!(made_too, id, 1, "made too", passed);

    fn passed(id: u64, x: u64) -> u64 {
        id + x + 1000
    }

    pub fn check() {
        assert_eq!((made(1, 2), made(1, 2)), (3, 101));
        assert_eq!((made_too(1, 3), made_too(1, 3)), (4, 1004));
    }
}

mod visible {
    use rate_limited::rate_limited;

    #[rate_limited(key = "foreign", limit = "1/1h", fallback = 0)]
    pub(in crate::visible) extern "C" fn foreign(mut value: u64) -> u64 {
        value += 1;
        value
    }

    pub fn check() {
        assert_eq!((foreign(1), foreign(1)), (2, 0));
    }
}

fn panics(run: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(run).expect_err("panics");
    (*panic.downcast::<&str>().expect("a message")).to_owned()
}

fn check_sync() {
    assert_eq!((plain(), plain()), ("ran", "denied"));
    let mut log = 0;
    unit(&mut log);
    unit(&mut log);
    assert_eq!(log, 11);
    assert_eq!((panics(|| never()), panics(|| never())), ("ran".to_owned(), "denied".to_owned()));
    assert_eq!((lifetimes("a", "b"), lifetimes("a", "b")), ("a", "b"));
    assert_eq!(impl_trait([1, 2]).chain(impl_trait([3])).collect::<Vec<_>>(), [1, 2, 0]);
    assert_eq!(impl_trait_in_result("four").map(Iterator::collect::<Vec<_>>), Ok(vec![4]));
    assert_eq!(impl_trait_in_result("four").map(Iterator::collect::<Vec<_>>), Err(Busy::Denied));
    assert_eq!(boxed("ran").to_string(), "ran");
    assert_ne!(boxed("ran").to_string(), "ran");
    assert_eq!((patterns((2, 3), [4, 0], 0), patterns((2, 3), [4, 0], 0)), (24, 9));
    assert_eq!(unsafe { (not_safe(&7), not_safe(&7)) }, (7, 0));
    assert_eq!((recursive(3), recursive(3), recursive(4)), (3, 100, 101));
    assert_eq!((with_items(), with_items()), (2, 0));
    visible::check();
    macros::check();
}

async fn check_async() {
    let mut log = 0;
    async_unit(&mut log).await;
    async_unit(&mut log).await;
    assert_eq!(log, 11);
    for expected in ["ran 7 3", "denied 7 3"] {
        assert_eq!(generic(7, [0; 3]).await, expected);
    }
    assert_eq!(generic("seven", [0; 0]).await, "ran seven 0");
    assert_eq!((elided("a-b").await, elided("a-b").await), (Some("a"), Some("b")));
    let of_impl_trait = async |id| async_impl_trait_in_result(id).await.map(|(text, id)| (text.to_string(), id));
    assert_eq!(of_impl_trait(0).await, Err(Busy::Failed));
    assert_eq!(of_impl_trait(7).await, Err(Busy::Denied));
    assert_eq!(Limiter::memory().scope(of_impl_trait(7)).await, Ok(("ran 7".to_owned(), 7)));
    assert_eq!((early("x").await, early("x").await), (None, Some(0)));
    for expected in ["ran", "denied"] {
        let limiter = Limiter::current();
        let panic = tokio::spawn(async move { limiter.scope(async { async_never().await }).await });
        let panic = panic.await.expect_err("panics").into_panic();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&expected));
    }
}

#[tokio::main]
async fn main() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| match panic.payload().downcast_ref::<&str>() {
        Some(&("ran" | "denied")) => {}
        _ => report(panic),
    }));
    Limiter::memory().scope_sync(check_sync);
    Limiter::memory().scope(check_async()).await;
}
