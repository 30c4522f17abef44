//! The same in real time, with many tasks.

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

const WINDOW: Duration = Duration::from_secs(2);
const MAX: u32 = 20;

/// Whatever the instant at which the server loses all it knew, no window holds more than the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_holds_more_than_the_limit_while_the_server_comes_and_goes() {
    let mut server = RedisServer::start();
    let limiter = Limiter::builder().url(&server.url()).prefix(&unique("comes-and-goes"));
    let limiter = limiter.connect().await.expect("the server is there");
    let (origin, over) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    // Whether the store, and the stand-in, has admitted any.
    let by = Arc::new([false; 2].map(AtomicBool::new));
    let mut tasks = JoinSet::new();
    for _ in 0..32 {
        let (limiter, over, by) = (limiter.clone(), Arc::clone(&over), Arc::clone(&by));
        tasks.spawn(async move {
            let (key, limit) = (key("a"), limit(&format!("{MAX}/{}s", WINDOW.as_secs())));
            let mut admitted = Vec::new();
            while !over.load(Relaxed) {
                let start = origin.elapsed();
                let decision = limiter.check(&key, &limit).await.expect("the stand-in at least");
                let end = origin.elapsed();
                if let Ok(allowed) = decision.into_result() {
                    admitted.push(Admission { start, end, cost: 1 });
                    by[usize::from(allowed.source() == Source::Standby)].store(true, Relaxed);
                }
                sleep(Duration::from_millis(3)).await;
            }
            admitted
        });
    }
    // Not in step with the windows, and once for longer than one.
    for (up_millis, down_millis) in [(700, 0), (900, 300), (150, 2_100)] {
        sleep(Duration::from_millis(up_millis)).await;
        server.kill();
        sleep(Duration::from_millis(down_millis)).await;
        server.restart();
    }
    // It was no trick: both have decided.
    eventually("decided by both", async || by.iter().all(|by| by.load(Relaxed))).await;
    sleep(WINDOW).await;
    over.store(true, Relaxed);
    let admitted = tasks.join_all().await.concat();
    feasible(&admitted, WINDOW, MAX).unwrap_or_else(|violation| panic!("{violation}"));
}
