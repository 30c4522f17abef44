//! Those who leave a line hold up nobody behind them.

use std::time::{Duration, Instant};

use limiter_testkit::{Random, RedisServer};
use rate_limited::{Algorithm, Limiter};
use tokio::task::JoinSet;

use super::Until;
use crate::algorithms::queue::Waiting;
use crate::support::{Subject, key, limit, on, on_every_store};

on_every_store! { turns_of_a_leaky_bucket_pass_unused }

/// Each of a hundred leaves the line somewhere: before it is begun, in line, or while it asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_was_left_is_nobodys() {
    for limiter in [Limiter::memory(), on(RedisServer::shared()).connect().await.expect("connects")] {
        let limit = limit("1/20ms");
        let mut leaving = JoinSet::new();
        for seed in 0..100 {
            let limiter = limiter.clone();
            leaving.spawn(async move {
                let mut random = Random::new(seed);
                let until = match random.below(3) {
                    0 => Until::Polls(u32::try_from(random.below(3)).expect("small")),
                    _ => Until::Time(Duration::from_micros(random.below(60_000))),
                };
                drop(until.run(limiter.wait(&key("line"), &limit, Duration::from_secs(60))).await);
            });
        }
        let mut staying = JoinSet::new();
        for _ in 0..5 {
            let limiter = limiter.clone();
            staying.spawn(async move {
                let decision = limiter.wait(&key("line"), &limit, Duration::from_secs(60)).await;
                assert!(decision.expect("answers").is_allowed());
            });
        }
        leaving.join_all().await;
        let left_alone = Instant::now();
        staying.join_all().await;
        let took = left_alone.elapsed();
        // Each call that left could hold the line for as long as it was to wait: 60 s.
        assert!(took < Duration::from_secs(30), "five turns of 20 ms took {took:?}");
    }
}

/// The turn that a call was given is lost with it; it is nobody's, and there are no others.
async fn turns_of_a_leaky_bucket_pass_unused(subject: Subject) {
    let bucket = limit("1/1s").with_algorithm(Algorithm::LeakyBucket).with_burst(1_000).expect("a bucket");
    let mut random = Random::new(5);
    let (mut begun, mut staying) = (0, Vec::new());
    let call = || Waiting::begin(&subject.limiter, bucket, Duration::MAX);
    for number in 0..40 {
        if number % 4 == 0 {
            staying.push(call().await);
        } else {
            let until = match random.below(2) {
                // No more: while the clock stands still nothing polls it again.
                0 => Until::Polls(u32::try_from(random.below(2)).expect("small")),
                _ => Until::Time(Duration::from_micros(random.below(3_000))),
            };
            begun += u64::from(until.begins());
            // The first one's turn is now: it may come to its end.
            let _ = until.run(subject.limiter.wait(&key("a"), &bucket, Duration::MAX)).await;
        }
    }
    // What is under way has been given its turn before this is answered.
    let turns = async || {
        let next = subject.limiter.peek(&key("a"), &bucket).await.expect("answers");
        next.into_result().map_or_else(|denied| denied.retry_after().as_secs(), |_| 0)
    };
    let given = turns().await;
    assert!((10..=10 + begun).contains(&given) && given > 15, "{given} turns for 10 and {begun}");
    // A newcomer gets the next one, and not one that was left.
    let mut newcomer = call().await;
    assert_eq!(turns().await, given + 1);
    subject.advance_millis(1_000 * given - 1);
    assert!(!newcomer.is_over());
    subject.advance_millis(1);
    assert!(newcomer.await_turn().await);
    for call in staying {
        assert!(call.await_turn().await);
    }
}
