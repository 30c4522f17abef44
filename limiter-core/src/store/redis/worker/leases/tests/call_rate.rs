//! The number of script calls for a key that one process calls at a steady rate.

use super::*;

/// The most script calls a second for one key.
const MOST_CALLS: u64 = 400;
/// The least part of the permits that are used, in percent. Some are on lease until the next window begins.
const LEAST_USED: u64 = 95;

impl LeasedWorker {
    /// Makes one call as a task does: by the lease, by the cached denial, or by the store.
    ///
    /// Returns whether it was allowed.
    async fn call_once(&self) -> bool {
        let request = self.request(1);
        let Keeper { local, .. } = &*self.worker.keeper;
        match local.leases().take(&request, false) {
            Some(permits) if permits.needs_renewal => {
                self.renew().await;
                true
            }
            Some(_) => true,
            None if local.denials().get(&[request]).is_some() => false,
            None => self.take_counted(1).await[0].reply.allowed,
        }
    }

    /// Makes calls at a rate until the limit's window has passed. Returns the calls that were allowed.
    async fn call_for_a_window(&self, calls_per_second: u64) -> u64 {
        let calls = calls_per_second * self.limit.window_millis() / 1_000;
        let mut allowed = 0;
        for _ in 0..calls {
            self.clock.advance(Duration::from_nanos(1_000_000_000 / calls_per_second));
            // A lease whose time has passed is ended.
            yield_now().await;
            allowed += u64::from(self.call_once().await);
        }
        allowed
    }
}

/// Rates below the limit, just above it and far above it. A limit that is nearly used up leases few permits at a time.
#[tokio::test]
async fn a_key_needs_few_script_calls_at_any_rate() {
    let server = RedisServer::start();
    for limit in ["10000/1s", "10000/640ms"] {
        for rate in [500, 1_000, 2_000, 9_000, 12_000, 17_000, 25_000, 60_000] {
            LocalSet::new()
                .run_until(async {
                    let leased = LeasedWorker::start_on(&server, limit.parse().expect("a limit")).await;
                    leased.call_for_a_window(rate).await;
                    let before = server.script_calls();
                    let allowed = leased.call_for_a_window(rate).await;
                    let window = leased.limit.window_millis();
                    let calls = (server.script_calls() - before) * 1_000 / window;
                    let used = allowed * 100 / u64::from(leased.limit.max()).min(rate * window / 1_000);
                    println!("{limit}, {rate} calls a second: {calls} script calls a second, {used} % of the permits");
                    assert!(calls <= MOST_CALLS && used >= LEAST_USED);
                })
                .await;
        }
    }
}
