//! Decisions about keys in several slots: all or nothing, and nothing is left of what was taken in vain.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use limiter_testkit::history::{Admission, feasible};
use limiter_testkit::{Cluster, unique};
use rate_limited::{Decision, ManualClock};
use tokio::task::JoinSet;

use super::{on, one_a_master};
use crate::deadlines::eventually;
use crate::support::limit;

#[tokio::test]
async fn several_slots_are_all_or_nothing() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = on(&cluster).connect().await.expect("a cluster");
    let keys = one_a_master(&cluster);
    let (wide, narrow) = (limit("5/1h"), limit("2/1h"));
    let asked = [(&keys[0], &wide, 1), (&keys[1], &narrow, 1), (&keys[2], &wide, 2), (&keys[0], &narrow, 1)];
    let left = async || {
        let mut left = Vec::new();
        for (key, limit, _) in asked {
            left.push(limiter.peek(key, limit).await.expect("a look").remaining());
        }
        left
    };
    let Decision::Allowed(first) = limiter.check_all(&asked).await.expect("a decision") else { panic!("all fit") };
    // Those of one key and window are one count.
    assert_eq!((left().await, first.remaining(), first.limit()), (vec![3, 1, 3, 0], 0, narrow));
    let Decision::Denied(denied) = limiter.check_all(&asked).await.expect("a decision") else { panic!("one does not") };
    assert_eq!((denied.limit(), denied.remaining(), denied.is_final()), (narrow, 0, false));
    assert!(denied.retry_after() > Duration::from_secs(3590), "{denied:?}");
    assert_eq!(left().await, [3, 1, 3, 0], "nothing was taken");
    limiter.refund(&first).await.expect("given back");
    assert_eq!(left().await, [5, 2, 5, 2]);
    // Too much for one is too much for ever, whatever the others say.
    let never = limiter.check_all(&[(&keys[0], &wide, 1), (&keys[1], &narrow, 3)]).await.expect("a decision");
    assert!(never.into_result().is_err_and(|denied| denied.is_final()));
    assert_eq!(left().await, [5, 2, 5, 2]);
}

/// Between the peek and the taking others may take: what was taken by then is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_slots_give_back_what_they_took_in_vain() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = on(&cluster).connect().await.expect("a cluster");
    let keys = one_a_master(&cluster);
    // A decision fits 20 times the first limit and 21 times the second one, so that it takes from the first one first.
    let (first, second) = (limit("1000/1h"), limit("21/1h"));
    let mut tasks = JoinSet::new();
    let (both, alone) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    for number in 0..100 {
        let (limiter, keys) = (limiter.clone(), keys.clone());
        let (both, alone) = (Arc::clone(&both), Arc::clone(&alone));
        tasks.spawn(async move {
            let asked = [(&keys[1], &second, 1), (&keys[0], &first, 50)];
            let (asked, taken) = if number % 2 == 0 { (&asked[..], both) } else { (&asked[..1], alone) };
            let decision = limiter.check_all(asked).await.expect("a decision");
            taken.fetch_add(u32::from(decision.is_allowed()), Relaxed);
        });
    }
    tasks.join_all().await;
    let (both, alone) = (both.load(Relaxed), alone.load(Relaxed));
    assert_eq!(both + alone, 21, "{both} took both");
    eventually("given back", async || {
        limiter.peek(&keys[0], &first).await.expect("a look").remaining() == 1000 - 50 * both
    })
    .await;
}

/// A call that is denied for a permit that was taken in vain is allowed once that is given back. The clock stands still, and so
/// would a denial that is remembered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_taken_in_vain_denies_nobody_after_that() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = on(&cluster).clock(ManualClock::new()).connect().await.expect("a cluster");
    let keys = one_a_master(&cluster);
    let (one, wide) = (limit("1/1h"), limit("100/1h"));
    // It answers looks and takes nothing, so that each decision fails after it has taken the one permit.
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
                limiter.refund(&allowed).await.expect("given back");
            }
            tokio::task::yield_now().await;
            while tasks.try_join_next().is_some() {}
        }
        eventually("given back", async || limiter.peek(&keys[0], &one).await.expect("a look").remaining() == 1).await;
        let allowed = take().await.expect("there is a permit");
        limiter.refund(&allowed).await.expect("given back");
    }
}

/// Two processes in which one user sends 40 decisions at once, far above that user's own limit, and the calls of others, which
/// the common limit has room for. The clock moves by hand, so that a slow machine makes no call late; the windows are minutes,
/// since keys expire by the server's clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bursts_above_one_limit_deny_nobody_below_the_other() {
    const STEPS: u32 = 150;
    const BURST: u32 = 40;
    const MINUTE: Duration = Duration::from_secs(60);
    let cluster = Cluster::builder().masters_only().start();
    let (clock, prefix) = (ManualClock::new(), unique("bursts"));
    let process = async || {
        on(&cluster).prefix(&prefix).clock(clock.clone()).remember_denials(MINUTE).connect().await.expect("a cluster")
    };
    let processes = [process().await, process().await, process().await];
    let keys = one_a_master(&cluster);
    let (everybody, user) = (keys[0].clone(), keys[1].clone());
    let (wide, narrow) = (limit("50/2m"), limit("1/30s"));
    // 36 in two minutes: with the 4 permits that the user gets, 41 of 50 are in use at most.
    let pause = Duration::from_millis(3_300);
    let (mut now, mut by_user, mut by_others, mut denied) = (Duration::ZERO, Vec::new(), Vec::new(), 0);
    let at = |now| Admission { start: now, end: now, cost: 1 };
    for step in 0..STEPS {
        let mut bursts = JoinSet::new();
        for number in 0..2 * BURST {
            let process = processes[usize::from(number % 2 == 0)].clone();
            let (everybody, user) = (everybody.clone(), user.clone());
            bursts.spawn(async move {
                let both = [(&everybody, &wide, 1), (&user, &narrow, 1)];
                process.check_all(&both).await.expect("a decision").is_allowed()
            });
        }
        // The call of another begins before, amid or after the answers to the bursts.
        let mut answers = Vec::new();
        for _ in 0..step % 4 * BURST / 2 {
            answers.extend(bursts.join_next().await);
        }
        let other = &processes[step as usize % 3];
        if other.check(&everybody, &wide).await.expect("a decision").is_allowed() {
            by_others.push(at(now));
        } else {
            denied += 1;
        }
        while let Some(answer) = bursts.join_next().await {
            answers.push(answer);
        }
        by_user.extend(answers.into_iter().filter(|allowed| *allowed.as_ref().expect("no panic")).map(|_| at(now)));
        clock.advance(pause);
        now += pause;
    }
    feasible(&by_user, narrow.window(), narrow.max()).expect("the user's limit is kept");
    let all = [&by_user[..], &by_others].concat();
    feasible(&all, wide.window(), wide.max()).expect("the limit of all is kept");
    assert!(by_user.len() > 5, "{} calls of the user were allowed", by_user.len());
    assert!(denied * 50 <= STEPS, "{denied} of {STEPS} calls of the others were denied");
    let live = all.iter().filter(|call| call.start + wide.window() > now).count();
    let left = wide.max() - u32::try_from(live).expect("few");
    eventually("as many left as were not given", async || {
        processes[0].peek(&everybody, &wide).await.expect("a look").remaining() == left
    })
    .await;
}

/// Permits that were taken before the decision come back when they would have without it.
#[tokio::test]
async fn a_decision_that_fails_halfway_leaves_no_trace() {
    let cluster = Cluster::builder().masters_only().start();
    let clock = ManualClock::new();
    let limiter = on(&cluster).clock(clock.clone()).connect().await.expect("a cluster");
    let keys = one_a_master(&cluster);
    let (narrow, wide) = (limit("5/10s"), limit("100/10s"));
    assert!(limiter.check(&keys[0], &narrow).await.expect("a decision").is_allowed());
    clock.advance(Duration::from_secs(6));
    // It answers looks and takes nothing.
    let full = cluster.masters()[1];
    cluster.server(full).command(&["CONFIG", "SET", "maxmemory", "1"]);
    let both = [(&keys[0], &narrow, 2), (&keys[1], &wide, 1)];
    limiter.check_all(&both).await.expect_err("the second slot's server is full");
    let left = async || limiter.peek(&keys[0], &narrow).await.expect("a look").remaining();
    eventually("given back", async || left().await == 4).await;
    clock.advance(Duration::from_millis(3_999));
    assert_eq!(left().await, 4);
    clock.advance(Duration::from_millis(1));
    assert_eq!(left().await, 5, "the permit of the first call is as old as it was");
}

/// The first slot has answered when the caller goes, the second has not.
#[tokio::test]
async fn a_decision_whose_caller_is_gone_takes_nothing() {
    let mut cluster = Cluster::builder().masters_only().node_timeout(Duration::from_secs(60)).start();
    let limiter = on(&cluster).connect().await.expect("a cluster");
    let keys = one_a_master(&cluster);
    let [first, second] = [cluster.masters()[0], cluster.masters()[1]];
    let (narrow, wide) = (limit("5/1h"), limit("100/1h"));
    let decide = {
        let (limiter, keys) = (limiter.clone(), keys.clone());
        async move || limiter.check_all(&[(&keys[0], &narrow, 1), (&keys[1], &wide, 1)]).await
    };
    // So that it is connected to both.
    for (key, limit) in [(&keys[0], &narrow), (&keys[1], &wide)] {
        drop(limiter.peek(key, limit).await.expect("a look"));
    }
    let calls = |cluster: &Cluster| cluster.server(first).info("commandstats").remove("cmdstat_evalsha");
    let before = calls(&cluster);
    cluster.pause(second);
    let dropped = tokio::spawn({
        let decide = decide.clone();
        async move { decide().await }
    });
    eventually("the first slot is looked at", async || calls(&cluster) != before).await;
    dropped.abort();
    assert!(dropped.await.expect_err("dropped").is_cancelled());
    cluster.resume(second);
    // Its commands follow those of the dropped decision, on each connection.
    assert!(decide().await.expect("a decision").is_allowed());
    eventually("one decision is counted", async || {
        let left = async |key, limit| limiter.peek(key, limit).await.expect("a look").remaining();
        (left(&keys[0], &narrow).await, left(&keys[1], &wide).await) == (4, 99)
    })
    .await;
}
