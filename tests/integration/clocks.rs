//! A server's wall clock steps, as by an operator, NTP or a failover to another host: what that can and cannot do.

use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Denied, Key, Limiter};

use crate::support::{key, limit, on};

const SECOND: i64 = 1_000_000;

async fn with_clock() -> (RedisServer, Limiter) {
    let server = RedisServer::builder().shifted_clock().start();
    let limiter = on(&server).remember_denials(Duration::ZERO).connect().await.expect("connects");
    (server, limiter)
}

async fn used_up(limiter: &Limiter, key: &Key, text: &str) {
    let limit = limit(text);
    while limiter.check(key, &limit).await.expect("answers").is_allowed() {}
}

async fn denied(limiter: &Limiter, key: &Key, text: &str) -> Denied {
    limiter.check(key, &limit(text)).await.expect("answers").into_result().expect_err("a denial")
}

/// Stamps are rounded up to the millisecond.
const ROUNDING: Duration = Duration::from_millis(1);

fn about(found: Duration, seconds: u64) -> bool {
    found <= Duration::from_secs(seconds) + ROUNDING && found > Duration::from_secs(seconds.saturating_sub(2))
}

#[tokio::test]
async fn back_by_less_than_a_window_frees_nothing() {
    let (mut server, limiter) = with_clock().await;
    let key = key("a");
    used_up(&limiter, &key, "5/1m").await;
    for behind in [1, 20, 59] {
        server.set_clock(-behind * SECOND);
        let denied = denied(&limiter, &key, "5/1m").await;
        let promised = 60 + u64::try_from(behind).expect("positive");
        assert!(about(denied.retry_after(), promised), "{behind} s behind: {:?}", denied.retry_after());
        assert!(server.pttl(&server.keys()[0]) > 0);
    }
    // And when the clock is right again, so is everything else.
    server.set_clock(0);
    assert!(about(denied(&limiter, &key, "5/1m").await.retry_after(), 60));
}

/// A stamp that far ahead proves nothing any more: waiting for it could block the key for as long as the step was.
#[tokio::test]
async fn back_by_more_than_a_window_starts_anew() {
    let (mut server, limiter) = with_clock().await;
    let key = key("a");
    used_up(&limiter, &key, "5/10s").await;
    server.set_clock(-3600 * SECOND);
    let mut admitted = 0;
    while limiter.check(&key, &limit("5/10s")).await.expect("answers").is_allowed() {
        admitted += 1;
    }
    assert_eq!(admitted, 5, "one window's worth, once");
    assert!(about(denied(&limiter, &key, "5/10s").await.retry_after(), 10));
    let ttl = server.pttl(&server.keys()[0]);
    assert!((1..=11_000).contains(&ttl), "{ttl} ms");
}

#[tokio::test]
async fn forward_frees_what_that_much_time_would() {
    let (mut server, limiter) = with_clock().await;
    let key = key("a");
    used_up(&limiter, &key, "5/1m").await;
    server.set_clock(50 * SECOND);
    assert!(about(denied(&limiter, &key, "5/1m").await.retry_after(), 10));
    server.set_clock(61 * SECOND);
    let mut admitted = 0;
    while limiter.check(&key, &limit("5/1m")).await.expect("answers").is_allowed() {
        admitted += 1;
    }
    assert_eq!(admitted, 5);
}

/// Forward by mistake and back again: what was taken by the wrong clock blocks for no more than two windows.
#[tokio::test]
async fn there_and_back_again_blocks_nobody_for_long() {
    let (mut server, limiter) = with_clock().await;
    for (name, ahead, longest) in [("little", 8, 18), ("much", 3600, 10)] {
        let key = key(name);
        server.set_clock(ahead * SECOND);
        used_up(&limiter, &key, "5/10s").await;
        server.set_clock(0);
        if let Err(denied) = limiter.check(&key, &limit("5/10s")).await.expect("answers").into_result() {
            assert!(
                denied.retry_after() <= Duration::from_secs(longest) + ROUNDING,
                "{name}: {:?}",
                denied.retry_after()
            );
        }
    }
}
