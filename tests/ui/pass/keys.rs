//! Forms of keys and limits: calls with equal keys share a counter.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use rate_limited::{Key, Limit, Limiter, rate_limited};

const REGION: &str = "eu";
static ZONE: u8 = 1;
const MAX: u32 = 1;

struct User {
    id: u64,
    name: String,
}

impl User {
    fn parts(&self) -> Vec<&str> {
        self.name.split(' ').collect()
    }
}

#[derive(Clone)]
struct Shown(String);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[rate_limited(key = "user:{user.id}/{user.name}/{user.parts()[0].len()}", limit = "1/1h", fallback = false)]
fn fields(user: &User) -> bool {
    user.id > 0
}

#[rate_limited(key = "{{{a}}}:{b}", limit = "1/1h", fallback = false)]
fn escaped(a: &str, b: &str) -> bool {
    a != b
}

#[rate_limited(key = "{a}{b}", limit = "1/1h", fallback = false)]
fn adjacent(a: &str, b: &str) -> bool {
    a != b
}

#[rate_limited(key = "{REGION}-{ZONE}/{id}!", limit = "1/1h", fallback = false)]
fn constants(id: u64) -> bool {
    id > 0
}

#[rate_limited(key = "{REGION}/{REGION}/{id:02x}/{N}", limit = "1/1h", fallback = false)]
fn constants_again<const N: usize>(id: u64) -> bool {
    id > 0
}

#[rate_limited(key = "{N}", limit = "1/1h", fallback = false)]
fn const_generic<const N: usize>() -> bool {
    N > 0
}

#[rate_limited(key = "{id:?}/{id:>width$}/{if id == 1 { \"one\" } else { \"two\" }}", limit = "1/1h", fallback = false)]
fn formatted(id: u64, width: usize) -> bool {
    width > 0 && id > 0
}

#[rate_limited(key = r#"{map["a}:"]}/{r#type}"#, limit = "1/1h", fallback = false)]
fn literals_inside(map: &std::collections::HashMap<&str, u64>, r#type: char) -> bool {
    map.len() == 1 && r#type.is_alphabetic()
}

#[rate_limited(key = Key::new("user:").part(id), name = "user", limit = "1/1h", fallback = false)]
fn key(id: u64) -> bool {
    id > 0
}

#[rate_limited(key = key, name = "a key", limit = "1/1h", fallback = false)]
fn borrowed_key(key: &Key) -> bool {
    format!("{key:?}").starts_with("Key")
}

#[rate_limited(key = shown, name = "shown", limit = "1/1h", fallback = false)]
fn displayed(shown: Shown) -> bool {
    !shown.0.is_empty()
}

#[rate_limited(key = *text, name = "text", limit = "1/1h", fallback = false)]
fn not_sized(text: &str) -> bool {
    !text.is_empty()
}

#[rate_limited(key = "k", max = MAX, window = "1h", fallback = false)]
fn max_expression() -> bool {
    true
}

#[rate_limited(key = "k", max = 1, window = Duration::from_secs(60 * minutes), fallback = false)]
fn window_expression(minutes: u64) -> bool {
    minutes > 0
}

#[rate_limited(key = "k", max = limit.max(), window = limit.window(), fallback = false)]
fn both_expressions(limit: Limit) -> bool {
    limit.max() > 0
}

#[rate_limited(key = "k", limit = limit, fallback = false)]
fn limit_expression(limit: Limit) -> bool {
    limit.max() > 0
}

#[rate_limited(key = "k", limit = limits[0], fallback = false)]
fn borrowed_limit(limits: &[Limit]) -> bool {
    !limits.is_empty()
}

thread_local! {
    static EVALUATED: Cell<u32> = const { Cell::new(0) };
}

#[rate_limited(
    key = "evaluated {EVALUATED.with(|count| count.replace(count.get() + 1))}",
    limit = "1/1h",
    fallback = false
)]
fn evaluated_once() -> bool {
    true
}

/// The first call runs, the second does not.
fn once(mut call: impl FnMut() -> bool) {
    Limiter::memory().scope_sync(|| assert_eq!((call(), call()), (true, false)));
}

fn main() {
    let user = |id, name: &str| User { id, name: name.to_owned() };
    once(|| fields(&user(1, "a b")));
    once(|| escaped("a", "b"));
    once(|| adjacent("a", "b"));
    once(|| constants(1));
    once(|| constants_again::<3>(1));
    once(const_generic::<3>);
    once(|| formatted(1, 9));
    once(|| literals_inside(&[("a}:", 1)].into(), 'a'));
    once(|| key(1));
    once(|| borrowed_key(&Key::new("k")));
    once(|| displayed(Shown("s".to_owned())));
    once(|| not_sized("text"));
    once(max_expression);
    once(|| window_expression(1));
    let limit: Limit = "1/1h".parse().expect("is a limit");
    once(|| both_expressions(limit));
    once(|| limit_expression(limit));
    once(|| borrowed_limit(&[limit]));

    Limiter::memory().scope_sync(|| {
        assert!(fields(&user(1, "a b")) && fields(&user(2, "a b")) && fields(&user(1, "ab ")));
        assert!(escaped("a", "b") && escaped("a}:b", "") && escaped("", "a}:b"));
        assert!(adjacent("a", "bc") && adjacent("ab", "c") && adjacent("abc", ""));
        assert!(const_generic::<1>() && const_generic::<11>());
        assert!(evaluated_once() && evaluated_once(), "each call has another key");
        assert_eq!(EVALUATED.get(), 2);
    });
}
