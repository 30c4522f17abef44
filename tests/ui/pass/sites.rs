//! The list of all annotated functions: each kind of function is in it once, whether it is called or not.

#![forbid(unsafe_code)]
#![deny(warnings, rust_2018_idioms, unused, unused_qualifications, unused_results, trivial_casts, clippy::all)]
#![allow(unused_crate_dependencies, dead_code, clippy::disallowed_names)]

use std::fmt::Display;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use rate_limited::{Algorithm, Denied, Key, Limit, Limiter, rate_limited, sites};

/// Rule, function, key and limits of each site, in the order of the file.
const EXPECTED: &[(&str, &str, Option<&str>, &[&str])] = &[
    ("sync", "sync", Some("sync"), &["5/10s"]),
    ("user", "later", Some("user:{id}"), &["5/10s"]),
    ("generic", "generic", None, &["100/min", "limit.with_algorithm(Algorithm::FixedWindow)"]),
    ("array", "array", Some("array"), &["N_PERMITS * 2/settings()"]),
    ("first", "several", Some("first"), &["1/s"]),
    ("second", "several", Some("second"), &["2/s"]),
    ("third", "several", Some("third"), &["configured"]),
    ("getId", "text_alone", Some("getId"), &["configured"]),
    ("permit", "with_permit", Some("permit"), &["5/s"]),
    ("recover", "recovers", Some("recover"), &["5/s"]),
    ("boxed", "boxed", Some("boxed"), &["5/s"]),
    ("future", "future", Some("future"), &["5/s"]),
    ("extern", "called_from_c", Some("extern"), &["5/s"]),
    ("outer", "outer", Some("outer"), &["5/s"]),
    ("inner", "outer::inner", Some("inner"), &["5/s"]),
    ("innermost", "outer::{{closure}}::outer", Some("innermost"), &["5/s"]),
    ("raw", "r#try", Some("raw"), &["5/s"]),
    ("private", "private::deeper::function", Some("private"), &["5/s"]),
    ("by value", "private::<impl Orders>::by_value", Some("by value"), &["5/s"]),
    ("macro", "from_macro", Some("macro"), &["5/s"]),
    ("by reference", "Orders::find", Some("by reference"), &["5/s"]),
    ("of the type", "Orders::create", Some("of the type"), &["5/s"]),
    ("of a generic type", "Shelf<_>::take", Some("of a generic type"), &["5/s"]),
    ("provided", "Find::provided", Some("provided"), &["5/s"]),
    ("of a trait", "<Orders as Find>::required", Some("of a trait"), &["5/s"]),
    ("of a foreign type", "<[u8] as Find>::required", Some("of a foreign type"), &["5/s"]),
    ("async trait", "<Orders as FindLater>::find_later", Some("async trait"), &["5/s"]),
    ("provided later", "ProvideLater::provided_later", Some("provided later"), &["5/s"]),
    ("block", "Mailer::send", Some("block"), &["5/s"]),
    ("block", "Mailer::verify", Some("block"), &["5/s"]),
    ("own", "Mailer::purge", Some("own"), &["5/s"]),
];

#[rate_limited(key = "sync", window = "10s", max = 5, fallback = ())]
fn sync() {}

#[rate_limited(key = "user:{id}", name = "user", limit = "5/10s")]
async fn later(id: u64) -> Result<u64, Denied> {
    Ok(id)
}

#[rate_limited(key = Key::new("generic").part(value), name = "generic",
    limits = ["100/min", limit.with_algorithm(Algorithm::FixedWindow)], fallback = 0)]
fn generic<T: Display + Copy>(value: T, limit: Limit) -> usize {
    size_of::<T>()
}

const N_PERMITS: u32 = 5;

/// Never called, so never instantiated.
#[rate_limited(key = "array", max = N_PERMITS * 2, window = settings(), fallback = ())]
#[inline]
async fn array<const N: usize>(_array: [u8; N]) {}

fn settings() -> Duration {
    Duration::from_secs(1)
}

#[rate_limited(key = "first", limit = "1/s", fallback = ())]
#[rate_limited(key = "second", limit = "2/s", fallback = ())]
#[rate_limited(key = "third", limit = configured, fallback = ())]
fn several() {}

#[rate_limited("getId", fallback = ())]
#[track_caller]
fn text_alone() {}

#[rate_limited(key = "permit", limit = "5/s", permit = allowed, fallback = 0)]
fn with_permit() -> u32 {
    allowed.remaining()
}

#[rate_limited(key = "recover", limit = "5/s", recover = Err(error))]
async fn recovers() -> Result<(), Denied> {
    Ok(())
}

#[rate_limited(key = "boxed", limit = "5/s", fallback = 0)]
fn boxed<'a>(id: &'a str) -> Pin<Box<dyn Future<Output = usize> + Send + 'a>> {
    Box::pin(async move { id.len() })
}

#[rate_limited(key = "future", limit = "5/s", fallback = 0)]
fn future(id: u64) -> impl Future<Output = u64> {
    async move { id }
}

#[rate_limited(key = "extern", limit = "5/s", fallback = 0)]
extern "C" fn called_from_c() -> u8 {
    1
}

#[rate_limited(key = "outer", limit = "5/s", fallback = 0)]
fn outer() -> u64 {
    #[rate_limited(key = "inner", limit = "5/s", fallback = 1)]
    fn inner() -> u64 {
        2
    }
    let in_closure = || {
        #[rate_limited(key = "innermost", limit = "5/s", fallback = 3)]
        fn outer() -> u64 {
            4
        }
        outer()
    };
    inner() + in_closure()
}

#[rate_limited(key = "raw", limit = "5/s", fallback = ())]
fn r#try() {}

mod private {
    use rate_limited::rate_limited;

    mod deeper {
        #[rate_limited::rate_limited(key = "private", limit = "5/s", fallback = ())]
        fn function() {}
    }

    impl super::Orders {
        #[rate_limited(key = "by value", limit = "5/s", fallback = ())]
        fn by_value(self) {}
    }
}

macro_rules! function {
    ($name:ident) => {
        #[rate_limited(key = "macro", limit = "5/s", fallback = ())]
        fn $name() {}
    };
}

function!(from_macro);

struct Orders;

impl Orders {
    #[rate_limited(key = "by reference", limit = "5/s", fallback = 0)]
    fn find(&self, id: impl Into<u64>) -> u64 {
        id.into()
    }

    #[rate_limited(key = "of the type", limit = "5/s", fallback = Self)]
    fn create() -> Self {
        Self
    }
}

struct Shelf<T>(Option<T>);

impl<T: Clone> Shelf<T> {
    #[rate_limited(key = "of a generic type", limit = "5/s", fallback = None)]
    async fn take(&mut self) -> Option<T>
    where
        T: Send,
    {
        self.0.take()
    }
}

trait Find {
    #[rate_limited(key = "provided", limit = "5/s", fallback = 0)]
    fn provided(&self) -> u64 {
        self.required()
    }

    fn required(&self) -> u64;
}

impl Find for Orders {
    #[rate_limited(key = "of a trait", limit = "5/s", fallback = 0)]
    fn required(&self) -> u64 {
        1
    }
}

impl Find for [u8] {
    #[rate_limited(key = "of a foreign type", limit = "5/s", fallback = 0)]
    fn required(&self) -> u64 {
        2
    }
}

#[async_trait]
trait FindLater {
    async fn find_later(&self, (id, _): (u64, u64)) -> u64;
}

#[async_trait]
impl FindLater for Orders {
    #[rate_limited(key = "async trait", limit = "5/s", fallback = 0)]
    async fn find_later(&self, (id, _): (u64, u64)) -> u64 {
        id
    }
}

#[async_trait]
trait ProvideLater {
    #[rate_limited(key = "provided later", limit = "5/s", fallback = 0)]
    async fn provided_later(&self) -> u64 {
        3
    }
}

struct Mailer;

#[rate_limited(key = "block", limit = "5/s", fallback = ())]
impl Mailer {
    async fn send(&self, _to: &str) {}

    fn verify(&self) {}

    #[rate_limited(key = "own", limit = "5/s", fallback = ())]
    fn purge(&self) {}

    #[rate_limited(skip)]
    fn new() -> Self {
        Self
    }
}

fn main() {
    Limiter::memory().scope_sync(|| {
        let limit = "5/s".parse().expect("is a limit");
        assert_eq!((generic(1_u8, limit), generic(1_u16, limit), generic(1_u32, limit)), (1, 2, 4));
        assert_eq!(outer(), 6);
    });

    let sites = sites();
    let module = concat!(module_path!(), "::");
    for (site, &(rule, function, key, limits)) in sites.iter().zip(EXPECTED) {
        assert_eq!((site.rule(), &*site.function().replace(module, "")), (rule, function));
        assert_eq!((site.key(), site.limits()), (key, limits), "{rule}");
    }
    assert_eq!(sites.len(), EXPECTED.len());

    let lines: Vec<&str> = include_str!("sites.rs").lines().collect();
    for site in &sites {
        assert!(site.file().ends_with("sites.rs"), "{site:?}");
        let line = lines[usize::try_from(site.line()).expect("a line") - 1].trim_start();
        let rule = if site.function().ends_with("::several") { "first" } else { site.rule() };
        let is_attribute = line.starts_with("#[rate_limited") && line.contains(&format!("\"{rule}\""))
            || line.starts_with("#[rate_limited(key = Key::new(\"generic\")");
        assert!(is_attribute || line == "function!(from_macro);", "{site:?}: {line}");
    }
}
