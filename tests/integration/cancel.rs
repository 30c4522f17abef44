//! A future may be dropped wherever it waits: it takes along no more than the permits that it was asking for, and nobody
//! else notices.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use limiter_testkit::{Cluster, Random, RedisServer, slot_of};
use rate_limited::{Allowed, Decision, Error, Key, Limit, Limiter, OnError, rate_limited};
use tokio::task::{JoinSet, yield_now};

use crate::deadlines::eventually;
use crate::support::{AMPLE, key, limit, on};

mod connecting;
mod queues;

const TASKS: u64 = 24;
const CALLS: u64 = 150;
/// What a call may take that nobody drops: far from its deadline, and much for a slow machine.
const PROMPT: Duration = Duration::from_secs(10);

/// Where a call is dropped.
#[derive(Clone, Copy, Debug)]
enum Until {
    /// Before it is polled so often.
    Polls(u32),
    /// When so much time is over.
    Time(Duration),
    Done,
}

impl Until {
    fn random(random: &mut Random) -> Self {
        match random.below(8) {
            0..4 => Self::Polls(u32::try_from(random.below(4)).expect("small")),
            4..6 => Self::Time(Duration::from_micros(random.below(1_500))),
            _ => Self::Done,
        }
    }

    /// Polls the future up to there; `None` if it was dropped.
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

    /// Whether the future was begun at all.
    fn begins(self) -> bool {
        !matches!(self, Self::Polls(0))
    }
}

/// Permits of one count, as those know of them who asked.
#[derive(Debug, Default)]
struct Ledger {
    taken: AtomicU32,
    /// By calls that were dropped: each of them may be taken or not.
    perhaps_taken: AtomicU32,
    returned: AtomicU32,
    perhaps_returned: AtomicU32,
    /// What can be given back, with its permits of this count.
    receipts: Mutex<Vec<(Allowed, u32)>>,
}

impl Ledger {
    /// Notes a call that asked for so many permits.
    fn note(&self, until: Until, cost: u32, decision: Option<Result<Decision, Error>>) {
        match decision.map(|decision| decision.expect("the store answers")) {
            Some(Decision::Allowed(allowed)) => {
                self.taken.fetch_add(cost, Relaxed);
                self.receipts.lock().expect("no panic").push((allowed, cost));
            }
            Some(Decision::Denied(denied)) => panic!("there is room for all: {denied:?}"),
            None if until.begins() => drop(self.perhaps_taken.fetch_add(cost, Relaxed)),
            None => {}
        }
    }

    /// Whether so many permits may be in use, where calls wait for their answers or not.
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

/// What all tasks share.
#[derive(Clone)]
struct Storm {
    limiter: Limiter,
    counted: Key,
    beside: Key,
    ledger: Arc<Ledger>,
    over: Arc<AtomicBool>,
}

const MAX: u32 = 1_000_000;

fn wide() -> Limit {
    limit("1000000/1h")
}

/// Of annotated functions, by store: how often a body ran, and how many calls were dropped.
static BODIES: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
static DROPPED: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

#[rate_limited(key = "annotated", limit = "1000000/h", fallback = unreachable!("there is room for all"))]
async fn annotated(store: usize) {
    BODIES[store].fetch_add(1, Relaxed);
    yield_now().await;
    yield_now().await;
}

impl Storm {
    fn new(limiter: Limiter, counted: Key, beside: Key) -> Self {
        Self { limiter, counted, beside, ledger: Arc::default(), over: Arc::default() }
    }

    /// One call of any kind, dropped anywhere.
    async fn call(&self, random: &mut Random, store: usize) {
        let Self { limiter, counted, beside, ledger, .. } = self;
        let (until, wide) = (Until::random(random), wide());
        let cost = u32::try_from(random.between(1, 3)).expect("small");
        match random.below(10) {
            0..3 => ledger.note(until, 1, until.run(limiter.check(counted, &wide)).await),
            3 => ledger.note(until, cost, until.run(limiter.check_n(counted, &wide, cost)).await),
            4 => {
                let both = [(counted, &wide, cost), (beside, &wide, 1)];
                ledger.note(until, cost, until.run(limiter.check_all(&both)).await);
            }
            5 => ledger.note(until, 1, until.run(limiter.wait(counted, &wide, Duration::from_secs(60))).await),
            6 => drop(until.run(limiter.peek(counted, &wide)).await),
            7 => self.give_back(until).await,
            8 => drop(until.run(limiter.reset(&key("forgotten"), &wide)).await),
            _ => {
                if until.run(limiter.scope(annotated(store))).await.is_none() && until.begins() {
                    DROPPED[store].fetch_add(1, Relaxed);
                }
            }
        }
    }

    async fn give_back(&self, until: Until) {
        let Some((receipt, cost)) = self.ledger.receipts.lock().expect("no panic").pop() else { return };
        match until.run(self.limiter.refund(&receipt)).await {
            Some(result) => {
                result.expect("given back");
                self.ledger.returned.fetch_add(cost, Relaxed);
            }
            None if until.begins() => drop(self.ledger.perhaps_returned.fetch_add(cost, Relaxed)),
            None => {}
        }
    }

    /// Calls that nobody drops, until all the others are done.
    async fn bystander(self) -> (u32, Duration) {
        let (mut calls, mut longest) = (0, Duration::ZERO);
        while !self.over.load(Relaxed) {
            let began = Instant::now();
            self.ledger.note(Until::Done, 1, Some(self.limiter.check(&self.counted, &wide()).await));
            longest = longest.max(began.elapsed());
            calls += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        (calls, longest)
    }

    async fn run(self, store: usize) {
        let bystander = tokio::spawn(self.clone().bystander());
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let storm = self.clone();
            tasks.spawn(async move {
                let mut random = Random::new(task);
                for _ in 0..CALLS {
                    storm.call(&mut random, store).await;
                }
            });
        }
        tasks.join_all().await;
        self.over.store(true, Relaxed);
        let (calls, longest) = bystander.await.expect("no panic");
        assert!(calls > 0 && longest < PROMPT, "{calls} calls, of which one took {longest:?}");

        let used = async |key: &Key| MAX - self.limiter.peek(key, &wide()).await.expect("answers").remaining();
        // In memory a call has nothing to wait for, but its turn.
        self.ledger.check(used(&self.counted).await, store > 0);
        let (bodies, dropped) = (BODIES[store].load(Relaxed), DROPPED[store].load(Relaxed));
        let annotated = used(&key("annotated")).await;
        assert!(
            (bodies..=bodies + dropped).contains(&annotated),
            "{annotated} in use, {bodies} run, {dropped} dropped"
        );
        assert!(bodies > 50 && dropped > 50, "{bodies} run, {dropped} dropped");
        self.works().await;
    }

    /// Nothing is poisoned, and nobody is held up.
    async fn works(&self) {
        let (Self { limiter, .. }, key, wide) = (self, key("afterwards"), wide());
        let everything = async {
            let Decision::Allowed(receipt) = limiter.check(&key, &wide).await.expect("answers") else { panic!("room") };
            limiter.refund(&receipt).await.expect("given back");
            let both = [(&key, &wide, 2), (&self.beside, &wide, 1)];
            assert!(limiter.check_all(&both).await.expect("answers").is_allowed());
            assert!(limiter.wait(&self.counted, &wide, PROMPT).await.expect("answers").is_allowed());
            assert_eq!(limiter.peek(&key, &wide).await.expect("answers").remaining(), MAX - 2);
            limiter.reset(&key, &wide).await.expect("forgotten");
        };
        tokio::time::timeout(PROMPT, everything).await.expect("nobody is held up");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_in_memory_but_what_was_dropped() {
    Storm::new(Limiter::memory(), key("counted"), key("beside")).run(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_redis_but_what_was_dropped() {
    let server = RedisServer::start();
    let limiter = on(&server).on_error(OnError::Raise).connect().await.expect("connects");
    Storm::new(limiter, key("counted"), key("beside")).run(1).await;
    for name in server.keys() {
        assert!(server.pttl(&name) > 0, "{name} never expires");
    }
}

/// Of a decision about several slots a part may be taken when its caller goes: it is finished, or given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_a_cluster_but_what_was_dropped() {
    let cluster = Cluster::builder().masters_only().start();
    let master = |name: &str| cluster.master_of(slot_of(name.as_bytes()));
    let beside = (0..).map(|number| format!("k{number}")).find(|name| master(name) != master("counted"));
    let url = cluster.url();
    let builder = Limiter::builder().url(&url).deadline(AMPLE).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("connects");
    let beside = beside.expect("of so many");
    // An attempt to connect to another node takes 1 s at most, which may be too short for a machine under load.
    for name in ["counted", &*beside, "annotated", "forgotten", "afterwards"] {
        eventually("connected", async || limiter.peek(&key(name), &wide()).await.is_ok()).await;
    }
    Storm::new(limiter, key("counted"), key(&beside)).run(2).await;
}

/// The scope ends with its future, done or not.
#[tokio::test]
async fn a_scope_that_is_dropped_is_left() {
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
            assert_eq!(Until::Polls(1).run(inner.scope(dropped)).await, None);
            call().await;
            call().await;
        })
        .await;
    assert_eq!((left(&outer).await, left(&inner).await), (8, 9));
}
