//! Several limits, several attributes, and the arguments `cost`, `when` and `wait`.

use std::time::Duration;

use rate_limited::{Denied, Key, Limit, Limiter, ManualClock, rate_limited};

#[rate_limited(key = "several", limits = ["3/s", "5/1m"], fallback = denied.limit().max())]
fn several() -> u32 {
    0
}

#[rate_limited(key = "{id}", limits = [limit, "5/1m", *other], fallback = denied.limit().max())]
async fn of_expressions(id: u64, limit: Limit, other: &Limit) -> u32 {
    0
}

#[rate_limited(key = "one", limits = ["1/1h"], fallback = false)]
fn one_of_a_list() -> bool {
    true
}

#[rate_limited(key = "counted", limit = "1/1h", algorithm = sliding_window, fallback = false)]
fn counted() -> bool {
    true
}

#[rate_limited(key = "counted", limits = [limit, "9/1m"], algorithm = sliding_window, fallback = false)]
fn counted_expression(limit: Limit) -> bool {
    true
}

#[rate_limited(key = "costly", limit = "10/1h", cost = 4, fallback = false)]
fn costly() -> bool {
    true
}

#[rate_limited(key = "ahead", limit = "1/1h", leases = true, fallback = false)]
fn may_take_leases() -> bool {
    true
}

#[rate_limited(key = "items", limit = "10/1h", cost = u32::try_from(items.len()).unwrap_or(u32::MAX), fallback = false)]
fn by_size(items: &[u8]) -> bool {
    true
}

#[rate_limited(key = "more", limit = "1/1h", cost = cost, fallback = denied.is_final())]
fn more_than_there_ever_is(cost: u32) -> bool {
    false
}

#[rate_limited(key = "when {never()}", limit = "1/1h", when = !admin, fallback = false)]
fn unless_admin(admin: bool) -> bool {
    true
}

fn never() -> &'static str {
    "counted"
}

#[rate_limited(key = "{panics()}", limit = "1/1h", when = false, fallback = false)]
fn builds_no_key() -> bool {
    true
}

fn panics() -> u8 {
    panic!("a call that is not limited has no key")
}

#[rate_limited(key = "lock {lock.lock().unwrap()}", when = *lock.lock().unwrap() > 0, cost = *lock.lock().unwrap(),
    max = *lock.lock().unwrap(), window = "1h", fallback = false)]
async fn gives_back_what_it_borrows(lock: &std::sync::Mutex<u32>) -> bool {
    true
}

#[rate_limited(key = "wait", limit = "1/50ms", wait = "10s", fallback = false)]
async fn waits() -> bool {
    true
}

#[rate_limited(key = "wait", limit = "1/1h", wait = Duration::from_millis(millis), fallback = false)]
async fn waits_in_vain(millis: u64) -> bool {
    true
}

#[rate_limited(key = "blocks", limit = "1/50ms", wait = "10s", fallback = false)]
fn blocks() -> bool {
    true
}

/// Two rules: the fallback of the rule that denied is used.
#[rate_limited(key = "user {id}", name = "user", limit = "2/1m", fallback = "slower")]
#[rate_limited(key = "global", limit = "3/1m", fallback = denied_name)]
fn two_rules(id: u64) -> &'static str {
    "ran"
}

fn denied_name(_: u64) -> &'static str {
    "busy"
}

#[derive(Debug, PartialEq)]
struct Busy(String);

impl From<Denied> for Busy {
    fn from(denied: Denied) -> Self {
        Self(denied.name().to_owned())
    }
}

#[rate_limited(key = "a", limit = "2/1m", wait = "1ms", leases = true)]
#[rate_limited::rate_limited(key = "b", limits = ["9/s", "1/1m"], limiter = limiter, leases = false)]
#[::rate_limited::rate_limited(key = Key::new("c"), name = "third", limit = "9/1m", when = third, cost = 9, on_error = open)]
async fn three_rules(limiter: &Limiter, third: bool) -> Result<u64, Busy> {
    Ok(1)
}

#[rate_limited(key = "x", limit = "2/1m", fallback = format!("first {}", denied.limit().max()))]
#[rate_limited(key = "y", limit = "1/1m", fallback = |denied| format!("second {}", denied.limit().max()),
    on_error = error.to_string())]
#[rate_limited(key = "z", limit = "1/1m", when = false, fallback = String::new())]
async fn every_form() -> String {
    "ran".to_owned()
}

async fn check(clock: &ManualClock) {
    // A denial by one limit takes no permit of the other.
    assert_eq!([several(), several(), several(), several()], [0, 0, 0, 3]);
    clock.advance(Duration::from_secs(1));
    assert_eq!([several(), several(), several()], [0, 0, 5]);

    let (small, large): (Limit, Limit) = ("1/1m".parse().unwrap(), "9/1h".parse().unwrap());
    assert_eq!([of_expressions(1, small, &large).await, of_expressions(1, small, &large).await], [0, 1]);
    assert_eq!([one_of_a_list(), one_of_a_list()], [true, false]);
    assert_eq!([counted(), counted()], [true, false]);
    assert_eq!([counted_expression(small), counted_expression(small)], [true, false]);

    assert_eq!([costly(), costly(), costly()], [true, true, false]);
    assert_eq!([may_take_leases(), may_take_leases()], [true, false]);
    assert!(by_size(&[0; 9]) && !by_size(&[0; 2]) && by_size(&[0; 1]) && by_size(&[]));
    assert!(more_than_there_ever_is(2));

    assert!(unless_admin(true) && unless_admin(true) && unless_admin(false));
    assert!(!unless_admin(false) && unless_admin(true));
    assert!(builds_no_key());
    let lock = std::sync::Mutex::new(1);
    assert!(gives_back_what_it_borrows(&lock).await && !gives_back_what_it_borrows(&lock).await);

    assert_eq!([two_rules(1), two_rules(1), two_rules(1)], ["ran", "ran", "slower"]);
    assert_eq!([two_rules(2), two_rules(2)], ["ran", "busy"]);

    let limiter = Limiter::memory();
    assert_eq!(three_rules(&limiter, false).await, Ok(1));
    assert_eq!(three_rules(&limiter, true).await, Err(Busy("b".to_owned())));
    let limiter = Limiter::memory();
    assert_eq!(three_rules(&limiter, true).await, Ok(1));
    let limiter = Limiter::memory();
    limiter.check_n(&Key::new("c"), &"9/1m".parse().unwrap(), 1).await.unwrap().into_result().unwrap();
    assert_eq!(three_rules(&limiter, true).await, Err(Busy("third".to_owned())));
    assert_eq!(three_rules(&limiter, false).await, Ok(1));

    assert_eq!([every_form().await, every_form().await], ["ran", "second 1"]);
}

#[tokio::main]
async fn main() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).build().unwrap();
    limiter.scope(check(&clock)).await;
    Limiter::memory()
        .scope(async {
            assert!(waits().await && waits().await);
            assert!(waits_in_vain(1).await && !waits_in_vain(1).await);
        })
        .await;
    tokio::task::spawn_blocking(|| Limiter::memory().scope_sync(|| assert!(blocks() && blocks()))).await.unwrap();
}
