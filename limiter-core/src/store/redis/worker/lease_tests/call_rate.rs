//! The number of script calls for a key that one process calls at a steady rate.

use super::*;

/// The most script calls a second for one key, as docs/leases.md promises.
const MOST_CALLS: u64 = 400;

impl LeasedWorker {
    /// Makes one call as a task does: by the lease, by the cached denial, or by the store.
    async fn call_once(&self) {
        let request = self.request(1);
        let Leasing { local, .. } = &*self.worker.leasing;
        match local.leases.take(&request, false) {
            Some(permits) if permits.needs_renewal => {
                let renewal = Renewal { request: OwnedRequest::from(&self.request(0)), keys: self.keys() };
                Rc::clone(&self.worker).renew(renewal).await;
            }
            Some(_) => {}
            None if local.denials.get(&[request]).is_some() => {}
            None => drop(self.take(1).await),
        }
    }

    /// Makes calls at a rate until the limit's window has passed.
    async fn call_for_a_window(&self, calls_per_second: u64) {
        let calls = calls_per_second * self.limit.window_millis() / 1_000;
        for _ in 0..calls {
            self.clock.advance(Duration::from_nanos(1_000_000_000 / calls_per_second));
            // A lease whose time has passed is ended.
            yield_now().await;
            self.call_once().await;
        }
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
                    leased.call_for_a_window(rate).await;
                    let calls = (server.script_calls() - before) * 1_000 / leased.limit.window_millis();
                    println!("{limit}, {rate} calls a second: {calls} script calls a second");
                    assert!(calls <= MOST_CALLS);
                })
                .await;
        }
    }
}
