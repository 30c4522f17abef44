//! Tests of cancellation: a call that is dropped at any await takes at most its own permits and affects no other call.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use limiter_testkit::{Cluster, Random, RedisServer, slot_of};
use rate_limited::{Allowed, Decision, Error, Key, Limit, Limiter, OnError, rate_limited};
use tokio::task::{JoinSet, yield_now};

use crate::deadlines::eventually;
use crate::support::{LONG_DEADLINE, builder_for, key, limit, unpacked_limit};

mod connecting;
mod queues;

const TASKS: u64 = 24;
const CALLS: u64 = 150;
/// The longest time of a call that is not dropped: far below its deadline, and ample for a slow machine.
const MAX_CALL_TIME: Duration = Duration::from_secs(10);

/// The point at which a call is dropped.
#[derive(Clone, Copy, Debug)]
enum DropPoint {
    /// Dropped after this number of polls.
    Polls(u32),
    /// Dropped after this time.
    Time(Duration),
    /// Never dropped.
    Done,
}

impl DropPoint {
    fn random(random: &mut Random) -> Self {
        match random.below(8) {
            0..4 => Self::Polls(u32::try_from(random.below(4)).expect("small")),
            4..6 => Self::Time(Duration::from_micros(random.below(1_500))),
            _ => Self::Done,
        }
    }

    /// Polls the future up to this point. Returns `None` if it was dropped.
    async fn run<F: Future>(self, future: F) -> Option<F::Output> {
        match self {
            Self::Done => Some(future.await),
            Self::Time(time) => tokio::time::timeout(time, future).await.ok(),
            Self::Polls(polls) => {
                let (mut future, mut left) = (Box::pin(future), polls);
                poll_fn(|context| {
                    if left == 0 {
                        return Poll::Ready(None);
                    }
                    left -= 1;
                    match future.as_mut().poll(context) {
                        Poll::Ready(output) => Poll::Ready(Some(output)),
                        Poll::Pending if left == 0 => Poll::Ready(None),
                        Poll::Pending => Poll::Pending,
                    }
                })
                .await
            }
        }
    }

    /// Returns true if the future is polled at least once.
    fn is_polled(self) -> bool {
        !matches!(self, Self::Polls(0))
    }
}

/// Permits of one counter, summed from the results of the calls.
#[derive(Debug, Default)]
struct Ledger {
    taken: AtomicU32,
    /// Permits of dropped calls, which may have been taken or not.
    perhaps_taken: AtomicU32,
    returned: AtomicU32,
    perhaps_returned: AtomicU32,
    /// Receipts that can be refunded, with their permits of this counter.
    receipts: Mutex<Vec<(Allowed, u32)>>,
}

impl Ledger {
    /// Records the result of a call for `cost` permits.
    fn record(&self, drop_point: DropPoint, cost: u32, decision: Option<Result<Decision, Error>>) {
        match decision.map(|decision| decision.expect("the store answers")) {
            Some(Decision::Allowed(allowed)) => {
                self.taken.fetch_add(cost, Relaxed);
                self.receipts.lock().expect("no panic").push((allowed, cost));
            }
            Some(Decision::Denied(denied)) => panic!("no call is denied: {denied:?}"),
            None if drop_point.is_polled() => drop(self.perhaps_taken.fetch_add(cost, Relaxed)),
            None => {}
        }
    }

    /// Asserts that `used` permits can be in use. `waits` is true if calls wait for a server's reply.
    fn check(&self, used: u32, waits: bool) {
        let all = [&self.taken, &self.perhaps_taken, &self.returned, &self.perhaps_returned];
        let [taken, perhaps_taken, returned, perhaps_returned] = all.map(|number| number.load(Relaxed));
        let least = (taken - returned).saturating_sub(perhaps_returned);
        let most = taken + perhaps_taken - returned;
        assert!((least..=most).contains(&used), "{used} in use: {all:?}");
        assert!(taken > 100 && returned > 100, "{taken} taken, {returned} returned");
        assert!(
            !waits || perhaps_taken > 100 && perhaps_returned > 10,
            "{perhaps_taken} and {perhaps_returned} dropped"
        );
    }
}

/// State that all tasks share.
#[derive(Clone)]
struct Stress {
    limiter: Limiter,
    counted_key: Key,
    other_key: Key,
    ledger: Arc<Ledger>,
    is_over: Arc<AtomicBool>,
}

const MAX_PERMITS: u32 = 1_000_000;

fn wide_limit() -> Limit {
    limit("1000000/1h")
}

/// Annotated functions, by store: the number of bodies that ran.
static BODIES_RUN: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
/// Annotated functions, by store: the number of dropped calls.
static DROPPED_CALLS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

#[rate_limited(key = "annotated", limit = "1000000/h", fallback = unreachable!("no call is denied"))]
async fn annotated(store: usize) {
    BODIES_RUN[store].fetch_add(1, Relaxed);
    yield_now().await;
    yield_now().await;
}

impl Stress {
    fn new(limiter: Limiter, counted_key: Key, other_key: Key) -> Self {
        Self { limiter, counted_key, other_key, ledger: Arc::default(), is_over: Arc::default() }
    }

    /// Makes one random call, which is dropped at a random point.
    async fn call(&self, random: &mut Random, store: usize) {
        let Self { limiter, counted_key, other_key, ledger, .. } = self;
        let (drop_point, wide_limit) = (DropPoint::random(random), wide_limit());
        let cost = u32::try_from(random.between(1, 3)).expect("small");
        match random.below(10) {
            0..3 => ledger.record(drop_point, 1, drop_point.run(limiter.check(counted_key, &wide_limit)).await),
            3 => ledger.record(drop_point, cost, drop_point.run(limiter.check_n(counted_key, &wide_limit, cost)).await),
            4 => {
                let both = [(counted_key, &wide_limit, cost), (other_key, &wide_limit, 1)];
                ledger.record(drop_point, cost, drop_point.run(limiter.check_all(&both)).await);
            }
            5 => ledger.record(
                drop_point,
                1,
                drop_point.run(limiter.wait(counted_key, &wide_limit, Duration::from_secs(60))).await,
            ),
            6 => drop(drop_point.run(limiter.peek(counted_key, &wide_limit)).await),
            7 => self.refund(drop_point).await,
            8 => drop(drop_point.run(limiter.reset(&key("reset"), &wide_limit)).await),
            _ => {
                if drop_point.run(limiter.scope(annotated(store))).await.is_none() && drop_point.is_polled() {
                    DROPPED_CALLS[store].fetch_add(1, Relaxed);
                }
            }
        }
    }

    async fn refund(&self, drop_point: DropPoint) {
        let Some((receipt, cost)) = self.ledger.receipts.lock().expect("no panic").pop() else { return };
        match drop_point.run(self.limiter.refund(&receipt)).await {
            Some(result) => {
                result.expect("refunded");
                self.ledger.returned.fetch_add(cost, Relaxed);
            }
            None if drop_point.is_polled() => drop(self.ledger.perhaps_returned.fetch_add(cost, Relaxed)),
            None => {}
        }
    }

    /// Makes calls that are not dropped until all other tasks are done. Returns their number and the longest time.
    async fn undropped_calls(self) -> (u32, Duration) {
        let (mut calls, mut longest) = (0, Duration::ZERO);
        while !self.is_over.load(Relaxed) {
            let began = Instant::now();
            self.ledger.record(DropPoint::Done, 1, Some(self.limiter.check(&self.counted_key, &wide_limit()).await));
            longest = longest.max(began.elapsed());
            calls += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        (calls, longest)
    }

    async fn run(self, store: usize) {
        let undropped_calls = tokio::spawn(self.clone().undropped_calls());
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let stress = self.clone();
            tasks.spawn(async move {
                let mut random = Random::new(task);
                for _ in 0..CALLS {
                    stress.call(&mut random, store).await;
                }
            });
        }
        tasks.join_all().await;
        self.is_over.store(true, Relaxed);
        let (calls, longest) = undropped_calls.await.expect("no panic");
        assert!(calls > 0 && longest < MAX_CALL_TIME, "{calls} calls, of which one took {longest:?}");

        let used =
            async |key: &Key| MAX_PERMITS - self.limiter.peek(key, &wide_limit()).await.expect("answers").remaining();
        // Calls in memory wait for nothing but their turn in the queue.
        self.ledger.check(used(&self.counted_key).await, store > 0);
        let (bodies, dropped) = (BODIES_RUN[store].load(Relaxed), DROPPED_CALLS[store].load(Relaxed));
        let own = unpacked_limit("1000000/h");
        let annotated = MAX_PERMITS - self.limiter.peek(&key("annotated"), &own).await.expect("answers").remaining();
        assert!(
            (bodies..=bodies + dropped).contains(&annotated),
            "{annotated} in use, {bodies} run, {dropped} dropped"
        );
        assert!(bodies > 50 && dropped > 50, "{bodies} run, {dropped} dropped");
        self.assert_usable().await;
    }

    /// Asserts that no lock is poisoned and that new calls are served in time.
    async fn assert_usable(&self) {
        let (Self { limiter, .. }, key, wide_limit) = (self, key("afterwards"), wide_limit());
        let calls = async {
            let Decision::Allowed(receipt) = limiter.check(&key, &wide_limit).await.expect("answers") else {
                panic!("room")
            };
            limiter.refund(&receipt).await.expect("refunded");
            let both = [(&key, &wide_limit, 2), (&self.other_key, &wide_limit, 1)];
            assert!(limiter.check_all(&both).await.expect("answers").is_allowed());
            assert!(limiter.wait(&self.counted_key, &wide_limit, MAX_CALL_TIME).await.expect("answers").is_allowed());
            assert_eq!(limiter.peek(&key, &wide_limit).await.expect("answers").remaining(), MAX_PERMITS - 2);
            limiter.reset(&key, &wide_limit).await.expect("reset");
        };
        tokio::time::timeout(MAX_CALL_TIME, calls).await.expect("new calls are served in time");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_lose_at_most_their_own_permits_in_memory() {
    Stress::new(Limiter::memory(), key("counted"), key("other")).run(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_lose_at_most_their_own_permits_on_redis() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).on_error(OnError::Raise).connect().await.expect("connects");
    Stress::new(limiter, key("counted"), key("other")).run(1).await;
    for name in server.keys() {
        assert!(server.pttl(&name) > 0, "{name} never expires");
    }
}

/// A decision over several slots may be half done when its caller is dropped: it is completed or refunded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_lose_at_most_their_own_permits_on_a_cluster() {
    let cluster = Cluster::builder().masters_only().start();
    let master = |name: &str| cluster.master_of(slot_of(name.as_bytes()));
    let other_key = (0..).map(|number| format!("k{number}")).find(|name| master(name) != master("counted"));
    let url = cluster.url();
    let builder = Limiter::builder().url(&url).deadline(LONG_DEADLINE).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("connects");
    let other_key = other_key.expect("one of many names");
    // An attempt to connect to another node is limited to 1 s, which may be too short on a machine under load.
    for name in ["counted", &*other_key, "annotated", "reset", "afterwards"] {
        eventually("connected", async || limiter.peek(&key(name), &wide_limit()).await.is_ok()).await;
    }
    Stress::new(limiter, key("counted"), key(&other_key)).run(2).await;
}

/// A scope ends with its future, whether that is complete or dropped.
#[tokio::test]
async fn dropping_a_scope_restores_the_outer_limiter() {
    #[rate_limited(key = "scoped", limit = "10/h", fallback = ())]
    async fn call() {}

    let (outer, inner) = (Limiter::memory(), Limiter::memory());
    let left =
        async |limiter: &Limiter| limiter.peek(&key("scoped"), &limit("10/1h")).await.expect("answers").remaining();
    outer
        .scope(async {
            let dropped = async {
                call().await;
                std::future::pending::<()>().await;
            };
            assert_eq!(DropPoint::Polls(1).run(inner.scope(dropped)).await, None);
            call().await;
            call().await;
        })
        .await;
    assert_eq!((left(&outer).await, left(&inner).await), (8, 9));
}
