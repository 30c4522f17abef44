//! One of the calling tasks of a storm.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use limiter_testkit::Random;
use rate_limited::{Allowed, Decision, Key, Limit, Limiter, Source};
use tokio::time::{sleep, timeout};

use crate::cancel::poll_at_most;
use crate::faults::load::HANG_TIMEOUT;

const KEY_COUNT: u64 = 500;

/// The limits of the calls. One window ends soon. The others outlast the run, so that a key without an expiry is always
/// found.
const LIMITS: [&str; 3] = ["1000/1h", "20/100ms", "100000/1h"];

/// The counts of all callers.
#[derive(Debug, Default)]
pub(super) struct StormCounts {
    pub(super) calls: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) by_store: AtomicU64,
    pub(super) by_standby: AtomicU64,
}

/// Makes this number of calls, and returns the errors.
pub(super) async fn run_caller(
    limiter: Limiter,
    mut random: Random,
    calls: u64,
    counts: Arc<StormCounts>,
) -> Vec<String> {
    let limits = LIMITS.map(|text| text.parse::<Limit>().expect("a limit"));
    let mut errors = Vec::new();
    let mut receipts: Vec<Allowed> = Vec::new();
    for _ in 0..calls {
        let keys = [random.below(KEY_COUNT), random.below(KEY_COUNT)].map(|number| Key::new("user:").part(number));
        let limit = limits[usize::try_from(random.below(3)).expect("one of three")];
        let receipt = receipts.pop();
        let action = random.below(10);
        let call = async {
            match action {
                0 => limiter.peek(&keys[0], &limit).await.map(Some),
                1 => limiter.wait(&keys[0], &limit, Duration::from_millis(5)).await.map(Some),
                2 => limiter.check_n(&keys[0], &limit, 3).await.map(Some),
                3 => limiter.check_all(&[(&keys[0], &limit, 1), (&keys[1], &limit, 1)]).await.map(Some),
                // A refund fails while the store is unavailable, as documented.
                4 => Ok(match &receipt {
                    Some(allowed) => limiter.refund(allowed).await.map_or(None, |()| None),
                    None => None,
                }),
                _ => limiter.check(&keys[0], &limit).await.map(Some),
            }
        };
        // Half of the calls run to their end; the others are dropped after a few polls.
        let max_polls = if random.below(2) == 0 { u64::MAX } else { random.below(4) };
        let result = match timeout(HANG_TIMEOUT, poll_at_most(max_polls, call)).await {
            Ok(result) => result,
            Err(_) => {
                errors.push(format!("a call (of kind {action}) hung"));
                break;
            }
        };
        counts.calls.fetch_add(1, Relaxed);
        // Calls return at once while the store is unavailable. This pause leaves calls for later.
        sleep(Duration::from_millis(random.below(5))).await;
        match result {
            None => drop(counts.dropped.fetch_add(1, Relaxed)),
            Some(Ok(Some(decision))) => {
                let source = match &decision {
                    Decision::Allowed(allowed) => allowed.source(),
                    Decision::Denied(denied) => denied.source(),
                };
                let count = if source == Source::Standby { &counts.by_standby } else { &counts.by_store };
                count.fetch_add(1, Relaxed);
                receipts.extend(decision.into_result().ok().filter(|_| action != 0));
                receipts.truncate(4);
            }
            Some(Ok(None)) => {} // a refund, which gets no decision
            Some(Err(error)) => errors.push(format!("an error despite the standby limiter: {error}")),
        }
    }
    errors
}
