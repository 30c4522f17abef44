//! `settle` of an annotated function, on both stores: what a call counts once its body has returned.

use std::cell::RefCell;
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Denied, Key, Limiter, ManualClock, Permit, rate_limited};

use crate::deadlines::eventually;
use crate::settles::left;
use crate::support::{builder_for, unpacked_limit as limit};

#[derive(Debug, PartialEq)]
enum Problem {
    Busy,
    Used(u32),
    NoNumber,
}

impl From<Denied> for Problem {
    fn from(_: Denied) -> Self {
        Self::Busy
    }
}

impl From<std::num::ParseIntError> for Problem {
    fn from(_: std::num::ParseIntError) -> Self {
        Self::NoNumber
    }
}

fn used(answer: &Result<u32, Problem>) -> u32 {
    match answer {
        Ok(tokens) | Err(Problem::Used(tokens)) => *tokens,
        Err(Problem::NoNumber) => 3,
        Err(Problem::Busy) => panic!("a denial is not settled"),
    }
}

#[rate_limited(key = "ask {text}", limit = "100/1h", cost = 10, settle = used)]
async fn ask(text: &str) -> Result<u32, Problem> {
    answer(text)
}

#[rate_limited(key = "ask {text}", limit = "100/1h", cost = 10, settle = |answer| used(answer) + 1)]
fn ask_sync(text: &str) -> Result<u32, Problem> {
    if text.is_empty() {
        return Err(Problem::Used(1));
    }
    Ok(text.parse()?)
}

fn answer(text: &str) -> Result<u32, Problem> {
    if text.is_empty() { Err(Problem::Used(1)) } else { Ok(text.parse()?) }
}

fn both_stores() -> [Limiter; 2] {
    let redis = builder_for(RedisServer::shared()).build().expect("builds");
    [Limiter::memory(), redis]
}

/// Waits until so many permits of a key are left under `100/1h`.
async fn assert_left(limiter: &Limiter, key: &Key, permits: u32) {
    let limit = limit("100/1h");
    let is_left = async || left(limiter, key, &limit).await == permits;
    if !is_left().await {
        eventually(&format!("{permits} permits of {key:?} are left"), is_left).await;
    }
}

fn ask_key(text: &str) -> Key {
    Key::new("ask ").part(text)
}

/// Settlements are sent in order, so those before this one are done after it.
async fn settle_another_call(limiter: &Limiter) {
    assert_eq!(limiter.scope(ask("99")).await, Ok(99));
    assert_left(limiter, &ask_key("99"), 1).await;
    limiter.reset(&ask_key("99"), &limit("100/1h")).await.expect("resets");
}

#[tokio::test]
async fn values_and_errors_of_the_body_are_settled() {
    for limiter in both_stores() {
        let calls = [("25", Ok(25), 75), ("", Err(Problem::Used(1)), 99), ("x", Err(Problem::NoNumber), 97)];
        for (text, returned, permits) in calls {
            assert_eq!(limiter.scope(ask(text)).await, returned);
            assert_left(&limiter, &ask_key(text), permits).await;
        }
        let sync = [("30", Ok(30), 69), ("", Err(Problem::Used(1)), 97), ("y", Err(Problem::NoNumber), 96)];
        for (text, returned, permits) in sync {
            assert_eq!(limiter.scope_sync(|| ask_sync(text)), returned);
            assert_left(&limiter, &ask_key(text), permits).await;
        }
    }
}

/// It counts also above the limit, and then denies.
#[tokio::test]
async fn a_call_may_cost_more_than_is_left() {
    for limiter in both_stores() {
        assert_eq!(limiter.scope(ask("160")).await, Ok(160));
        assert_left(&limiter, &ask_key("160"), 0).await;
        assert_eq!(limiter.scope(ask("160")).await, Err(Problem::Busy));
    }
}

#[tokio::test]
async fn a_body_that_is_dropped_keeps_its_reservation() {
    #[rate_limited(key = "dropped", limit = "100/1h", cost = 10, settle = |()| 1, fallback = ())]
    async fn never_done(started: &RefCell<bool>) {
        *started.borrow_mut() = true;
        pending::<()>().await;
    }
    for limiter in both_stores() {
        let started = RefCell::new(false);
        {
            let mut call = pin!(limiter.scope(never_done(&started)));
            poll_fn(|context| match call.as_mut().poll(context) {
                Poll::Pending if !*started.borrow() => Poll::Pending,
                polled => Poll::Ready(polled.is_pending()),
            })
            .await;
        }
        assert!(*started.borrow());
        settle_another_call(&limiter).await;
        assert_left(&limiter, &Key::new("dropped"), 90).await;
    }
}

#[tokio::test]
async fn a_panic_keeps_the_reservation() {
    #[rate_limited(key = "panics", limit = "100/1h", cost = 10, settle = |_| panic!("by settle"), fallback = 0)]
    async fn of_settle() -> u32 {
        1
    }
    #[rate_limited(key = "panics", limit = "100/1h", cost = 10, settle = |answer| *answer, fallback = 0)]
    async fn of_the_body(answer: Option<u32>) -> u32 {
        answer.expect("an answer")
    }
    #[rate_limited(key = "panics", limit = "100/1h", cost = 10, settle = |_| panic!("by settle"), fallback = 0)]
    fn of_settle_sync() -> u32 {
        1
    }
    for limiter in both_stores() {
        let run = limiter.clone();
        assert!(tokio::spawn(async move { run.scope(of_settle()).await }).await.is_err_and(|error| error.is_panic()));
        let run = limiter.clone();
        assert!(
            tokio::spawn(async move { run.scope(of_the_body(None)).await }).await.is_err_and(|error| error.is_panic())
        );
        let sync = catch_unwind(AssertUnwindSafe(|| limiter.scope_sync(of_settle_sync)));
        assert_eq!(sync.map_err(|panic| panic.downcast_ref::<&str>().copied()), Err(Some("by settle")));
        settle_another_call(&limiter).await;
        assert_left(&limiter, &Key::new("panics"), 70).await;
    }
}

#[tokio::test]
async fn the_value_of_a_fallback_is_not_settled() {
    #[rate_limited(key = "denied", limit = "100/1h", cost = 60, settle = |answer| *answer, fallback = 7)]
    async fn or_seven() -> u32 {
        60
    }
    for limiter in both_stores() {
        assert_eq!((limiter.scope(or_seven()).await, limiter.scope(or_seven()).await), (60, 7));
        settle_another_call(&limiter).await;
        assert_left(&limiter, &Key::new("denied"), 40).await;
    }
}

/// `settle` sees the error, of which `recover` makes a value.
#[tokio::test]
async fn settle_runs_before_recover() {
    type Log = RefCell<Vec<&'static str>>;
    fn noted(log: &Log, event: &'static str) {
        log.borrow_mut().push(event);
    }
    #[rate_limited(key = "order", limit = "100/1h", settle = |answer| { noted(log, "settle"); used(answer) }, recover = |_| {
        noted(log, "recover");
        Ok(7)
    })]
    async fn recovers(log: &Log) -> Result<u32, Problem> {
        noted(log, "body");
        Err(Problem::Used(20))
    }
    for limiter in both_stores() {
        let log = RefCell::default();
        assert_eq!(limiter.scope(recovers(&log)).await, Ok(7));
        assert_eq!(log.take(), ["body", "settle", "recover"]);
        assert_left(&limiter, &Key::new("order"), 80).await;
    }
}

#[tokio::test]
async fn each_attribute_settles_its_own_rule() {
    #[rate_limited(key = "tokens", limit = "100/1h", cost = 10, settle = |answer| answer.0, fallback = (0, 0))]
    #[rate_limited(key = "calls", limit = "100/1h", fallback = (0, 0))]
    #[rate_limited(key = "skipped", limit = "100/1h", cost = 5, settle = |_| 50, when = false, fallback = (0, 0))]
    #[rate_limited(key = "bytes", limit = "100/1h", cost = 40, settle = |&(_, bytes)| bytes, fallback = (0, 0))]
    async fn counted() -> (u32, u32) {
        (20, 30)
    }
    for limiter in both_stores() {
        assert_eq!(limiter.scope(counted()).await, (20, 30));
        for (key, permits) in [("tokens", 80), ("bytes", 70), ("calls", 99), ("skipped", 100)] {
            assert_left(&limiter, &Key::new(key), permits).await;
        }
    }
}

/// Both have one receipt, so the first settlement counts. A refund of the body may precede it.
#[tokio::test]
async fn a_permit_of_the_body_is_that_of_settle() {
    #[rate_limited(key = "both {by}", limit = "100/1h", cost = 10, settle = |_| 30, permit = permit)]
    async fn settles_in(by: &str) -> Result<Permit, Denied> {
        match by {
            "body" => assert_eq!(permit.settle(20).await.map(|usage| usage.remaining()).ok(), Some(80)),
            "refund" => permit.refund().await.expect("refunds"),
            _ => {}
        }
        Ok(permit)
    }
    for limiter in both_stores() {
        for (by, permits) in [("body", 80), ("refund", 70), ("attribute", 70)] {
            let permit = limiter.scope(settles_in(by)).await.expect("allowed");
            settle_another_call(&limiter).await;
            assert_left(&limiter, &Key::new("both ").part(by), permits).await;
            assert!(permit.settle(1).await.is_err(), "{by}: it is settled");
        }
    }
}

/// One permit must be left, also if the cost is 0 at run time alone.
#[tokio::test]
async fn a_cost_of_0_is_charged_afterwards() {
    #[rate_limited(key = "postpaid", limit = "100/1h", cost = 0, settle = |answer| answer.as_ref().map_or(0, |n| *n))]
    async fn postpaid(tokens: u32) -> Result<u32, Denied> {
        assert_left(&Limiter::current(), &Key::new("postpaid"), 100).await;
        Ok(tokens)
    }
    #[rate_limited(key = "postpaid", limit = "100/1h", cost = estimate, settle = |_| 0)]
    fn estimated(estimate: u32) -> Result<(), Denied> {
        Ok(())
    }
    #[rate_limited(key = "postpaid", limit = "100/1h", cost = estimate)]
    fn without_settle(estimate: u32) -> Result<(), Denied> {
        Ok(())
    }
    for limiter in both_stores() {
        limiter.scope_sync(|| estimated(0)).expect("allowed");
        assert_eq!(limiter.scope(postpaid(100)).await.ok(), Some(100));
        assert_left(&limiter, &Key::new("postpaid"), 0).await;
        assert!(limiter.scope(postpaid(1)).await.is_err());
        assert!(limiter.scope_sync(|| estimated(0)).is_err());
        assert!(limiter.scope_sync(|| without_settle(0)).is_ok(), "it asks for nothing");
    }
}

/// The permit may settle the call, so a cost of 0 needs one free permit and takes none.
#[tokio::test]
async fn a_cost_of_0_beside_a_permit_is_charged_afterwards() {
    #[rate_limited(key = "by permit", limit = "100/1h", cost = estimate, permit = permit)]
    async fn estimated(estimate: u32) -> Result<Permit, Denied> {
        Ok(permit)
    }
    #[rate_limited(key = "calls", limit = "100/1h", permit = permit)]
    #[rate_limited(key = "by permit", limit = "100/1h", cost = 0)]
    fn of_two_rules() -> Result<Permit, Denied> {
        Ok(permit)
    }
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).build().expect("builds");
    let key = Key::new("by permit");
    let calls = async {
        let permit = estimated(0).await.expect("allowed");
        assert_left(&limiter, &key, 100).await;
        assert_eq!(permit.settle(100).await.map(|usage| usage.remaining()).ok(), Some(0));
        assert!(estimated(0).await.is_err(), "no permit is free");
        assert!(of_two_rules().is_err(), "no permit is free");
        clock.advance(Duration::from_secs(3_600));
        let permit = of_two_rules().expect("allowed");
        assert_left(&limiter, &key, 100).await;
        assert!(permit.settle_rule("by permit", 100).await.is_ok());
        assert!(estimated(0).await.is_err(), "no permit is free");
        assert_left(&limiter, &Key::new("calls"), 99).await;
    };
    limiter.scope(calls).await;
}

struct Model(u32);

#[rate_limited(key = "settled methods", limit = "100/1h", cost = 10, settle = |answer| *answer, fallback = 0)]
impl Model {
    fn shared(&self) -> u32 {
        self.0
    }

    async fn exclusive(&mut self) -> u32 {
        self.0 += 1;
        self.0
    }
}

#[rate_limited(key = "generic", limit = "100/1h", settle = |values| u32::try_from(values.len()).expect("few"), fallback = vec![])]
async fn generic<T: Clone, const N: usize>(value: &T) -> Vec<T> {
    vec![value.clone(); N]
}

#[rate_limited(key = "lifetimes", limit = "100/1h", settle = |word| u32::from(word.len() > 2) * 9, fallback = "")]
async fn lends<'a>(text: &'a mut String, by: &str) -> &'a str {
    text.push_str(by);
    text
}

#[rate_limited(key = "boxed", limit = "100/1h", settle = |answer| *answer, fallback = 0)]
fn boxed(tokens: &u32) -> Pin<Box<dyn Future<Output = u32> + Send + '_>> {
    Box::pin(async move { *tokens })
}

#[rate_limited(key = "waits", limit = "100/1h", wait = "1s", cost = 5, settle = |answer| *answer, fallback = 0)]
async fn waits(tokens: u32) -> u32 {
    tokens
}

#[tokio::test]
async fn every_kind_of_function_is_settled() {
    for limiter in both_stores() {
        limiter
            .scope(async {
                let mut model = Model(20);
                assert_eq!((model.shared(), model.exclusive().await), (20, 21));
                assert_eq!(generic::<_, 3>(&'x').await, ['x'; 3]);
                assert_eq!(lends(&mut "ab".to_owned(), "c").await, "abc");
                assert_eq!((boxed(&15).await, waits(40).await), (15, 40));
            })
            .await;
        for (key, permits) in
            [("settled methods", 59), ("generic", 97), ("lifetimes", 91), ("boxed", 85), ("waits", 60)]
        {
            assert_left(&limiter, &Key::new(key), permits).await;
        }
    }
}

/// The caller's runtime ends right after the call.
#[test]
fn a_settlement_arrives_without_its_caller() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("builds");
    for limiter in both_stores() {
        let caller = runtime();
        assert_eq!(caller.block_on(limiter.scope(ask("35"))), Ok(35));
        drop(caller);
        runtime().block_on(assert_left(&limiter, &ask_key("35"), 65));
    }
}
