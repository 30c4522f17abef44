//! One of those who call in a storm.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use rate_limited::{Allowed, Decision, Key, Limit, Limiter, Source};
use tokio::time::{sleep, timeout};

use crate::faults::load::HANGS;
use crate::random::Random;

const KEYS: u64 = 500;

/// What the calls ask for: one is over soon, the others outlast the run, so that no key without a time to live goes
/// unseen for having expired.
const LIMITS: [&str; 3] = ["1000/1h", "20/100ms", "100000/1h"];

/// What all of them saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) calls: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) by_store: AtomicU64,
    pub(super) by_standby: AtomicU64,
}

/// Calls so often; says what was wrong.
pub(super) async fn caller(limiter: Limiter, mut random: Random, calls: u64, seen: Arc<Seen>) -> Vec<String> {
    let limits = LIMITS.map(|text| text.parse::<Limit>().expect("a limit"));
    let mut wrong = Vec::new();
    let mut receipts: Vec<Allowed> = Vec::new();
    for _ in 0..calls {
        let keys = [random.below(KEYS), random.below(KEYS)].map(|number| Key::new("user:").part(number));
        let limit = limits[usize::try_from(random.below(3)).expect("one of three")];
        let receipt = receipts.pop();
        let action = random.below(10);
        let asked = async {
            match action {
                0 => limiter.peek(&keys[0], &limit).await.map(Some),
                1 => limiter.wait(&keys[0], &limit, Duration::from_millis(5)).await.map(Some),
                2 => limiter.check_n(&keys[0], &limit, 3).await.map(Some),
                3 => limiter.check_all(&[(&keys[0], &limit, 1), (&keys[1], &limit, 1)]).await.map(Some),
                // Which fails while the store is away, as it says.
                4 => Ok(match &receipt {
                    Some(allowed) => limiter.refund(allowed).await.map_or(None, |()| None),
                    None => None,
                }),
                _ => limiter.check(&keys[0], &limit).await.map(Some),
            }
        };
        // Half of them are waited for; the others until they have been polled so often.
        let polls = if random.below(2) == 0 { u64::MAX } else { random.below(4) };
        let answer = match timeout(HANGS, dropped_after(polls, asked)).await {
            Ok(answer) => answer,
            Err(_) => {
                wrong.push(format!("a call (of kind {action}) hung"));
                break;
            }
        };
        seen.calls.fetch_add(1, Relaxed);
        // While the store is away calls take no time: not all of them are to be made then.
        sleep(Duration::from_millis(random.below(5))).await;
        match answer {
            None => drop(seen.dropped.fetch_add(1, Relaxed)),
            Some(Ok(Some(decision))) => {
                let source = match &decision {
                    Decision::Allowed(allowed) => allowed.source(),
                    Decision::Denied(denied) => denied.source(),
                };
                let count = if source == Source::Standby { &seen.by_standby } else { &seen.by_store };
                count.fetch_add(1, Relaxed);
                receipts.extend(decision.into_result().ok().filter(|_| action != 0));
                receipts.truncate(4);
            }
            Some(Ok(None)) => {}
            Some(Err(error)) => wrong.push(format!("an error in spite of the stand-in: {error}")),
        }
    }
    wrong
}

/// The output, unless it takes more polls than that: then the future is dropped where it stands.
async fn dropped_after<F: Future>(polls: u64, future: F) -> Option<F::Output> {
    let (mut future, mut polled) = (pin!(future), 0);
    poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        match future.as_mut().poll(context) {
            // Nobody else would wake it for being dropped.
            Poll::Pending if polled == polls => Poll::Ready(None),
            answer => answer.map(Some),
        }
    })
    .await
}
