//! The memory that the embedded store takes of this process: a program of its own, since nothing else must count.
//!
//! It reads `/proc/self/status`, so the figure is Linux's; elsewhere everything is tested but that.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io, thread};

use limiter_testkit::full_or;
use rate_limited::{Key, Limit, Limiter};

/// Keys that come once each. Both numbers are above the default of `max_keys`, which is a million: from there on counts
/// are shared, and no more memory is taken.
const KEYS: u64 = 10_000_000;
const FEWER_KEYS: u64 = 1_500_000;
/// Keys that are at their limit throughout.
const OFFENDERS: u64 = 100_000;
/// The documented figure is about 180 MB, measured: 177 MB, with 1.5 million keys as with ten. Allocators differ by a few.
const MOST_BYTES: u64 = 200_000_000;

#[test]
fn ten_million_keys_fit_into_200_mb_and_evict_nobody() {
    let keys = full_or(KEYS, FEWER_KEYS);
    let before = resident();
    let limiter = Limiter::memory();
    let day: Limit = "1/d".parse().expect("a limit");
    let ask = |key: &Key| limiter.check_blocking(key, &day).expect("answers").is_allowed();
    // Not in parts: a part is written by code of this crate, which is not optimised.
    let offender = |index: u64| Key::new(format!("offender:{index}"));
    assert!((0..OFFENDERS).all(|index| ask(&offender(index))));
    let admitted = AtomicU64::new(0);
    let ask_many = |from: u64| {
        let keys = (from..keys).step_by(2).map(|index| Key::new(format!("user:{index}")));
        admitted.fetch_add(u64::try_from(keys.filter(ask).count()).expect("few"), Ordering::Relaxed);
    };
    thread::scope(|scope| {
        scope.spawn(|| ask_many(0));
        scope.spawn(|| ask_many(1));
    });
    match before.zip(resident()) {
        Some((before, after)) => {
            let grown = after.saturating_sub(before);
            println!("{keys} keys took {grown} bytes, and {admitted:?} were admitted");
            assert!(grown < MOST_BYTES, "{grown} bytes");
        }
        None => say("skipped: the memory is not measured, for that needs Linux's /proc/self/status"),
    }
    assert!(admitted.into_inner() > 900_000, "places were left unused");
    assert!(!(0..OFFENDERS).any(|index| ask(&offender(index))), "somebody was evicted");
}

/// Prints a line that a test which passes shows, too.
fn say(line: &str) {
    writeln!(io::stderr(), "{line}").expect("standard error");
}

/// The most bytes of this process that have been in memory. None on systems without `/proc`.
fn resident() -> Option<u64> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line with the figure");
    let kilobytes = line.trim().strip_suffix(" kB").expect("in kB");
    Some(kilobytes.parse::<u64>().expect("a number") * 1024)
}
