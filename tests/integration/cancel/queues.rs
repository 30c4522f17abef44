//! Tests that dropped waiters do not delay those behind them.

use std::time::{Duration, Instant};

use limiter_testkit::{Random, RedisServer};
use rate_limited::{Algorithm, Limiter};
use tokio::task::JoinSet;

use super::DropPoint;
use crate::algorithms::queue::WaitingCall;
use crate::support::{Subject, builder_for, key, limit, on_every_store};

on_every_store! { slots_of_dropped_calls_in_a_leaky_bucket_pass_unused }

/// A hundred waiters are dropped: before the first poll, in the queue, or during a call to the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_waiters_do_not_block_the_queue() {
    for limiter in [Limiter::memory(), builder_for(RedisServer::shared()).connect().await.expect("connects")] {
        let limit = limit("1/20ms");
        let mut leaving = JoinSet::new();
        for seed in 0..100 {
            let limiter = limiter.clone();
            leaving.spawn(async move {
                let mut random = Random::new(seed);
                let drop_point = match random.below(3) {
                    0 => DropPoint::Polls(u32::try_from(random.below(3)).expect("small")),
                    _ => DropPoint::Time(Duration::from_micros(random.below(60_000))),
                };
                drop(drop_point.run(limiter.wait(&key("queue"), &limit, Duration::from_secs(60))).await);
            });
        }
        let mut staying = JoinSet::new();
        for _ in 0..5 {
            let limiter = limiter.clone();
            staying.spawn(async move {
                let decision = limiter.wait(&key("queue"), &limit, Duration::from_secs(60)).await;
                assert!(decision.expect("answers").is_allowed());
            });
        }
        leaving.join_all().await;
        let all_dropped = Instant::now();
        staying.join_all().await;
        let took = all_dropped.elapsed();
        // A dropped call that still held its place would block the queue for its maximal wait of 60 s.
        assert!(took < Duration::from_secs(30), "five turns of 20 ms took {took:?}");
    }
}

/// The slot that a dropped call had reserved passes unused, and no other slot is lost.
async fn slots_of_dropped_calls_in_a_leaky_bucket_pass_unused(subject: Subject) {
    let bucket = limit("1/1s").with_algorithm(Algorithm::LeakyBucket).with_burst(1_000).expect("a bucket");
    let mut random = Random::new(5);
    let (mut polled, mut staying) = (0, Vec::new());
    let call = || WaitingCall::begin(&subject.limiter, bucket, Duration::MAX);
    for number in 0..40 {
        if number % 4 == 0 {
            staying.push(call().await);
        } else {
            let drop_point = match random.below(2) {
                // At most one poll: while the clock stands still, nothing wakes the call for another.
                0 => DropPoint::Polls(u32::try_from(random.below(2)).expect("small")),
                _ => DropPoint::Time(Duration::from_micros(random.below(3_000))),
            };
            polled += u64::from(drop_point.is_polled());
            // The first call's slot is now, so it may complete.
            let _ = drop_point.run(subject.limiter.wait(&key("a"), &bucket, Duration::MAX)).await;
        }
    }
    // The store handles requests in order, so calls in flight have their slots before this reply.
    let reserved_slots = async || {
        let next = subject.limiter.peek(&key("a"), &bucket).await.expect("answers");
        next.into_result().map_or_else(|denied| denied.retry_after().as_secs(), |_| 0)
    };
    let reserved = reserved_slots().await;
    assert!((10..=10 + polled).contains(&reserved) && reserved > 15, "{reserved} slots for 10 and {polled}");
    // A new call gets the next slot, not one of a dropped call.
    let mut new_call = call().await;
    assert_eq!(reserved_slots().await, reserved + 1);
    subject.advance_millis(1_000 * reserved - 1);
    assert!(!new_call.poll_is_done());
    subject.advance_millis(1);
    assert!(new_call.finish().await);
    for call in staying {
        assert!(call.finish().await);
    }
}
