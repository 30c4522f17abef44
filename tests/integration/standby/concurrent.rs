//! A test of promise 7 in real time, with many tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use limiter_testkit::history::{Admission, feasible};
use limiter_testkit::{RedisServer, unique};
use rate_limited::{Limiter, Source};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::deadlines::eventually;
use crate::support::{key, limit};

const WINDOW_LENGTH: Duration = Duration::from_secs(2);
const MAX_PERMITS: u32 = 20;

/// The server loses its data at several instants, and no window exceeds the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_exceeds_the_limit_across_outages() {
    let mut server = RedisServer::start();
    let limiter = Limiter::builder().url(server.url()).prefix(unique("comes-and-goes"));
    let limiter = limiter.connect().await.expect("the server is there");
    let (origin, is_over) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    // True once the store, or the standby limiter, has admitted a call.
    let has_admitted = Arc::new([false; 2].map(AtomicBool::new));
    let mut tasks = JoinSet::new();
    for _ in 0..32 {
        let (limiter, is_over, has_admitted) = (limiter.clone(), Arc::clone(&is_over), Arc::clone(&has_admitted));
        tasks.spawn(async move {
            let (key, limit) = (key("a"), limit(&format!("{MAX_PERMITS}/{}s", WINDOW_LENGTH.as_secs())));
            let mut admitted = Vec::new();
            while !is_over.load(Relaxed) {
                let start = origin.elapsed();
                let decision = limiter.check(&key, &limit).await.expect("the standby limiter at least");
                let end = origin.elapsed();
                if let Ok(allowed) = decision.into_result() {
                    admitted.push(Admission { start, end, cost: 1 });
                    has_admitted[usize::from(allowed.source() == Source::Standby)].store(true, Relaxed);
                }
                sleep(Duration::from_millis(3)).await;
            }
            admitted
        });
    }
    // The outages are out of step with the windows, and one is longer than a window.
    for (up_millis, down_millis) in [(700, 0), (900, 300), (150, 2_100)] {
        sleep(Duration::from_millis(up_millis)).await;
        server.kill();
        sleep(Duration::from_millis(down_millis)).await;
        server.restart();
    }
    // Otherwise the test would be void: both must have decided.
    eventually("decided by both", async || has_admitted.iter().all(|admitted| admitted.load(Relaxed))).await;
    sleep(WINDOW_LENGTH).await;
    is_over.store(true, Relaxed);
    let admitted = tasks.join_all().await.concat();
    feasible(&admitted, WINDOW_LENGTH, MAX_PERMITS).unwrap_or_else(|violation| panic!("{violation}"));
}
