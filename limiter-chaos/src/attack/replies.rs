//! Lost replies: the server must not count more than was sent once.
//!
//! Half of the calls each use a key of their own, so that a command sent twice is always visible. The others share
//! their keys, so that they are sent in batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::Duration;

use limiter_testkit::{Proxy, Random, RedisServer};
use rate_limited::{Algorithm, Decision, Key, Limit, Limiter, Source};
use tokio::task::JoinSet;

use super::round::{Outcome, Round, connect, runtime};

/// A limit that no round reaches, in windows that outlast it.
const MAX_PERMITS: u32 = 10_000_000;

const WINDOW: Duration = Duration::from_secs(300 * 24 * 3_600);

/// One count, as known by its callers.
#[derive(Debug)]
struct CallCounter {
    key: Key,
    limit: Limit,
    sent: AtomicU64,
    allowed_by_store: AtomicU64,
}

pub(super) fn round(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let mut server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let deadline = round.millis(30, 150);
    let limiter = connect(&runtime, || Limiter::builder().url(proxy.url()).deadline(deadline))?;
    let counter = |number: u64| {
        let algorithm = if number.is_multiple_of(2) { Algorithm::SlidingWindow } else { Algorithm::FixedWindow };
        let limit = Limit::new(MAX_PERMITS, WINDOW).expect("a limit").with_algorithm(algorithm);
        let (sent, allowed_by_store) = Default::default();
        CallCounter { key: Key::new("counted:").part(number), limit, sent, allowed_by_store }
    };
    let counters: Arc<Vec<CallCounter>> = Arc::new((0..4).map(counter).collect());
    let (stop, once) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..30 {
        let caller = make_calls(
            limiter.clone(),
            Arc::clone(&counters),
            Arc::clone(&once),
            Random::new(round.random.any()),
            Arc::clone(&stop),
        );
        tasks.spawn_on(caller, runtime.handle());
    }
    for _ in 0..if round.short { 3 } else { 15 } {
        let length = round.millis(1, 250);
        match round.random.below(8) {
            0..=2 => proxy.lose_replies(),
            3 => proxy.cut_replies(),
            4 => proxy.garble(),
            5 => proxy.stall(),
            6 => proxy.cut(),
            _ => server.pause(),
        }
        sleep(length);
        server.resume();
        proxy.pass();
        round.count("faults", 1);
        sleep(round.millis(1, 250));
    }
    stop.store(true, Relaxed);
    runtime.block_on(tasks.join_all());
    drop(limiter);

    let checker = connect(&runtime, || Limiter::builder().url(server.url()).deadline(Duration::from_secs(30)))?;
    for counter in counters.iter() {
        let (sent, allowed) = (counter.sent.load(Relaxed), counter.allowed_by_store.load(Relaxed));
        round.count("calls", sent);
        round.count("allowed", allowed);
        let decision =
            runtime.block_on(checker.peek(&counter.key, &counter.limit)).map_err(|error| format!("a peek: {error}"))?;
        let used = u64::from(MAX_PERMITS - decision.remaining());
        if used > sent {
            return Err(format!("{used} permits are counted, but {sent} were requested: some command was sent twice"));
        }
        if used < allowed {
            return Err(format!("{used} permits are counted, but the store allowed {allowed}"));
        }
    }
    let once = once.load(Relaxed);
    round.count("calls on keys of their own", once);
    runtime.block_on(check_sent_once(&checker, once))
}

/// Returns the key of one call alone.
fn own_key(number: u64) -> Key {
    Key::new("once:").part(number)
}

/// Returns one of two limits, so that calls on keys of their own use two algorithms.
fn own_limit(random: &mut Random) -> Limit {
    own_limits()[usize::from(random.below(2) == 0)]
}

fn own_limits() -> [Limit; 2] {
    let limit = Limit::new(9, WINDOW).expect("a limit");
    [limit, limit.with_algorithm(Algorithm::FixedWindow)]
}

/// Peeks at each key that only one call used.
async fn check_sent_once(checker: &Limiter, calls: u64) -> Outcome {
    let numbers: Vec<_> = (0..calls).collect();
    for chunk in numbers.chunks(500) {
        let mut peeks = JoinSet::new();
        for (number, limit) in chunk.iter().flat_map(|number| own_limits().map(|limit| (*number, limit))) {
            let checker = checker.clone();
            peeks.spawn(async move {
                checker.peek(&own_key(number), &limit).await.map(|decision| limit.max() - decision.remaining())
            });
        }
        for used in peeks.join_all().await {
            let used = used.map_err(|error| format!("a peek: {error}"))?;
            if used > 1 {
                return Err(format!("one call took {used} permits: its command was sent {used} times"));
            }
        }
    }
    Ok(())
}

async fn make_calls(
    limiter: Limiter,
    counts: Arc<Vec<CallCounter>>,
    once: Arc<AtomicU64>,
    mut random: Random,
    stop: Arc<AtomicBool>,
) {
    while !stop.load(Relaxed) {
        // Calls return at once while the store is unavailable.
        tokio::time::sleep(Duration::from_micros(random.below(20_000))).await;
        if random.below(2) == 0 {
            drop(limiter.check(&own_key(once.fetch_add(1, Relaxed)), &own_limit(&mut random)).await);
            continue;
        }
        let first = usize::try_from(random.below(4)).expect("small");
        let counters = match random.below(4) {
            0 => vec![&counts[first], &counts[(first + 1) % 4]],
            _ => vec![&counts[first]],
        };
        for count in &counters {
            count.sent.fetch_add(1, Relaxed);
        }
        let decision = match counters[..] {
            [count] => limiter.check(&count.key, &count.limit).await,
            _ => {
                let limits: Vec<_> = counters.iter().map(|count| (&count.key, &count.limit, 1)).collect();
                limiter.check_all(&limits).await
            }
        };
        if matches!(decision, Ok(Decision::Allowed(allowed)) if allowed.source() == Source::Store) {
            for count in &counters {
                count.allowed_by_store.fetch_add(1, Relaxed);
            }
        }
    }
}
