//! Random schedules of polls, drops and a moving clock.

use std::task::Poll;
use std::time::Duration;

use limiter_testkit::Random;
use rate_limited::{Decision, Limit};

use super::by_hand::Polled;
use crate::support::{Subject, key, limit};

const SCHEDULES: u64 = 300;
const STEPS: u64 = 500;

/// In the last steps no call begins, and every call is polled.
const LAST_STEPS: u64 = 150;
const MAX_CALLS: usize = 30;

/// A permit may be free for so long while a waiter is polled that wants it: 10 ms for one that is not polled, and 1 ms for
/// each doubling of their number.
const FREE_MILLIS: u64 = 16;

/// As long again for each that is polled meanwhile, and then no more.
const GRACE_MILLIS: u64 = 10;

struct Call {
    call: Polled<Decision>,
    number: u64,
    /// Polled whenever it is woken.
    is_attentive: bool,
    was_always_attentive: bool,
    give_up: u64,
}

struct Schedule {
    subject: Subject,
    limit: Limit,
    random: Random,
    now: u64,
    begun: u64,
    idle_percent: u64,
    calls: Vec<Call>,
    /// The numbers of the calls that were attentive to their end.
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
            begun: 0,
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
            let is_last = step >= STEPS - LAST_STEPS;
            let any = self.any_call();
            match self.random.below(10) {
                0..3 if !is_last && self.calls.len() < MAX_CALLS => self.begin(),
                3 if !self.calls.is_empty() => drop(self.calls.remove(any)),
                4 if !self.calls.is_empty() => self.poll(any),
                _ => self.advance(1),
            }
            if is_last {
                self.poll_everybody();
            }
            self.poll_woken();
            self.assert_no_permit_is_free_for_long().await;
            let Self { now, calls, .. } = &self;
            let overdue = calls.iter().find(|call| call.is_attentive && call.give_up < *now);
            assert!(overdue.is_none(), "a call waits for ever");
        }
        for _ in 0..1_000 {
            self.advance(10);
            self.poll_everybody();
        }
        assert!(self.calls.is_empty(), "{} calls never end", self.calls.len());
        assert!(self.admitted.is_sorted(), "{:?}", self.admitted);
    }

    fn any_call(&mut self) -> usize {
        usize::try_from(self.random.below(self.calls.len() as u64)).expect("small")
    }

    fn advance(&mut self, millis: u64) {
        self.subject.advance_millis(millis);
        self.now += millis;
    }

    fn begin(&mut self) {
        self.begun += 1;
        let max_wait = self.random.between(1, 2_000);
        let call = Polled::wait(&self.subject.limiter, self.limit, Duration::from_millis(max_wait));
        let is_attentive = self.random.below(100) >= self.idle_percent;
        let (number, give_up) = (self.begun, self.now + max_wait);
        self.calls.push(Call { call, number, is_attentive, was_always_attentive: is_attentive, give_up });
        self.poll(self.calls.len() - 1);
    }

    fn poll(&mut self, index: usize) {
        self.polls_of_idle += u64::from(!self.calls[index].is_attentive);
        let Poll::Ready(decision) = self.calls[index].call.poll() else { return };
        let Call { number, was_always_attentive, give_up, .. } = self.calls.remove(index);
        match decision {
            Decision::Allowed(_) => self.admitted.extend(was_always_attentive.then_some(number)),
            Decision::Denied(denied) => {
                let retry_after = u64::try_from(denied.retry_after().as_millis()).expect("small");
                assert!(retry_after > 0, "{denied:?}");
                let is_hopeless = self.now + retry_after > give_up;
                assert!(self.now >= give_up || is_hopeless, "denied before its time is over");
            }
        }
    }

    /// Polls each attentive call that is woken, in any order, until none is.
    fn poll_woken(&mut self) {
        loop {
            let is_due = |(_, call): &(usize, &Call)| call.is_attentive && call.call.is_woken();
            let woken: Vec<_> = self.calls.iter().enumerate().filter(is_due).map(|(index, _)| index).collect();
            if woken.is_empty() {
                return;
            }
            let index = self.random.below(woken.len() as u64);
            self.poll(woken[usize::try_from(index).expect("small")]);
        }
    }

    fn poll_everybody(&mut self) {
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
        assert!(free <= FREE_MILLIS + GRACE_MILLIS * self.polls_of_idle, "a permit is free for {free} ms");
    }
}

#[tokio::test]
async fn every_schedule_serves_those_that_are_polled_in_order_and_leaves_no_permit_free() {
    for seed in 0..SCHEDULES {
        let schedule = std::panic::AssertUnwindSafe(Schedule::new(seed).await.run());
        let run = futures_util::FutureExt::catch_unwind(schedule).await;
        assert!(run.is_ok(), "seed {seed}");
    }
}
