//! What the embedded store takes of this process's memory: a program of its own, since nothing else must count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, thread};

use rate_limited::{Key, Limit, Limiter};

const KEYS: u64 = 10_000_000;
const OFFENDERS: u64 = 100_000;
const MOST_BYTES: u64 = 400_000_000;

#[test]
fn ten_million_keys_fit_into_400_mb_and_evict_nobody() {
    let before = resident();
    let limiter = Limiter::memory();
    let day: Limit = "1/d".parse().expect("a limit");
    let ask = |key: &Key| limiter.check_blocking(key, &day).expect("answers").is_allowed();
    // Not in parts: a part is written by code of this crate, which is not optimised.
    let offender = |index: u64| Key::new(format!("offender:{index}"));
    assert!((0..OFFENDERS).all(|index| ask(&offender(index))));
    let admitted = AtomicU64::new(0);
    let ask_many = |from: u64| {
        let keys = (from..KEYS).step_by(2).map(|index| Key::new(format!("user:{index}")));
        admitted.fetch_add(u64::try_from(keys.filter(ask).count()).expect("few"), Ordering::Relaxed);
    };
    thread::scope(|scope| {
        scope.spawn(|| ask_many(0));
        scope.spawn(|| ask_many(1));
    });
    let grown = resident() - before;
    println!("{KEYS} keys took {grown} bytes, and {admitted:?} were admitted");
    assert!(grown < MOST_BYTES, "{grown} bytes");
    assert!(admitted.into_inner() > 900_000, "places were left unused");
    assert!(!(0..OFFENDERS).any(|index| ask(&offender(index))), "somebody was evicted");
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line with the figure");
    line.trim().strip_suffix(" kB").expect("in kB").parse::<u64>().expect("a number") * 1024
}
