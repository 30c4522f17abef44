//! The paths in this process, one by one: `cargo bench -p limiter-bench`.

use std::hint::black_box;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use divan::Bencher;
use limiter_bench::contestants::attribute;
use rate_limited::{Key, KeyMatch, Limit, Limiter, Rule, RuleSet, rate_limited};

fn main() {
    divan::main();
}

/// The number of keys, as in the comparison.
const KEYS: usize = 1_000;

fn limit() -> Limit {
    Limit::new(1_000_000_000, Duration::from_secs(1)).expect("a limit")
}

fn keys() -> Vec<Key> {
    (0..KEYS).map(|key| Key::new("user:").part(key)).collect()
}

fn poll_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the memory store never waits"),
    }
}

#[divan::bench(threads = [1, 2])]
fn check_existing_keys(bencher: Bencher<'_, '_>) {
    let (limiter, limit, keys) = (Limiter::memory(), limit(), keys());
    let next = AtomicUsize::new(0);
    bencher
        .with_inputs(|| &keys[next.fetch_add(1, Ordering::Relaxed) % KEYS])
        .bench_values(|key| poll_once(limiter.check(key, &limit)).is_ok());
}

#[divan::bench(threads = [1, 2])]
fn check_keys_made_for_the_call(bencher: Bencher<'_, '_>) {
    let (limiter, limit) = (Limiter::memory(), limit());
    let next = AtomicUsize::new(0);
    bencher
        .with_inputs(|| next.fetch_add(1, Ordering::Relaxed) % KEYS)
        .bench_values(|key| poll_once(limiter.check(&Key::new("user:").part(key), &limit)).is_ok());
}

#[divan::bench(threads = [1, 2])]
fn check_one_denied_key(bencher: Bencher<'_, '_>) {
    let (limiter, key) = (Limiter::memory(), Key::new("hot"));
    let limit = Limit::new(1, Duration::from_secs(3_600)).expect("a limit");
    bencher.bench(|| poll_once(limiter.check(&key, &limit)).is_ok());
}

#[divan::bench]
fn check_blocking_one_key(bencher: Bencher<'_, '_>) {
    let (limiter, key, limit) = (Limiter::memory(), Key::new("one"), limit());
    bencher.bench(|| limiter.check_blocking(&key, &limit).is_ok());
}

#[divan::bench]
fn make_a_key(bencher: Bencher<'_, '_>) {
    bencher.bench(|| Key::new("user:").part(black_box(123_456)));
}

#[divan::bench]
fn attribute_with_a_constant_key(bencher: Bencher<'_, '_>) {
    let _ = Limiter::memory().install(); // an error if one is installed already
    bencher.bench(|| poll_once(attribute::limited(black_box(1))));
}

#[rate_limited(key = "api:{user}", name = "api", limit = "1000000000/s", fallback = ())]
async fn of_user(user: u64) {
    black_box(user);
}

#[rate_limited(key = "api:{user}", name = "api", limit = "1000000000/s", plan = plan, fallback = ())]
async fn of_plan(user: u64, plan: &str) {
    black_box((user, plan));
}

fn larger() -> Rule {
    Rule::new().limit(Limit::new(2_000_000_000, Duration::from_secs(1)).expect("a limit"))
}

fn rules_of_plans() -> RuleSet {
    RuleSet::new().plan("free", larger()).plan("pro", larger()).rule("api", Rule::new().plans(["free", "pro"]))
}

fn rules_of_an_override() -> RuleSet {
    RuleSet::new().rule("api", Rule::new().overriding(KeyMatch::parts([("user", 7)]), larger()))
}

#[divan::bench]
fn attribute_with_a_plan(bencher: Bencher<'_, '_>) {
    let limiter = Limiter::memory();
    limiter.set_rules(rules_of_plans()).expect("valid");
    limiter.scope_sync(|| bencher.bench_local(|| poll_once(of_plan(black_box(1), black_box("pro")))));
}

#[divan::bench]
fn attribute_with_an_override(bencher: Bencher<'_, '_>) {
    let limiter = Limiter::memory();
    limiter.set_rules(rules_of_an_override()).expect("valid");
    limiter.scope_sync(|| bencher.bench_local(|| poll_once(of_user(black_box(7)))));
}

#[divan::bench]
fn attribute_under_a_rule(bencher: Bencher<'_, '_>) {
    let limiter = Limiter::memory();
    limiter.set_rules(RuleSet::new().rule("api", larger())).expect("valid");
    limiter.scope_sync(|| bencher.bench_local(|| poll_once(of_user(black_box(7)))));
}

#[divan::bench]
fn function_without_the_attribute(bencher: Bencher<'_, '_>) {
    bencher.bench(|| poll_once(attribute::bare(black_box(1))));
}
