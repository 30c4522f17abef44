//! Tests of calls that come to a queue which is too long for their wait: they are denied at once.

use std::iter::{Peekable, from_fn};
use std::slice::Iter;
use std::task::Poll::{Pending, Ready};
use std::time::Duration;

use limiter_testkit::{Random, RedisServer};
use rate_limited::{Algorithm, Decision, Denied, Limit, rate_limited};

use super::held_store::HeldStore;
use super::polled::Polled;
use crate::deadlines::eventually;
use crate::support::{Subject, key, limit};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn with(algorithm: Algorithm, text: &str) -> Limit {
    limit(text).with_algorithm(algorithm)
}

fn denial(call: &mut Polled<Decision>) -> Option<Denied> {
    match call.poll() {
        Ready(Decision::Denied(denied)) => Some(denied),
        _ => None,
    }
}

/// 60 calls at once, 5 permits in 200 ms, a wait of 500 ms. Those that even three windows have no permits for do not wait.
#[tokio::test]
async fn calls_that_no_schedule_could_serve_are_denied_at_once() {
    for (algorithm, denied_at_once) in [
        (Algorithm::SlidingWindow, 60 - 5 - 3 * 5),
        (Algorithm::FixedWindow, 60 - 5 - 4 * 5),
        (Algorithm::SlidingCounter, 60 - 5 - 4 * 5),
        // It holds less than one permit, and gets one each 40 ms.
        (Algorithm::TokenBucket, 60 - 5 - 13),
    ] {
        let subject = Subject::memory().await;
        let limit = with(algorithm, "5/200ms");
        let mut calls: Vec<_> = (0..60).map(|_| Polled::wait(&subject.limiter, limit, millis(500))).collect();
        let (mut served, mut denied) = (0, 0);
        let mut waiting = Vec::new();
        for mut call in calls.drain(..) {
            match call.poll() {
                Ready(Decision::Allowed(_)) => served += 1,
                Ready(Decision::Denied(denial)) => {
                    denied += 1;
                    assert!(denial.retry_after() > Duration::ZERO && !denial.is_final(), "{denial:?}");
                }
                Pending => waiting.push(call),
            }
        }
        assert_eq!((served, denied), (5, denied_at_once), "{algorithm:?}");
        for _ in 0..500 {
            subject.advance_millis(1);
            while let Some(index) = waiting.iter().position(Polled::is_woken) {
                match waiting[index].poll() {
                    Ready(Decision::Allowed(_)) => served += 1,
                    Ready(Decision::Denied(_)) => {}
                    Pending => continue,
                }
                waiting.remove(index);
            }
        }
        assert!(waiting.is_empty());
        // The sliding counter is stricter than its bound.
        assert!(served >= 12, "{algorithm:?}: {served} calls were served");
    }
}

/// The costs of the calls ahead count, not their number.
#[tokio::test]
async fn the_bound_is_of_costs() {
    let subject = Subject::memory().await;
    let limit = limit("10/1s");
    assert!(subject.limiter.check_n(&key("a"), &limit, 10).await.expect("answers").is_allowed());
    let wait = |cost| {
        let limiter = subject.limiter.clone();
        Polled::new(async move { limiter.wait_n(&key("a"), &limit, cost, millis(1_500)).await.expect("answers") })
    };
    let mut ahead = [wait(9), wait(9)];
    ahead.iter_mut().for_each(Polled::assert_waits);
    let mut fits = wait(2);
    fits.assert_waits();
    let mut costly = wait(1);
    assert_eq!(denial(&mut costly).map(|denied| denied.retry_after()), Some(millis(1_000)));
    // One leaves, so there is room for others.
    let [_first, second] = ahead;
    drop(second);
    let mut later = wait(9);
    later.assert_waits();
}

/// The check of the first call has taken its permits, and its reply is on its way. So these do not count once more.
#[tokio::test]
async fn a_call_ahead_that_has_its_permits_does_not_count() {
    const WINDOW: u64 = 3_600_000;
    let server = RedisServer::start();
    let store = HeldStore::on(&server).await;
    let wait = |wait_millis| {
        let limiter = store.limiter.clone();
        Polled::new(
            async move { limiter.wait_n(&key("a"), &limit("5/1h"), 5, millis(wait_millis)).await.expect("answers") },
        )
    };
    assert!(store.poll_with_reply(&mut wait(WINDOW)), "permits are free");
    let mut ahead = wait(60 * WINDOW);
    assert!(!store.poll_with_reply(&mut ahead));
    store.clock.advance(millis(WINDOW));
    assert!(ahead.is_woken());
    let before = server.script_calls();
    ahead.assert_waits();
    eventually("the check runs", async || server.script_calls() > before).await;
    store.clock.advance(millis(10));
    let mut behind = wait(WINDOW - 5);
    assert!(behind.poll().is_pending());
    store.deliver_reply(&behind);
    behind.assert_waits();
    store.release();
    assert!(ahead.finish().is_allowed());
    store.clock.advance(millis(WINDOW - 10));
    assert!(behind.finish().is_allowed());
}

/// The permits of all calls ahead and of this one are free. The calls ahead were not polled yet.
#[tokio::test]
async fn no_call_is_denied_at_once_if_all_calls_ahead_and_it_fit_now() {
    for algorithm in
        [Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::SlidingCounter, Algorithm::TokenBucket]
    {
        for reset in [false, true] {
            let subject = Subject::memory().await;
            let limit = with(algorithm, "10/1s");
            assert!(subject.limiter.check_n(&key("a"), &limit, 10).await.expect("answers").is_allowed());
            let mut ahead: Vec<_> = (0..9).map(|_| Polled::wait(&subject.limiter, limit, millis(60_000))).collect();
            ahead.iter_mut().for_each(Polled::assert_waits);
            if reset {
                subject.limiter.reset(&key("a"), &limit).await.expect("resets");
            } else {
                subject.advance_millis(2_000);
            }
            let mut last = Polled::wait(&subject.limiter, limit, millis(1));
            last.assert_waits();
            ahead.iter_mut().for_each(Polled::assert_admitted);
            last.assert_admitted();
        }
    }
}

/// A decision about several limits has a bound for each of them.
#[tokio::test]
async fn the_strictest_of_several_limits_counts() {
    #[rate_limited(key = "user", limit = "1/1s", wait = "1500ms")]
    #[rate_limited(key = "all", limit = "100/1s")]
    async fn call() -> Result<(), Denied> {
        Ok(())
    }

    let subject = Subject::memory().await;
    let call = || {
        let limiter = subject.limiter.clone();
        Polled::new(async move { limiter.scope(call()).await })
    };
    let mut calls = [(); 4].map(|()| call());
    let done = calls.each_mut().map(|call| call.poll().map(|result| result.is_ok()));
    assert_eq!(done, [Ready(true), Pending, Pending, Ready(false)]);
}

/// Random arrivals and costs. A queue whose calls wait to the end of their time serves hardly more permits.
#[tokio::test]
async fn random_schedules_lose_few_permits_by_denials_at_once() {
    let (mut with_bound, mut without, mut denied_at_once) = (0, 0, 0);
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let (max, wait) = ([1, 2, 5, 10][pick(&mut random, 4)], [50, 100, 150, 300][pick(&mut random, 4)]);
        let percent = [50, 100, 200, 500, 2_000][pick(&mut random, 5)];
        let arrivals = arrivals(&mut random, max, percent);
        without += served_by_a_patient_queue(&arrivals, max, wait);
        let (served, denied) = served_by_the_limiter(&arrivals, max, wait).await;
        with_bound += served;
        denied_at_once += denied;
    }
    assert!(denied_at_once > 1_000, "{denied_at_once} denials at once");
    assert!(with_bound * 100 >= without * 97, "{with_bound} permits instead of {without}");
}

const WINDOW: u64 = 100;
const END: u64 = 1_200;

fn pick(random: &mut Random, bound: u64) -> usize {
    usize::try_from(random.below(bound)).expect("small")
}

/// The time and the cost of each call, at `percent` of the rate of the limit.
fn arrivals(random: &mut Random, max: u32, percent: u64) -> Vec<(u64, u32)> {
    let mut arrivals = Vec::new();
    for now in 0..700 {
        let chance = u64::from(max) * percent;
        let calls = chance / (WINDOW * 100) + u64::from(random.below(WINDOW * 100) < chance % (WINDOW * 100));
        for _ in 0..calls {
            let cost = if random.below(4) == 0 { random.between(1, u64::from(max)) } else { 1 };
            arrivals.push((now, u32::try_from(cost).expect("small")));
        }
    }
    arrivals
}

/// The permits of a queue in which every call waits until it is served or its time is over.
fn served_by_a_patient_queue(arrivals: &[(u64, u32)], max: u32, wait: u64) -> u64 {
    let (mut log, mut queue) = (Vec::<(u64, u32)>::new(), Vec::<(u64, u32)>::new());
    let (mut arrivals, mut served) = (arrivals.iter().peekable(), 0);
    for now in 0..END {
        log.retain(|(at, _)| at + WINDOW > now);
        queue.extend(take_due(&mut arrivals, now));
        queue.retain(|(at, _)| at + wait >= now);
        while let Some((_, cost)) = queue.first().copied()
            && log.iter().map(|(_, cost)| cost).sum::<u32>() + cost <= max
        {
            queue.remove(0);
            log.push((now, cost));
            served += u64::from(cost);
        }
    }
    served
}

/// Removes the calls that begin until now.
fn take_due(arrivals: &mut Peekable<Iter<'_, (u64, u32)>>, now: u64) -> Vec<(u64, u32)> {
    from_fn(|| arrivals.next_if(|(at, _)| *at <= now).copied()).collect()
}

/// The permits of the limiter's calls, and the number of calls that were denied at once.
async fn served_by_the_limiter(arrivals: &[(u64, u32)], max: u32, wait: u64) -> (u64, usize) {
    let subject = Subject::memory().await;
    let limit = limit(&format!("{max}/{WINDOW}ms"));
    let (mut waiting, mut served, mut denied) = (Vec::new(), 0, 0);
    let mut arrivals = arrivals.iter().peekable();
    for now in 0..END {
        for (_, cost) in take_due(&mut arrivals, now) {
            let limiter = subject.limiter.clone();
            let mut call = Polled::new(async move {
                limiter.wait_n(&key("a"), &limit, cost, millis(wait)).await.expect("answers").is_allowed()
            });
            match call.poll() {
                Ready(true) => served += u64::from(cost),
                Ready(false) => denied += 1,
                Pending => waiting.push((cost, call)),
            }
        }
        subject.advance_millis(1);
        while let Some(index) = waiting.iter().position(|(_, call)| call.is_woken()) {
            let (cost, call) = &mut waiting[index];
            let Ready(is_allowed) = call.poll() else { continue };
            served += if is_allowed { u64::from(*cost) } else { 0 };
            waiting.remove(index);
        }
    }
    (served, denied)
}
