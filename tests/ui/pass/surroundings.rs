//! Names and lints around the function: neither affects the expansion, nor does the expansion affect them.

#![deny(warnings, rust_2018_idioms, unused, unused_qualifications, unused_results, single_use_lifetimes, trivial_casts)]
#![allow(unused_crate_dependencies)]

#[no_implicit_prelude]
mod without_prelude {
    #[::rate_limited::rate_limited(key = "{id}", max = 1, window = "1h", fallback = degraded, on_error = |_| degraded(id))]
    pub(crate) fn sync(id: u64) -> u64 {
        id
    }

    #[::rate_limited::rate_limited(key = "{id:?}", limit = "1/1h", fallback = degraded)]
    pub(crate) async fn later(id: u64) -> u64 {
        id
    }

    fn degraded(id: u64) -> u64 {
        id + 100
    }

    #[::rate_limited::rate_limited(key = "recovers {id}", limits = ["1/1h", "2/1d"], cost = 1, when = true, wait = "1ms",
        fallback = whole, recover = |error: u64| ::core::result::Result::Ok(error + 1))]
    pub(crate) async fn recovers((id, _): (u64, u64)) -> ::core::result::Result<u64, u64> {
        ::core::result::Result::Err(id)?
    }

    #[::rate_limited::rate_limited(key = "recovers sync {id}", limit = "1/1h", fallback = whole, recover = more)]
    pub(crate) fn recovers_sync((id, _): (u64, u64)) -> ::core::result::Result<u64, u64> {
        ::core::result::Result::Err(id)?
    }

    fn whole(pair: (u64, u64)) -> ::core::result::Result<u64, u64> {
        ::core::result::Result::Ok(pair.0 + 100)
    }

    fn more(error: u64) -> ::core::result::Result<u64, u64> {
        ::core::result::Result::Ok(error + 10)
    }

    pub(crate) struct Counted;

    #[::rate_limited::rate_limited(key = "counted", limit = "1/1h", fallback = 0)]
    impl Counted {
        pub(crate) fn count(&self) -> u64 {
            1
        }
    }
}

/// Names that the expansion uses, with other meanings.
#[allow(dead_code, non_camel_case_types, non_upper_case_globals)]
mod shadowed {
    pub(crate) mod core {}
    pub(crate) mod std {}
    pub(crate) struct Option;
    pub(crate) struct Result;
    pub(crate) struct Some;
    pub(crate) struct Key;
    pub(crate) struct Site;
    pub(crate) struct u32;
    pub(crate) static SITE: &str = "SITE";
    pub(crate) const site: i8 = 1;
    pub(crate) const key: i8 = 2;
    pub(crate) const limit: i8 = 3;
    pub(crate) const limiter: i8 = 4;
    pub(crate) const value: i8 = 5;
    pub(crate) const stopped: i8 = 6;
    pub(crate) const result: i8 = 7;
    pub(crate) const which: i8 = 8;
    pub(crate) const rules: i8 = 9;

    #[rate_limited::rate_limited(key = "{SITE}{site}", max = 1, window = "1h", fallback = site + key + limit + limiter,
        on_error = match error.kind() { _ => value + stopped })]
    pub(crate) fn constants() -> i8 {
        0
    }

    #[rate_limited::rate_limited(key = "items", max = one(), window = "1h", fallback = (SITE, denied.remaining()).0)]
    pub(crate) fn items() -> &'static str {
        "ran"
    }

    fn one() -> ::core::primitive::u32 {
        1
    }
}

#[rate_limited::rate_limited(key = "{key}", max = limit, window = "1h", limiter = limiter, fallback = format!("{site}{value}"))]
pub(crate) fn arguments(
    key: &str,
    limit: u32,
    limiter: &rate_limited::Limiter,
    site: u8,
    value: u8,
    denied: bool,
) -> String {
    format!("{key}{limit}{site}{value}{denied}{}", limiter.check_blocking(&rate_limited::Key::new(key), &LIMIT).is_ok())
}

static LIMIT: std::sync::LazyLock<rate_limited::Limit> =
    std::sync::LazyLock::new(|| "5/s".parse().expect("is a limit"));

mod renamed {
    pub(crate) mod nested {
        pub(crate) use rate_limited as limits;
    }

    #[rate_limited::rate_limited(key = "renamed", limit = "1/1h", fallback = 0, crate = crate::renamed::nested::limits)]
    pub(crate) fn function() -> u8 {
        1
    }
}

/// The documentation stays.
#[must_use]
#[inline]
#[track_caller]
#[deprecated = "old"]
#[rate_limited::rate_limited(key = "k", limit = "1/1h", fallback = 0)]
#[cold]
fn attributed(_unused: u8, #[allow(unused_variables)] id: u8) -> u8 {
    1
}

/// An argument that only the fallback needs is used.
#[rate_limited::rate_limited(key = "k", limit = "1/1h", fallback = with_everything)]
fn needs_nothing(id: u64, _name: &str) -> u64 {
    1
}

fn with_everything(id: u64, name: &str) -> u64 {
    id + u64::try_from(name.len()).unwrap_or(0)
}

struct Loud<'a>(&'a str, &'a std::cell::RefCell<Vec<String>>);

impl Drop for Loud<'_> {
    fn drop(&mut self) {
        self.1.borrow_mut().push(self.0.to_owned());
    }
}

fn plain<'a>(_: Loud<'a>, second: Loud<'a>, log: &'a std::cell::RefCell<Vec<String>>) -> usize {
    let _local = Loud("local", log);
    drop(second);
    Loud("temporary", log).0.len()
}

#[rate_limited::rate_limited(key = "k", limit = "1/1h", fallback = 0)]
fn limited<'a>(_: Loud<'a>, second: Loud<'a>, log: &'a std::cell::RefCell<Vec<String>>) -> usize {
    let _local = Loud("local", log);
    drop(second);
    Loud("temporary", log).0.len()
}

fn dropped(run: for<'a> fn(Loud<'a>, Loud<'a>, &'a std::cell::RefCell<Vec<String>>) -> usize) -> Vec<String> {
    let log = std::cell::RefCell::default();
    assert_eq!(run(Loud("first", &log), Loud("second", &log), &log), "temporary".len());
    log.into_inner()
}

#[rate_limited::rate_limited(key = "{text.lock().unwrap()}", limit = "1/1h", limiter = *limiter.lock().unwrap(), fallback = ())]
async fn stays_send(text: &std::sync::Mutex<String>, limiter: std::sync::Mutex<rate_limited::Limiter>) {
    drop(limiter);
    tokio::task::yield_now().await;
    text.lock().unwrap().push('!');
}

fn sent<T: Send>(value: T) -> T {
    value
}

#[tokio::main]
async fn main() {
    let limiter = rate_limited::Limiter::memory();
    limiter.scope_sync(|| {
        assert_eq!((without_prelude::sync(1), without_prelude::sync(1)), (1, 101));
        assert_eq!((without_prelude::recovers_sync((1, 2)), without_prelude::recovers_sync((1, 2))), (Ok(11), Ok(101)));
        assert_eq!((without_prelude::Counted.count(), without_prelude::Counted.count()), (1, 0));
        assert_eq!((shadowed::constants(), shadowed::constants()), (0, 10));
        assert_eq!((shadowed::items(), shadowed::items()), ("ran", "SITE"));
        let call = || arguments("a", 1, &limiter, 2, 3, true);
        assert_eq!((call(), call()), ("a123truetrue".to_owned(), "23".to_owned()));
        assert_eq!((renamed::function(), renamed::function()), (1, 0));
        #[expect(deprecated)]
        let attributed = (attributed(1, 2), attributed(1, 2));
        assert_eq!(attributed, (1, 0));
    });
    rate_limited::Limiter::memory().scope_sync(|| {
        assert_eq!((needs_nothing(7, "abc"), needs_nothing(7, "abc")), (1, 10));
    });
    rate_limited::Limiter::memory().scope_sync(|| assert_eq!(dropped(limited), dropped(plain)));
    let limiter = rate_limited::Limiter::memory();
    limiter
        .scope(async {
            assert_eq!((without_prelude::later(1).await, without_prelude::later(1).await), (1, 101));
            let recovers = || without_prelude::recovers((1, 2));
            assert_eq!((recovers().await, recovers().await), (Ok(2), Ok(101)));
            let text = std::sync::Mutex::new(String::new());
            sent(stays_send(&text, std::sync::Mutex::new(limiter.clone()))).await;
            assert_eq!(*text.lock().unwrap(), "!");
        })
        .await;
}
