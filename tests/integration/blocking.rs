//! The twins of the async methods, on a thread without a runtime.

use std::thread;
use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Decision, Limiter};

use crate::support::{AMPLE, key, limit, on};

fn all_of_them(limiter: &Limiter) {
    let (key, limit, brief) = (key("a"), limit("3/1h"), "1/300ms".parse().expect("a limit"));
    let Decision::Allowed(two) = limiter.check_n_blocking(&key, &limit, 2).expect("a decision") else {
        panic!("two of three")
    };
    assert_eq!(limiter.peek_blocking(&key, &limit).expect("a look").remaining(), 1);
    assert!(limiter.check_blocking(&key, &limit).expect("a decision").is_allowed());
    assert!(limiter.check_all_blocking(&[(&key, &limit, 1)]).expect("a decision").is_denied());
    limiter.refund_blocking(&two).expect("given back");
    assert_eq!(limiter.peek_blocking(&key, &limit).expect("a look").remaining(), 2);
    limiter.reset_blocking(&key, &limit).expect("forgotten");
    assert!(limiter.check_n_blocking(&key, &limit, 3).expect("a decision").is_allowed());
    assert!(limiter.wait_blocking(&key, &limit, Duration::ZERO).expect("a decision").is_denied());
    for _ in 0..2 {
        assert!(limiter.wait_blocking(&key, &brief, AMPLE).expect("a decision").is_allowed());
    }
}

#[test]
fn work_without_a_runtime_on_every_store() {
    let on_redis = on(RedisServer::shared()).build().expect("valid");
    for limiter in [Limiter::memory(), on_redis] {
        thread::spawn(move || all_of_them(&limiter)).join().expect("no panic");
    }
}
