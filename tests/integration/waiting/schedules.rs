//! Random schedules of polls, drops and clock steps.

use std::task::Poll;
use std::time::Duration;

use limiter_testkit::Random;
use rate_limited::{Decision, Limit};

use super::polled::Polled;
use crate::support::{Subject, key, limit};

const SCHEDULES: u64 = 300;
const STEPS: u64 = 500;

/// The number of final steps in which no call starts and every call is polled.
const FINAL_STEPS: u64 = 150;
const MAX_CALLS: usize = 30;

/// The longest time, in milliseconds, that a permit stays free while a polled waiter needs it. Passing over one waiter
/// that is not polled takes 10 ms, and each doubling of their number adds 1 ms.
const MAX_FREE_MILLIS: u64 = 16;

/// The additional time for each poll of an inattentive call.
const GRACE_MILLIS: u64 = 10;

struct ScheduledCall {
    call: Polled<Decision>,
    number: u64,
    /// True if the call is polled whenever it is woken.
    is_attentive: bool,
    was_always_attentive: bool,
    deadline: u64,
}

struct Schedule {
    subject: Subject,
    limit: Limit,
    random: Random,
    now: u64,
    started: u64,
    idle_percent: u64,
    calls: Vec<ScheduledCall>,
    /// The numbers of admitted calls that were always attentive.
    admitted: Vec<u64>,
    free_since: u64,
    polls_of_idle: u64,
}

impl Schedule {
    async fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            subject: Subject::memory().await,
            limit: limit("2/40ms"),
            now: 0,
            started: 0,
            idle_percent: random.below(90),
            random,
            calls: Vec::new(),
            admitted: Vec::new(),
            free_since: 0,
            polls_of_idle: 0,
        }
    }

    async fn run(mut self) {
        for step in 0..STEPS {
            let is_final = step >= STEPS - FINAL_STEPS;
            let random_index = self.random_call();
            match self.random.below(10) {
                0..3 if !is_final && self.calls.len() < MAX_CALLS => self.start_call(),
                3 if !self.calls.is_empty() => drop(self.calls.remove(random_index)),
                4 if !self.calls.is_empty() => self.poll(random_index),
                _ => self.advance(1),
            }
            if is_final {
                self.poll_all();
            }
            self.poll_woken();
            self.assert_no_permit_is_free_for_long().await;
            let Self { now, calls, .. } = &self;
            let overdue = calls.iter().find(|call| call.is_attentive && call.deadline < *now);
            assert!(overdue.is_none(), "a call waits for ever");
        }
        for _ in 0..1_000 {
            self.advance(10);
            self.poll_all();
        }
        assert!(self.calls.is_empty(), "{} calls never end", self.calls.len());
        assert!(self.admitted.is_sorted(), "{:?}", self.admitted);
    }

    fn random_call(&mut self) -> usize {
        usize::try_from(self.random.below(self.calls.len() as u64)).expect("small")
    }

    fn advance(&mut self, millis: u64) {
        self.subject.advance_millis(millis);
        self.now += millis;
    }

    fn start_call(&mut self) {
        self.started += 1;
        let max_wait = self.random.between(1, 2_000);
        let call = Polled::wait(&self.subject.limiter, self.limit, Duration::from_millis(max_wait));
        let is_attentive = self.random.below(100) >= self.idle_percent;
        let (number, deadline) = (self.started, self.now + max_wait);
        self.calls.push(ScheduledCall { call, number, is_attentive, was_always_attentive: is_attentive, deadline });
        self.poll(self.calls.len() - 1);
    }

    fn poll(&mut self, index: usize) {
        self.polls_of_idle += u64::from(!self.calls[index].is_attentive);
        let Poll::Ready(decision) = self.calls[index].call.poll() else { return };
        let ScheduledCall { number, was_always_attentive, deadline, .. } = self.calls.remove(index);
        match decision {
            Decision::Allowed(_) => self.admitted.extend(was_always_attentive.then_some(number)),
            Decision::Denied(denied) => {
                let retry_after = u64::try_from(denied.retry_after().as_millis()).expect("small");
                assert!(retry_after > 0, "{denied:?}");
                let is_hopeless = self.now + retry_after > deadline;
                // The calls that still wait may all be ahead of it.
                let windows = (self.calls.len() as u64).div_ceil(2);
                let is_too_late = self.now + windows * 40 > deadline;
                assert!(self.now >= deadline || is_hopeless || is_too_late, "denied before its time is over");
            }
        }
    }

    /// Polls woken attentive calls, in random order, until none is woken.
    fn poll_woken(&mut self) {
        loop {
            let is_due = |(_, call): &(usize, &ScheduledCall)| call.is_attentive && call.call.is_woken();
            let woken: Vec<_> = self.calls.iter().enumerate().filter(is_due).map(|(index, _)| index).collect();
            if woken.is_empty() {
                return;
            }
            let index = self.random.below(woken.len() as u64);
            self.poll(woken[usize::try_from(index).expect("small")]);
        }
    }

    fn poll_all(&mut self) {
        for number in self.calls.iter().map(|call| call.number).collect::<Vec<_>>() {
            if let Some(index) = self.calls.iter().position(|call| call.number == number) {
                self.calls[index].is_attentive = true;
                self.poll(index);
            }
        }
    }

    async fn assert_no_permit_is_free_for_long(&mut self) {
        let is_free = self.subject.limiter.peek(&key("a"), &self.limit).await.expect("answers").is_allowed();
        if !(is_free && self.calls.iter().any(|call| call.is_attentive)) {
            (self.free_since, self.polls_of_idle) = (self.now, 0);
        }
        let free = self.now - self.free_since;
        assert!(free <= MAX_FREE_MILLIS + GRACE_MILLIS * self.polls_of_idle, "a permit is free for {free} ms");
    }
}

#[tokio::test]
async fn polled_waiters_are_served_in_order_and_no_permit_stays_free() {
    for seed in 0..SCHEDULES {
        let schedule = std::panic::AssertUnwindSafe(Schedule::new(seed).await.run());
        let run = futures_util::FutureExt::catch_unwind(schedule).await;
        assert!(run.is_ok(), "seed {seed}");
    }
}
