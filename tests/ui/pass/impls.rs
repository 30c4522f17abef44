//! The attribute on an `impl` block: one quota for its methods, except those with an attribute of their own.

use rate_limited::{Denied, Limit, Limiter, rate_limited};

const LIMIT: &str = "two in a minute";

#[derive(Debug, PartialEq)]
struct Busy(&'static str);

impl From<Denied> for Busy {
    fn from(denied: Denied) -> Self {
        assert_eq!(denied.limit().max(), 2);
        Self("from")
    }
}

struct Service {
    limiter: Limiter,
    calls: u32,
}

#[rate_limited(key = "service", limit = "2/1m", limiter = self.limiter)]
impl Service {
    #![allow(dead_code)]

    const START: u32 = 100;

    /// Makes one.
    #[rate_limited(skip)]
    const fn new(limiter: Limiter) -> Self {
        Self { limiter, calls: Self::START }
    }

    #[must_use]
    fn shared(&self) -> Result<u32, Busy> {
        Ok(self.calls)
    }

    pub(crate) async fn exclusive<T: Into<u32>>(&mut self, add: T) -> Result<&mut u32, Busy> {
        self.calls += add.into();
        Ok(&mut self.calls)
    }

    #[rate_limited(key = "own", limit = "1/1m", fallback = 7)]
    fn own(&self) -> u32 {
        1
    }

    #[rate_limited::rate_limited(skip)]
    fn exempt(&self) -> u32 {
        2
    }
}

trait Store {
    type Key: std::fmt::Display;
    const NAME: &'static str;

    fn get(&self, key: &Self::Key) -> Option<u32>;
    async fn put(&mut self, key: Self::Key, value: u32) -> Option<u32>;
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

struct Memory<const N: usize, T = u64>([u32; N], std::marker::PhantomData<T>);

#[rate_limited(key = "{Self::NAME}/{key}", name = "store", limit = limit(), fallback = None)]
impl<const N: usize, T: std::fmt::Display> Store for Memory<N, T>
where
    [u8; {
        const ONE: usize = 1;
        ONE
    }]: Sized,
{
    type Key = T;
    const NAME: &'static str = "memory";

    fn get(&self, key: &Self::Key) -> Option<u32> {
        self.0.get(key.to_string().len()).copied()
    }

    async fn put(&mut self, key: Self::Key, value: u32) -> Option<u32> {
        tokio::task::yield_now().await;
        let place = self.0.get_mut(key.to_string().len())?;
        Some(std::mem::replace(place, value))
    }

    #[rate_limited(skip)]
    fn len(&self) -> usize {
        N
    }
}

fn limit() -> Limit {
    assert!(!LIMIT.is_empty());
    "2/1m".parse().unwrap()
}

struct Gates;

#[rate_limited(key = "user {user}", limit = "1/1m", fallback = "user")]
#[rate_limited(key = "gates", limit = "2/1m", fallback = Self::closed)]
#[allow(clippy::unused_self)]
impl Gates {
    fn first(&self, user: u8) -> &'static str {
        "first"
    }

    fn second(&self, user: u8) -> &'static str {
        "second"
    }
}

impl Gates {
    fn closed(&self, _user: u8) -> &'static str {
        "closed"
    }
}

struct Fallible;

#[rate_limited(key = "fallible", limit = "9/1m", recover = |_| Ok(0), fallback = Ok(1))]
unsafe impl Marker for Fallible {
    fn parse(text: &str) -> Result<u32, std::num::ParseIntError> {
        text.parse()
    }
}

unsafe trait Marker {
    fn parse(text: &str) -> Result<u32, std::num::ParseIntError>;
}

macro_rules! service {
    ($name:ident, $key:literal, $($method:ident)*) => {
        struct $name;

        #[rate_limited(key = $key, limit = "1/1m", fallback = false)]
        impl $name {
            $(fn $method() -> bool { true })*
        }
    };
}

service!(Made, "made", one two);

async fn check() {
    let mut service = Service::new(Limiter::memory());
    assert_eq!(*service.exclusive(1_u8).await.unwrap(), 101);
    assert_eq!(service.shared(), Ok(101));
    assert_eq!(service.shared(), Err(Busy("from")));
    assert_eq!(service.exclusive(1_u8).await, Err(Busy("from")));
    assert_eq!((service.own(), service.own()), (1, 7), "another quota, by the current limiter");
    assert_eq!((service.exempt(), service.exempt(), service.exempt()), (2, 2, 2));

    let mut memory = Memory::<3>([1, 2, 3], std::marker::PhantomData);
    assert_eq!((memory.put(1, 5).await, memory.get(&1), memory.get(&1)), (Some(2), Some(5), None));
    assert_eq!(memory.get(&2), Some(5), "another key");
    assert!(!memory.is_empty());

    assert_eq!(
        [Gates.first(1), Gates.second(1), Gates.second(2), Gates.first(3)],
        ["first", "user", "second", "closed"]
    );
    assert_eq!((Fallible::parse("7"), Fallible::parse("x")), (Ok(7), Ok(0)));
    assert_eq!((Made::one(), Made::two(), Made::one()), (true, false, false));
}

#[tokio::main]
async fn main() {
    Limiter::memory().scope(check()).await;
}
