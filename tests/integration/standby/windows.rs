//! Tests of outages in the middle of a server's window, with real clocks.
//!
//! The windows of `fixed_window` and `sliding_counter` begin at multiples of their length from a clock's origin. The
//! server's clock is ahead of this process's, so a window of this process begins while one of the server's goes on.

use std::time::{Duration, SystemTime};

use limiter_testkit::history::{Admission, max_permits_in_window};
use limiter_testkit::{RedisServer, unique};
use rate_limited::{Algorithm, Decision, Limit, Limiter, Source};
use tokio::time::sleep;

use super::wait_until_connected;
use crate::support::{LONG_DEADLINE, key};

const MAX_PERMITS: u32 = 5;

/// The time by which the server's clock is ahead.
const SERVER_LEAD: Duration = Duration::from_millis(400);

/// A window's length, and the instants at which windows of the two clocks begin, as times since the Unix epoch.
#[derive(Debug)]
struct Window {
    length: Duration,
    server_edge: Duration,
    /// The beginning of the process's window, a tenth to a quarter of the length later.
    process_edge: Duration,
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970")
}

async fn wait_until(instant: Duration) {
    while now() < instant {
        sleep(Duration::from_millis(1)).await;
    }
}

fn remainder(time: Duration, length: Duration) -> Duration {
    Duration::from_micros(u64::try_from(time.as_micros() % length.as_micros()).expect("less than the length"))
}

impl Window {
    /// Finds a window that begins soon on a server whose clock is ahead by [`SERVER_LEAD`].
    async fn find() -> Self {
        // The embedded store reveals when windows of this process's clock begin.
        let memory = Limiter::builder().connect().await.expect("the embedded store");
        let (key, length) = (key("edge"), Duration::from_millis(2_000));
        let fixed = Limit::new(1, length).expect("a limit").with_algorithm(Algorithm::FixedWindow);
        loop {
            let process_edge = now() + memory.check(&key, &fixed).await.expect("a decision").reset_after();
            let server_time = process_edge + SERVER_LEAD;
            let server_edge = server_time - remainder(server_time, length) - SERVER_LEAD;
            if (length / 10..length / 4).contains(&(process_edge - server_edge)) && server_edge > now() {
                return Self { length, server_edge, process_edge };
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn limit(&self, algorithm: Algorithm) -> Limit {
        Limit::new(MAX_PERMITS, self.length).expect("a limit").with_algorithm(algorithm)
    }

    /// Returns the number of permits that were certainly taken in the server's window.
    fn certain_count(&self, admitted: &[Admission]) -> usize {
        let window = self.server_edge..self.server_edge + self.length;
        admitted.iter().filter(|call| window.contains(&call.start) && window.contains(&call.end)).count()
    }
}

/// Takes permits until one is denied, and returns their sources.
async fn take_all(limiter: &Limiter, limit: &Limit, admitted: &mut Vec<Admission>) -> Vec<Source> {
    let mut sources = Vec::new();
    loop {
        let start = now();
        let decision = limiter.check(&key("a"), limit).await.expect("the standby limiter at least");
        let Decision::Allowed(allowed) = decision else { return sources };
        admitted.push(Admission { start, end: now(), cost: 1 });
        sources.push(allowed.source());
    }
}

async fn assert_mid_window_outage_gives_no_fresh_quota(algorithm: Algorithm) {
    let mut server = RedisServer::builder().shifted_clock().start();
    server.set_clock(i64::try_from(SERVER_LEAD.as_micros()).expect("less than a second"));
    let limiter = Limiter::builder().url(server.url()).prefix(unique("windows")).deadline(LONG_DEADLINE);
    let limiter = limiter.connect().await.expect("the server is there");
    let mut admitted = Vec::new();
    let window = loop {
        let window = Window::find().await;
        limiter.reset(&key("a"), &window.limit(algorithm)).await.expect("the server is there");
        wait_until(window.server_edge).await;
        let sources = take_all(&limiter, &window.limit(algorithm), &mut admitted).await;
        // Otherwise the machine was too slow for this window.
        if now() < window.process_edge && sources == [Source::Store; MAX_PERMITS as usize] {
            break window;
        }
        admitted.clear();
    };
    let limit = window.limit(algorithm);
    // By this process's clock, a sliding counter would no longer count two of the permits, and a fixed window none.
    wait_until(window.process_edge + window.length * 45 / 100).await;
    server.kill();
    take_all(&limiter, &limit, &mut admitted).await;
    server.restart();
    wait_until_connected(&limiter).await;
    take_all(&limiter, &limit, &mut admitted).await;
    let certain_count = window.certain_count(&admitted);
    assert!(certain_count <= MAX_PERMITS as usize, "{certain_count} of {MAX_PERMITS} in {window:?}");
    // The server's next window, with another restart while the standby limiter is consulted.
    wait_until(window.server_edge + window.length).await;
    take_all(&limiter, &limit, &mut admitted).await;
    server.kill();
    take_all(&limiter, &limit, &mut admitted).await;
    server.restart();
    wait_until_connected(&limiter).await;
    take_all(&limiter, &limit, &mut admitted).await;
    let next = Window { server_edge: window.server_edge + window.length, ..window };
    assert!(
        next.certain_count(&admitted) <= MAX_PERMITS as usize,
        "{} of {MAX_PERMITS} in {next:?}",
        next.certain_count(&admitted)
    );
    let fullest = max_permits_in_window(&admitted, next.length);
    assert!(fullest <= 2 * u64::from(MAX_PERMITS), "{fullest} in a window's length");
}

#[tokio::test]
async fn outage_within_a_fixed_window_gives_no_fresh_quota() {
    assert_mid_window_outage_gives_no_fresh_quota(Algorithm::FixedWindow).await;
}

#[tokio::test]
async fn outage_within_a_sliding_counter_window_gives_no_fresh_quota() {
    assert_mid_window_outage_gives_no_fresh_quota(Algorithm::SlidingCounter).await;
}

/// Returns a length of windows that do not end during the test, by either clock.
fn long_window() -> Duration {
    let hours = (1_000..).map(|hours| Duration::from_secs(hours * 60 * 60));
    let is_in_its_middle = |length: &Duration| (*length / 5..*length * 4 / 5).contains(&remainder(now(), *length));
    hours.into_iter().find(is_in_its_middle).expect("some length")
}

#[tokio::test]
async fn server_that_restarts_empty_repeatedly_grants_one_quota() {
    for (algorithm, quota) in [
        (Algorithm::SlidingWindow, MAX_PERMITS),
        (Algorithm::FixedWindow, MAX_PERMITS),
        (Algorithm::SlidingCounter, MAX_PERMITS),
        (Algorithm::TokenBucket, MAX_PERMITS),
        (Algorithm::LeakyBucket, 1),
    ] {
        let mut server = RedisServer::start();
        let limiter = Limiter::builder().url(server.url()).prefix(unique("windows")).deadline(LONG_DEADLINE);
        let limiter = limiter.connect().await.expect("the server is there");
        let limit = Limit::new(MAX_PERMITS, long_window()).expect("a limit").with_algorithm(algorithm);
        let mut sources = take_all(&limiter, &limit, &mut Vec::new()).await;
        for is_called_meanwhile in [true, false, true] {
            server.kill();
            if is_called_meanwhile {
                sources.extend(take_all(&limiter, &limit, &mut Vec::new()).await);
            }
            server.restart();
            wait_until_connected(&limiter).await;
            sources.extend(take_all(&limiter, &limit, &mut Vec::new()).await);
        }
        assert_eq!(sources, vec![Source::Store; quota as usize], "{algorithm:?}");
    }
}
