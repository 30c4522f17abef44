//! Tests of decisions over keys in several slots: all or nothing, and permits of denied decisions are refunded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use limiter_testkit::history::{Admission, feasible};
use limiter_testkit::{Cluster, unique};
use rate_limited::{Decision, ManualClock};
use tokio::task::JoinSet;

use super::{builder_for, key_per_master};
use crate::deadlines::eventually;
use crate::support::limit;

#[tokio::test]
async fn multi_slot_decision_takes_all_permits_or_none() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = builder_for(&cluster).connect().await.expect("a cluster");
    let keys = key_per_master(&cluster);
    let (wide, narrow) = (limit("5/1h"), limit("2/1h"));
    let requests = [(&keys[0], &wide, 1), (&keys[1], &narrow, 1), (&keys[2], &wide, 2), (&keys[0], &narrow, 1)];
    let left = async || {
        let mut left = Vec::new();
        for (key, limit, _) in requests {
            left.push(limiter.peek(key, limit).await.expect("a peek").remaining());
        }
        left
    };
    let Decision::Allowed(first) = limiter.check_all(&requests).await.expect("a decision") else { panic!("all fit") };
    // The two limits on the first key share one counter.
    assert_eq!((left().await, first.remaining(), first.limit()), (vec![3, 1, 3, 0], 0, narrow));
    let Decision::Denied(denied) = limiter.check_all(&requests).await.expect("a decision") else {
        panic!("one does not")
    };
    assert_eq!((denied.limit(), denied.remaining(), denied.is_final()), (narrow, 0, false));
    assert!(denied.retry_after() > Duration::from_secs(3590), "{denied:?}");
    assert_eq!(left().await, [3, 1, 3, 0], "no permit was taken");
    limiter.refund(&first).await.expect("refunded");
    assert_eq!(left().await, [5, 2, 5, 2]);
    // A part of one permit of each request, then the rest of those that cost more.
    let Decision::Allowed(second) = limiter.check_all(&requests).await.expect("a decision") else { panic!("all fit") };
    limiter.refund_n(&second, 1).await.expect("refunded");
    assert_eq!(left().await, [5, 2, 4, 2]);
    limiter.refund(&second).await.expect("refunded");
    assert_eq!(left().await, [5, 2, 5, 2]);
    // A cost above one limit's maximum is denied permanently, whatever the other limit decides.
    let never = limiter.check_all(&[(&keys[0], &wide, 1), (&keys[1], &narrow, 3)]).await.expect("a decision");
    assert!(never.into_result().is_err_and(|denied| denied.is_final()));
    assert_eq!(left().await, [5, 2, 5, 2]);
}

/// Other calls may take permits between a decision's peek and its take. Permits it took by then are refunded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_multi_slot_decision_refunds_what_it_took() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = builder_for(&cluster).connect().await.expect("a cluster");
    let keys = key_per_master(&cluster);
    // The first limit has room for 20 decisions and the second one for 21, so decisions take from the first one first.
    let (first, second) = (limit("1000/1h"), limit("21/1h"));
    let mut tasks = JoinSet::new();
    let (both, second_only) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    for number in 0..100 {
        let (limiter, keys) = (limiter.clone(), keys.clone());
        let (both, second_only) = (Arc::clone(&both), Arc::clone(&second_only));
        tasks.spawn(async move {
            let requests = [(&keys[1], &second, 1), (&keys[0], &first, 50)];
            let (requests, taken) = if number % 2 == 0 { (&requests[..], both) } else { (&requests[..1], second_only) };
            let decision = limiter.check_all(requests).await.expect("a decision");
            taken.fetch_add(u32::from(decision.is_allowed()), Relaxed);
        });
    }
    tasks.join_all().await;
    let (both, second_only) = (both.load(Relaxed), second_only.load(Relaxed));
    assert_eq!(both + second_only, 21, "{both} took both");
    eventually("refunded", async || {
        limiter.peek(&keys[0], &first).await.expect("a peek").remaining() == 1000 - 50 * both
    })
    .await;
}

/// A decision that fails refunds its permit, and the next call must be allowed. The clock stands still, so a cached
/// denial would never expire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refunded_permit_of_a_failed_decision_is_free_at_once() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = builder_for(&cluster).clock(ManualClock::new()).connect().await.expect("a cluster");
    let keys = key_per_master(&cluster);
    let (one, wide) = (limit("1/1h"), limit("100/1h"));
    // This master answers peeks and rejects writes, so each decision fails after it has taken the permit.
    cluster.server(cluster.masters()[1]).command(&["CONFIG", "SET", "maxmemory", "1"]);
    let take = async || limiter.check(&keys[0], &one).await.expect("a decision").into_result();
    for _ in 0..40 {
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let (limiter, keys) = (limiter.clone(), keys.clone());
            tasks.spawn(async move { drop(limiter.check_all(&[(&keys[0], &one, 1), (&keys[1], &wide, 1)]).await) });
        }
        while !tasks.is_empty() {
            if let Ok(allowed) = take().await {
                limiter.refund(&allowed).await.expect("refunded");
            }
            tokio::task::yield_now().await;
            while tasks.try_join_next().is_some() {}
        }
        eventually("refunded", async || limiter.peek(&keys[0], &one).await.expect("a peek").remaining() == 1).await;
        let allowed = take().await.expect("a permit is free");
        limiter.refund(&allowed).await.expect("refunded");
    }
}

/// One user sends 40 concurrent decisions from each of two processes, far above that user's own limit. The shared limit
/// has room for the calls of others. The clock is manual, so that no call is late on a slow machine. The windows are
/// minutes long, because keys expire by the server's clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bursts_above_one_limit_do_not_deny_calls_below_the_other() {
    const STEPS: u32 = 150;
    const BURST: u32 = 40;
    const MINUTE: Duration = Duration::from_secs(60);
    let cluster = Cluster::builder().masters_only().start();
    let (clock, prefix) = (ManualClock::new(), unique("bursts"));
    let process = async || {
        builder_for(&cluster)
            .prefix(&prefix)
            .clock(clock.clone())
            .remember_denials(MINUTE)
            .connect()
            .await
            .expect("a cluster")
    };
    let processes = [process().await, process().await, process().await];
    let keys = key_per_master(&cluster);
    let (shared, user) = (keys[0].clone(), keys[1].clone());
    let (wide, narrow) = (limit("50/2m"), limit("1/30s"));
    // 36 steps in two minutes. With the 4 permits that the user gets, at most 41 of 50 are in use.
    let pause = Duration::from_millis(3_300);
    let (mut now, mut by_user, mut by_others, mut denied) = (Duration::ZERO, Vec::new(), Vec::new(), 0);
    let at = |now| Admission { start: now, end: now, cost: 1 };
    for step in 0..STEPS {
        let mut bursts = JoinSet::new();
        for number in 0..2 * BURST {
            let process = processes[usize::from(number % 2 == 0)].clone();
            let (shared, user) = (shared.clone(), user.clone());
            bursts.spawn(async move {
                let both = [(&shared, &wide, 1), (&user, &narrow, 1)];
                process.check_all(&both).await.expect("a decision").is_allowed()
            });
        }
        // Another user's call starts before, during or after the replies to the bursts.
        let mut replies = Vec::new();
        for _ in 0..step % 4 * BURST / 2 {
            replies.extend(bursts.join_next().await);
        }
        let other = &processes[step as usize % 3];
        if other.check(&shared, &wide).await.expect("a decision").is_allowed() {
            by_others.push(at(now));
        } else {
            denied += 1;
        }
        while let Some(reply) = bursts.join_next().await {
            replies.push(reply);
        }
        by_user.extend(replies.into_iter().filter(|allowed| *allowed.as_ref().expect("no panic")).map(|_| at(now)));
        clock.advance(pause);
        now += pause;
    }
    feasible(&by_user, narrow.window(), narrow.max()).expect("the user's limit is kept");
    let all = [&by_user[..], &by_others].concat();
    feasible(&all, wide.window(), wide.max()).expect("the shared limit is kept");
    assert!(by_user.len() > 5, "{} calls of the user were allowed", by_user.len());
    assert!(denied * 50 <= STEPS, "{denied} of {STEPS} calls of the others were denied");
    let live = all.iter().filter(|call| call.start + wide.window() > now).count();
    let left = wide.max() - u32::try_from(live).expect("few");
    eventually("as many left as were not granted", async || {
        processes[0].peek(&shared, &wide).await.expect("a peek").remaining() == left
    })
    .await;
}

/// Permits taken before a failed decision come back at the same time as without it.
#[tokio::test]
async fn failed_multi_slot_decision_leaves_no_trace() {
    let cluster = Cluster::builder().masters_only().start();
    let clock = ManualClock::new();
    let limiter = builder_for(&cluster).clock(clock.clone()).connect().await.expect("a cluster");
    let keys = key_per_master(&cluster);
    let (narrow, wide) = (limit("5/10s"), limit("100/10s"));
    assert!(limiter.check(&keys[0], &narrow).await.expect("a decision").is_allowed());
    clock.advance(Duration::from_secs(6));
    // This master answers peeks and rejects writes.
    let full = cluster.masters()[1];
    cluster.server(full).command(&["CONFIG", "SET", "maxmemory", "1"]);
    let both = [(&keys[0], &narrow, 2), (&keys[1], &wide, 1)];
    limiter.check_all(&both).await.expect_err("the second slot's server is full");
    let left = async || limiter.peek(&keys[0], &narrow).await.expect("a peek").remaining();
    eventually("refunded", async || left().await == 4).await;
    clock.advance(Duration::from_millis(3_999));
    assert_eq!(left().await, 4);
    clock.advance(Duration::from_millis(1));
    assert_eq!(left().await, 5, "the permit of the first call is as old as it was");
}

/// The caller is dropped after the first slot's reply and before the second one's.
#[tokio::test]
async fn dropped_multi_slot_decision_takes_no_permit() {
    let mut cluster = Cluster::builder().masters_only().node_timeout(Duration::from_secs(60)).start();
    let limiter = builder_for(&cluster).connect().await.expect("a cluster");
    let keys = key_per_master(&cluster);
    let [first, second] = [cluster.masters()[0], cluster.masters()[1]];
    let (narrow, wide) = (limit("5/1h"), limit("100/1h"));
    let decide = {
        let (limiter, keys) = (limiter.clone(), keys.clone());
        async move || limiter.check_all(&[(&keys[0], &narrow, 1), (&keys[1], &wide, 1)]).await
    };
    // Connects the limiter to both masters.
    for (key, limit) in [(&keys[0], &narrow), (&keys[1], &wide)] {
        drop(limiter.peek(key, limit).await.expect("a peek"));
    }
    let calls = |cluster: &Cluster| cluster.server(first).info("commandstats").remove("cmdstat_evalsha");
    let before = calls(&cluster);
    cluster.pause(second);
    let dropped = tokio::spawn({
        let decide = decide.clone();
        async move { decide().await }
    });
    eventually("the first slot is peeked at", async || calls(&cluster) != before).await;
    dropped.abort();
    assert!(dropped.await.expect_err("dropped").is_cancelled());
    cluster.resume(second);
    // On each connection, its commands follow those of the dropped decision.
    assert!(decide().await.expect("a decision").is_allowed());
    eventually("one decision is counted", async || {
        let left = async |key, limit| limiter.peek(key, limit).await.expect("a peek").remaining();
        (left(&keys[0], &narrow).await, left(&keys[1], &wide).await) == (4, 99)
    })
    .await;
}
