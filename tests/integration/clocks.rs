//! Tests with steps of the server's wall clock, caused by an operator, NTP or a failover to another host.

use std::time::{Duration, SystemTime};

use limiter_testkit::RedisServer;
use rate_limited::{Denied, Key, Limiter, Source};

use crate::reset_instants::reset;
use crate::support::{builder_for, key, limit, longest_ttl, packed_buckets};

const SECOND_MICROS: i64 = 1_000_000;

async fn limiter_with_server_clock() -> (RedisServer, Limiter) {
    let server = RedisServer::builder().shifted_clock().start();
    let limiter = builder_for(&server).remember_denials(Duration::ZERO).connect().await.expect("connects");
    (server, limiter)
}

async fn use_up(limiter: &Limiter, key: &Key, text: &str) {
    let limit = limit(text);
    while limiter.check(key, &limit).await.expect("answers").is_allowed() {}
}

async fn denied(limiter: &Limiter, key: &Key, text: &str) -> Denied {
    limiter.check(key, &limit(text)).await.expect("answers").into_result().expect_err("a denial")
}

/// Stamps are rounded up to the millisecond.
const MAX_ROUNDING: Duration = Duration::from_millis(1);

fn is_about(found: Duration, seconds: u64) -> bool {
    found <= Duration::from_secs(seconds) + MAX_ROUNDING && found > Duration::from_secs(seconds.saturating_sub(2))
}

#[tokio::test]
async fn step_back_by_less_than_a_window_frees_no_permit() {
    let (mut server, limiter) = limiter_with_server_clock().await;
    let key = key("a");
    use_up(&limiter, &key, "5/1m").await;
    for behind in [1, 20, 59] {
        server.set_clock(-behind * SECOND_MICROS);
        let denied = denied(&limiter, &key, "5/1m").await;
        let promised = 60 + u64::try_from(behind).expect("positive");
        assert!(is_about(denied.retry_after(), promised), "{behind} s behind: {:?}", denied.retry_after());
        assert!(server.pttl(&server.keys()[0]) > 0);
    }
    // Once the clock is right again, so are the waits.
    server.set_clock(0);
    assert!(is_about(denied(&limiter, &key, "5/1m").await.retry_after(), 60));
}

#[tokio::test]
async fn a_reset_is_by_the_servers_clock_in_cached_denials_too() {
    let mut server = RedisServer::builder().shifted_clock().start();
    server.set_clock(3600 * SECOND_MICROS);
    let limiter = builder_for(&server).connect().await.expect("connects");
    let (key, limit) = (key("a"), limit("1/1h"));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let check = async || limiter.check(&key, &limit).await.expect("answers");
    let [allowed, denied, cached] = [check().await, check().await, check().await];
    assert_eq!([denied.source(), cached.source()], [Source::Store, Source::DeniedUntil]);
    let expected = reset(&allowed);
    assert!(expected >= now + 7200, "{expected} is less than two hours after {now}");
    assert_eq!([reset(&denied), reset(&cached)], [expected; 2]);
}

/// A stamp more than a window ahead is void. Waiting for it would block the key for as long as the step.
#[tokio::test]
async fn step_back_by_more_than_a_window_voids_the_counter() {
    let (mut server, limiter) = limiter_with_server_clock().await;
    let key = key("a");
    use_up(&limiter, &key, "5/10s").await;
    server.set_clock(-3600 * SECOND_MICROS);
    let mut admitted = 0;
    while limiter.check(&key, &limit("5/10s")).await.expect("answers").is_allowed() {
        admitted += 1;
    }
    assert_eq!(admitted, 5, "one full limit, once");
    assert!(is_about(denied(&limiter, &key, "5/10s").await.retry_after(), 10));
    let ttl = server.pttl(&server.keys()[0]);
    // A hash keeps an expiry that is late enough, here by the step.
    let longest = longest_ttl(11_000) + packed_buckets().map_or(0, |_| 3_600_000);
    assert!((1..=longest).contains(&ttl), "{ttl} ms");
}

#[tokio::test]
async fn step_forward_frees_what_that_much_time_would() {
    let (mut server, limiter) = limiter_with_server_clock().await;
    let key = key("a");
    use_up(&limiter, &key, "5/1m").await;
    server.set_clock(50 * SECOND_MICROS);
    assert!(is_about(denied(&limiter, &key, "5/1m").await.retry_after(), 10));
    server.set_clock(61 * SECOND_MICROS);
    let mut admitted = 0;
    while limiter.check(&key, &limit("5/1m")).await.expect("answers").is_allowed() {
        admitted += 1;
    }
    assert_eq!(admitted, 5);
}

/// The clock steps forward by mistake and back: permits taken meanwhile block the key for at most two windows.
#[tokio::test]
async fn step_forward_and_back_blocks_at_most_two_windows() {
    let (mut server, limiter) = limiter_with_server_clock().await;
    for (name, ahead, longest) in [("little", 8, 18), ("much", 3600, 10)] {
        let key = key(name);
        server.set_clock(ahead * SECOND_MICROS);
        use_up(&limiter, &key, "5/10s").await;
        server.set_clock(0);
        if let Err(denied) = limiter.check(&key, &limit("5/10s")).await.expect("answers").into_result() {
            assert!(
                denied.retry_after() <= Duration::from_secs(longest) + MAX_ROUNDING,
                "{name}: {:?}",
                denied.retry_after()
            );
        }
    }
}
