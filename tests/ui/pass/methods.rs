//! Each kind of receiver, in inherent and trait impls: the first call runs, and later ones get the fallback.

use std::pin::Pin;
use std::sync::Arc;

use rate_limited::{Limiter, rate_limited};

struct Counter<T> {
    limiter: Limiter,
    calls: u64,
    extra: T,
}

impl<T: Copy + Into<u64>> Counter<T> {
    fn new(extra: T) -> Self {
        Self { limiter: Limiter::memory(), calls: 0, extra }
    }

    #[rate_limited(key = "k", limit = "1/1h", limiter = self.limiter, fallback = Self::shared_denied)]
    fn shared(&self, add: u64) -> u64 {
        self.calls + add
    }

    fn shared_denied(&self, add: u64) -> u64 {
        add + self.extra.into()
    }

    #[rate_limited(key = "k", limit = "1/1h", limiter = &self.limiter, fallback = Self::exclusive_denied)]
    async fn exclusive(&mut self, add: u64) -> &mut u64 {
        self.calls += add;
        &mut self.calls
    }

    async fn exclusive_denied(&mut self, add: u64) -> &mut u64 {
        self.calls += add * 100;
        &mut self.calls
    }

    #[rate_limited(key = "k", limit = "1/1h", limiter = limiter, fallback = into_extra)]
    fn owned(mut self, limiter: &Limiter) -> u64 {
        self.calls += 1;
        self.calls
    }

    #[rate_limited(key = "{self.calls}/{self.extra.into()}", limit = "1/1h", limiter = self.limiter, fallback = self.calls)]
    async fn counted_by_field(self: Arc<Self>) -> u64 {
        100
    }

    #[rate_limited(key = "k", limit = "1/1h", limiter = &self.limiter, fallback = 0)]
    fn pinned(self: Pin<&mut Self>) -> u64 {
        self.calls
    }

    #[rate_limited(key = "k", limit = "1/1h", fallback = Self::ZERO)]
    fn associated() -> u64 {
        1
    }

    const ZERO: u64 = 0;
}

fn into_extra<T: Into<u64>>(counter: Counter<T>, _limiter: &Limiter) -> u64 {
    counter.extra.into()
}

trait Greet {
    const DENIED: &'static str;

    fn greet(&self) -> String;

    async fn greet_later(&self) -> String;

    #[rate_limited(key = "default", limit = "1/1h", fallback = Self::DENIED.to_owned())]
    fn greet_by_default(&self) -> String {
        self.greet() + "!"
    }

    #[rate_limited(key = "default later", limit = "1/1h", fallback = Greet::greet_by_default)]
    async fn greet_later_by_default(&self) -> String {
        self.greet_later().await + "!"
    }
}

struct English;

impl Greet for English {
    const DENIED: &'static str = "busy";

    #[rate_limited(key = "greet", limit = "1/1h", fallback = "no".into())]
    fn greet(&self) -> String {
        "hello".into()
    }

    #[rate_limited(key = "greet later", limit = "1/1h", fallback = Self::not_now)]
    async fn greet_later(&self) -> String {
        "hello".into()
    }
}

impl English {
    async fn not_now(&self) -> String {
        "not now".into()
    }
}

async fn check() {
    let mut counter = Counter::new(7_u32);
    assert_eq!((counter.shared(1), counter.shared(1)), (1, 8));
    // One limiter and one key are one quota, for all methods: these are denied.
    assert_eq!((*counter.exclusive(1).await, *counter.exclusive(1).await), (100, 200));
    assert_eq!(Pin::new(&mut counter).pinned(), 0);

    let mut counter = Counter::new(7_u32);
    assert_eq!((*counter.exclusive(1).await, *counter.exclusive(1).await), (1, 101));

    let limiter = Limiter::memory();
    assert_eq!((Counter::new(7_u32).owned(&limiter), Counter::new(8_u32).owned(&limiter)), (1, 8));

    let counter = Arc::new(Counter::new(7_u8));
    assert_eq!((counter.clone().counted_by_field().await, counter.counted_by_field().await), (100, 0));
    assert_eq!((Counter::<u8>::associated(), Counter::<u16>::associated()), (1, 0));

    // The first call of the default method uses up the quota of `greet`.
    assert_eq!((English.greet_by_default(), English.greet_by_default()), ("hello!".into(), "busy".into()));
    assert_eq!(English.greet(), "no");
    assert_eq!(English.greet_later_by_default().await, "hello!");
    assert_eq!(English.greet_later().await, "not now");
    assert_eq!(English.greet_later_by_default().await, "busy");
}

#[tokio::main]
async fn main() {
    Limiter::memory().scope(check()).await;
}
