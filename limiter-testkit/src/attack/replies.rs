//! Replies that are lost on their way: what a server has counted then is no more than was sent once.
//!
//! Some calls are each about a key of their own, so a command that is sent again shows however few they are. Others share their keys,
//! so that they are sent together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::Duration;

use rate_limited::{Algorithm, Decision, Key, Limit, Limiter, Source};
use tokio::task::JoinSet;

use super::round::{Outcome, Round, runtime};
use crate::proxy::Proxy;
use crate::random::Random;
use crate::server::RedisServer;

/// More than any round takes, in windows that outlast it.
const MAX: u32 = 10_000_000;

const WINDOW: Duration = Duration::from_secs(300 * 24 * 3_600);

/// One count, as its callers know it.
#[derive(Debug)]
struct Count {
    key: Key,
    limit: Limit,
    sent: AtomicU64,
    allowed_by_store: AtomicU64,
}

pub(super) fn round(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let mut server = RedisServer::start();
    let proxy = Proxy::before(&server);
    let deadline = round.millis(30, 150);
    let limiter = runtime.block_on(Limiter::builder().url(proxy.url()).deadline(deadline).connect());
    let limiter = limiter.map_err(|error| format!("a sound server: {error}"))?;
    let count = |number: u64| {
        let algorithm = if number.is_multiple_of(2) { Algorithm::SlidingWindow } else { Algorithm::FixedWindow };
        let limit = Limit::new(MAX, WINDOW).expect("a limit").with_algorithm(algorithm);
        let (sent, allowed_by_store) = Default::default();
        Count { key: Key::new("counted:").part(number), limit, sent, allowed_by_store }
    };
    let counts: Arc<Vec<Count>> = Arc::new((0..4).map(count).collect());
    let (over, once) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..30 {
        let caller = call(
            limiter.clone(),
            Arc::clone(&counts),
            Arc::clone(&once),
            Random::new(round.random.any()),
            Arc::clone(&over),
        );
        tasks.spawn_on(caller, runtime.handle());
    }
    for _ in 0..if round.short { 3 } else { 15 } {
        let lasts = round.millis(1, 250);
        match round.random.below(8) {
            0..=2 => proxy.lose_replies(),
            3 => proxy.cut_replies(),
            4 => proxy.garble(),
            5 => proxy.stall(),
            6 => proxy.cut(),
            _ => server.pause(),
        }
        sleep(lasts);
        server.resume();
        proxy.pass();
        round.count("faults", 1);
        sleep(round.millis(1, 250));
    }
    over.store(true, Relaxed);
    runtime.block_on(tasks.join_all());
    drop(limiter);

    let truth = runtime.block_on(Limiter::builder().url(&server.url()).deadline(Duration::from_secs(30)).connect());
    let truth = truth.map_err(|error| format!("a sound server: {error}"))?;
    for count in counts.iter() {
        let (sent, allowed) = (count.sent.load(Relaxed), count.allowed_by_store.load(Relaxed));
        round.count("calls", sent);
        round.count("allowed", allowed);
        let seen =
            runtime.block_on(truth.peek(&count.key, &count.limit)).map_err(|error| format!("a look: {error}"))?;
        let used = u64::from(MAX - seen.remaining());
        if used > sent {
            return Err(format!("{used} permits are counted, but {sent} were asked for: some command was sent twice"));
        }
        if used < allowed {
            return Err(format!("{used} permits are counted, but the store allowed {allowed}"));
        }
    }
    let once = once.load(Relaxed);
    round.count("calls on keys of their own", once);
    runtime.block_on(sent_once(&truth, once))
}

/// A key for one call alone.
fn own_key(number: u64) -> Key {
    Key::new("once:").part(number)
}

/// One of two limits, so that calls on keys of their own are not all of one kind.
fn own_limit(random: &mut Random) -> Limit {
    own_limits()[usize::from(random.below(2) == 0)]
}

fn own_limits() -> [Limit; 2] {
    let limit = Limit::new(9, WINDOW).expect("a limit");
    [limit, limit.with_algorithm(Algorithm::FixedWindow)]
}

/// Looks at each key that one call alone was about.
async fn sent_once(truth: &Limiter, calls: u64) -> Outcome {
    let numbers: Vec<_> = (0..calls).collect();
    for some in numbers.chunks(500) {
        let mut looks = JoinSet::new();
        for (number, limit) in some.iter().flat_map(|number| own_limits().map(|limit| (*number, limit))) {
            let truth = truth.clone();
            looks.spawn(async move {
                truth.peek(&own_key(number), &limit).await.map(|seen| limit.max() - seen.remaining())
            });
        }
        for used in looks.join_all().await {
            let used = used.map_err(|error| format!("a look: {error}"))?;
            if used > 1 {
                return Err(format!("one call took {used} permits: its command was sent {used} times"));
            }
        }
    }
    Ok(())
}

async fn call(
    limiter: Limiter,
    counts: Arc<Vec<Count>>,
    once: Arc<AtomicU64>,
    mut random: Random,
    over: Arc<AtomicBool>,
) {
    while !over.load(Relaxed) {
        // While the store is away calls take no time.
        tokio::time::sleep(Duration::from_micros(random.below(20_000))).await;
        if random.below(2) == 0 {
            drop(limiter.check(&own_key(once.fetch_add(1, Relaxed)), &own_limit(&mut random)).await);
            continue;
        }
        let first = usize::try_from(random.below(4)).expect("small");
        let asked = match random.below(4) {
            0 => vec![&counts[first], &counts[(first + 1) % 4]],
            _ => vec![&counts[first]],
        };
        for count in &asked {
            count.sent.fetch_add(1, Relaxed);
        }
        let decision = match asked[..] {
            [count] => limiter.check(&count.key, &count.limit).await,
            _ => {
                let limits: Vec<_> = asked.iter().map(|count| (&count.key, &count.limit, 1)).collect();
                limiter.check_all(&limits).await
            }
        };
        if matches!(decision, Ok(Decision::Allowed(allowed)) if allowed.source() == Source::Store) {
            for count in &asked {
                count.allowed_by_store.fetch_add(1, Relaxed);
            }
        }
    }
}
