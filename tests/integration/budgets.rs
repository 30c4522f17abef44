//! Budgets of calls whose cost is known only when they end: each takes an estimate, and the rest is given back or charged.
//!
//! The loads are those of calls of language models: each lasts for seconds to minutes, and its use is known at its end. The
//! worst window is that of the calls which began in it, with all of their use.

use std::collections::BTreeMap;
use std::time::Duration;

use limiter_testkit::{Random, full_or};
use rate_limited::{Allowed, Decision, Key, Limit};

use crate::support::{Subject, limit, on_every_store};

on_every_store! {
    estimates_that_are_bounds_keep_the_limit,
    guesses_exceed_it_by_little_and_use_as_much,
}

const SECOND: u64 = 1_000_000;
const WINDOW: u64 = 60 * SECOND;
const LIMIT: u32 = 20_000;
/// The permits that a call takes before it begins.
const ESTIMATE: u32 = 2_000;

/// Calls that arrive at random.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Calls a second in the mean.
    rate: u32,
    /// The shortest and the longest call, in seconds.
    lasts: (u64, u64),
    /// The most that a call uses, as a multiple of the estimate in percent.
    most: u64,
}

const BOUNDED: [Load; 3] = [
    Load { rate: 2, lasts: (2, 40), most: 100 },
    Load { rate: 20, lasts: (2, 40), most: 100 },
    Load { rate: 2, lasts: (30, 120), most: 100 },
];
const GUESSED: Load = Load { rate: 2, lasts: (2, 40), most: 150 };

/// The handling of a call's use when it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AtEnd {
    /// Gives back what it has not used. What is above the estimate is counted nowhere.
    Refund,
    /// Settles the call to its use.
    Settle,
}

/// A call that runs.
struct Running {
    allowed: Allowed,
    began: u64,
    used: u32,
}

/// The use of a run, as shares of the limit.
#[derive(Clone, Copy, Debug)]
struct Use {
    /// The fullest window by the start of calls.
    worst: f64,
    /// The use in the mean.
    mean: f64,
}

/// Runs a load for some virtual time.
async fn run(subject: &Subject, load: Load, at_end: AtEnd, seed: u64) -> Use {
    let (mut random, began) = (Random::new(seed), subject.now_us());
    let (key, limit) = (Key::new("budget:").part(format!("{load:?} {at_end:?} {seed}")), budget());
    let (mut running, mut done) = (BTreeMap::<(u64, u64), Running>::new(), Vec::new());
    let (mut calls, length) = (0, full_or(4_000, 400) * SECOND);
    let mut now = began;
    while now < began + length {
        now += exponential(&mut random, Duration::from_secs(1) / load.rate);
        while let Some(entry) = running.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((end, _), call) = entry.remove_entry();
            advance_to(subject, end);
            settle(subject, at_end, &call).await;
            done.push((call.began, call.used));
        }
        advance_to(subject, now);
        let used = triangular(&mut random, 100, u64::from(ESTIMATE) * load.most / 100, 700);
        let lasts = random.between(load.lasts.0 * SECOND, load.lasts.1 * SECOND);
        if let Decision::Allowed(allowed) = subject.limiter.check_n(&key, &limit, ESTIMATE).await.expect("a decision") {
            calls += 1;
            running.insert((now + lasts, calls), Running { allowed, began: now, used });
        }
    }
    let total: f64 = done.iter().map(|(_, used)| f64::from(*used)).sum();
    Use {
        worst: worst_window(&mut done) as f64 / f64::from(LIMIT),
        mean: total / (length / WINDOW) as f64 / f64::from(LIMIT),
    }
}

async fn settle(subject: &Subject, at_end: AtEnd, Running { allowed, used, .. }: &Running) {
    match at_end {
        AtEnd::Refund => {
            let unused = ESTIMATE.saturating_sub(*used);
            subject.limiter.refund_n(allowed, unused).await.expect("a refund");
        }
        AtEnd::Settle => drop(subject.limiter.settle(allowed, *used).await.expect("settled")),
    }
}

fn budget() -> Limit {
    limit("20000/1m")
}

fn advance_to(subject: &Subject, at: u64) {
    subject.clock.advance(Duration::from_micros(at - subject.now_us()));
}

/// Returns the permits of the fullest window, which begins after an instant.
fn worst_window(calls: &mut [(u64, u32)]) -> u64 {
    calls.sort_unstable();
    let (mut first, mut total, mut worst) = (0, 0, 0);
    for (at, used) in &*calls {
        total += u64::from(*used);
        while calls[first].0 + WINDOW <= *at {
            total -= u64::from(calls[first].1);
            first += 1;
        }
        worst = worst.max(total);
    }
    worst
}

/// A time with an exponential distribution, in microseconds.
fn exponential(random: &mut Random, mean: Duration) -> u64 {
    let above_0 = (1 + random.below(1 << 52)) as f64 / (1_u64 << 52) as f64;
    u64::try_from(mean.mul_f64(-above_0.ln()).as_micros()).expect("short")
}

/// A number with a triangular distribution, whose most frequent value is `mode`.
fn triangular(random: &mut Random, low: u64, high: u64, mode: u64) -> u32 {
    // A share of 2^20.
    let (share, span) = (random.below(1 << 20), high - low);
    let drawn = if share * span < (mode - low) << 20 {
        low + ((share * span * (mode - low)) >> 20).isqrt()
    } else {
        high - ((((1 << 20) - share) * span * (high - mode)) >> 20).isqrt()
    };
    u32::try_from(drawn).expect("small")
}

/// Runs a load with several seeds.
async fn run_each(subject: &Subject, load: Load, at_end: AtEnd) -> Use {
    let (mut all, seeds) = (Vec::new(), full_or(5, 2));
    for seed in 0..seeds {
        all.push(run(subject, load, at_end, seed).await);
    }
    let worst = all.iter().map(|run| run.worst).fold(0.0, f64::max);
    let of_load = Use { worst, mean: all.iter().map(|run| run.mean).sum::<f64>() / all.len() as f64 };
    println!("{load:?}, {at_end:?}: worst window {:.1} %, mean {:.1} %", of_load.worst * 100.0, of_load.mean * 100.0);
    of_load
}

async fn estimates_that_are_bounds_keep_the_limit(subject: Subject) {
    for load in BOUNDED {
        let of_load = run_each(&subject, load, AtEnd::Settle).await;
        assert!(of_load.worst <= 1.0 && of_load.mean > 0.4, "{load:?}: {of_load:?}");
    }
}

async fn guesses_exceed_it_by_little_and_use_as_much(subject: Subject) {
    let uncounted = run_each(&subject, GUESSED, AtEnd::Refund).await;
    let counted = run_each(&subject, GUESSED, AtEnd::Settle).await;
    assert!(uncounted.worst > 1.0, "the load needs charges: {uncounted:?}");
    assert!(counted.worst <= 1.1 && counted.mean >= 0.95 * uncounted.mean, "{counted:?}, beside {uncounted:?}");
}
