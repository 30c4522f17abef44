//! Random schedules of polls, drops and a moving clock.

use std::task::Poll;
use std::time::Duration;

use limiter_testkit::Random;
use rate_limited::Decision;

use super::by_hand::Polled;
use crate::support::{Subject, key, limit};

/// In any 40 ms.
const LIMIT: &str = "2/40ms";

/// A permit may be free for so long while a waiter is polled that wants it: 10 ms for one that is not polled, 1 ms for each
/// doubling of their number, and as much again for those that are polled once and then no more.
const FREE_MILLIS: u64 = 30;

struct Call {
    call: Polled<Decision>,
    /// It is polled whenever it is woken.
    is_attentive: bool,
    /// So it was from the beginning.
    was_attentive: bool,
    began: u64,
    max_wait: u64,
}

/// One schedule, by its seed.
async fn run(seed: u64) {
    let mut random = Random::new(seed);
    let subject = Subject::memory().await;
    let limit = limit(LIMIT);
    let (mut calls, mut admitted, mut begun, mut now, mut free_since): (Vec<(u64, Call)>, Vec<u64>, _, _, _) =
        (Vec::new(), Vec::new(), 0_u64, 0_u64, 0_u64);
    let idle_percent = random.below(90);
    for step in 0..600 {
        let is_over = step >= 400;
        match random.below(10) {
            0..3 if !is_over && calls.len() < 30 => {
                let max_wait = random.between(1, 2_000);
                let call = Polled::wait(&subject.limiter, limit, Duration::from_millis(max_wait));
                let is_attentive = random.below(100) >= idle_percent;
                begun += 1;
                calls.push((begun, Call { call, is_attentive, was_attentive: is_attentive, began: now, max_wait }));
                poll_call(&mut calls, begun, now, &mut admitted);
            }
            3 if !calls.is_empty() => {
                let index = random.below(calls.len() as u64);
                drop(calls.remove(usize::try_from(index).expect("small")));
            }
            4 if !calls.is_empty() => {
                let index = random.below(calls.len() as u64);
                let number = calls[usize::try_from(index).expect("small")].0;
                poll_call(&mut calls, number, now, &mut admitted);
            }
            _ => {
                subject.advance_millis(1);
                now += 1;
            }
        }
        if is_over {
            calls.iter_mut().for_each(|(_, call)| call.is_attentive = true);
        }
        poll_woken(&mut calls, &mut random, is_over, now, &mut admitted);
        // Nobody that is polled waits for long while there is room, nor after its time.
        let is_free = subject.limiter.peek(&key("a"), &limit).await.expect("answers").is_allowed();
        let wanted = calls.iter().any(|(_, call)| call.is_attentive);
        if !(is_free && wanted) {
            free_since = now;
        }
        assert!(now - free_since <= FREE_MILLIS, "seed {seed}, step {step}: a permit is free since {free_since}");
        for (number, Call { is_attentive, began, max_wait, .. }) in &calls {
            assert!(!is_attentive || now <= began + max_wait, "seed {seed}, step {step}: {number} waits for ever");
        }
    }
    while !calls.is_empty() {
        subject.advance_millis(10);
        now += 10;
        poll_woken(&mut calls, &mut random, true, now, &mut admitted);
        assert!(now < 100_000, "seed {seed}: {} calls never end", calls.len());
    }
    assert!(admitted.is_sorted(), "seed {seed}: {admitted:?}");
}

/// Polls each attentive call that is woken, in any order, until none is. At the end, every call once.
fn poll_woken(calls: &mut Vec<(u64, Call)>, random: &mut Random, all: bool, now: u64, admitted: &mut Vec<u64>) {
    if all {
        for number in calls.iter().map(|(number, _)| *number).collect::<Vec<_>>() {
            poll_call(calls, number, now, admitted);
        }
    }
    loop {
        let woken: Vec<_> = calls.iter().filter(|(_, call)| call.is_attentive && call.call.is_woken()).collect();
        if woken.is_empty() {
            return;
        }
        let index = random.below(woken.len() as u64);
        let number = woken[usize::try_from(index).expect("small")].0;
        poll_call(calls, number, now, admitted);
    }
}

/// Polls a call; notes it if it is admitted and has been polled whenever it was woken.
fn poll_call(calls: &mut Vec<(u64, Call)>, number: u64, now: u64, admitted: &mut Vec<u64>) {
    let Some(index) = calls.iter().position(|(other, _)| *other == number) else { return };
    let Poll::Ready(decision) = calls[index].1.call.poll() else { return };
    let (_, Call { was_attentive, began, max_wait, .. }) = calls.remove(index);
    match decision {
        Decision::Allowed(_) if was_attentive => admitted.push(number),
        Decision::Allowed(_) => {}
        Decision::Denied(denied) => {
            assert!(denied.retry_after() > Duration::ZERO, "{denied:?}");
            let end = began + max_wait;
            let retry = now + u64::try_from(denied.retry_after().as_millis()).expect("small");
            assert!(now >= end || retry > end, "denied before its time is over");
        }
    }
}

#[tokio::test]
async fn every_schedule_serves_those_that_are_polled_in_order_and_leaves_no_permit_free() {
    for seed in 0..300 {
        run(seed).await;
    }
}
