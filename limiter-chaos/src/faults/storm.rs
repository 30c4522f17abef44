//! A storm: many calls, dropped at random points, while the store fails and recovers repeatedly.

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use limiter_testkit::{Proxy, Random, RedisServer};
use tokio::runtime;
use tokio::task::JoinSet;

use crate::transport::{Transport, limiter_builder};

mod caller;

use super::load::HANG_TIMEOUT;
use super::run::wait_for_recovery;
use caller::{StormCounts, run_caller};

const CALL_DEADLINE: Duration = Duration::from_millis(100);
const TASK_COUNT: u64 = 200;

/// The parameters of a storm.
#[derive(Debug, Clone, Copy)]
pub struct Storm {
    /// The number of calls, including dropped ones.
    pub calls: u64,
    /// The seed of the whole schedule, apart from the machine's timing.
    pub seed: u64,
    /// The transport of the limiter's connection.
    pub transport: Transport,
}

/// The results of a storm.
#[derive(Debug, Clone, Default)]
pub struct StormReport {
    /// The number of calls, including dropped ones.
    pub calls: u64,
    /// The futures that were dropped before they completed.
    pub dropped: u64,
    /// The decisions of the store.
    pub by_store: u64,
    /// The decisions of the standby limiter.
    pub by_standby: u64,
    /// The number of faults of each kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// The errors, of which there should be none.
    pub wrong: Vec<String>,
    /// The number of keys that were checked for an expiry.
    pub keys: u64,
    /// The length of the storm.
    pub took: Duration,
    /// The time from the last fault until the store decided again.
    pub recovery: Duration,
}

impl StormReport {
    /// The time in which the store must decide again on a machine that is not busy.
    pub const MAX_RECOVERY: Duration = Duration::from_secs(2);
}

/// Runs a storm. `progress` receives the number of calls now and then.
///
/// # Panics
///
/// The server does not start.
#[must_use]
pub fn storm(storm: &Storm, progress: &dyn Fn(&str)) -> StormReport {
    let mut server = storm.transport.server().start();
    let proxy = Proxy::start(&server);
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let builder = limiter_builder(proxy.url(), server.ca_certificate()).deadline(CALL_DEADLINE);
    let limiter = runtime.block_on(builder.connect()).expect("the store runs");
    let (counts, began) = (Arc::new(StormCounts::default()), Instant::now());
    let mut tasks = JoinSet::new();
    for task in 0..TASK_COUNT {
        let calls = storm.calls / TASK_COUNT;
        tasks.spawn_on(
            run_caller(limiter.clone(), Random::new(storm.seed + task), calls, Arc::clone(&counts)),
            runtime.handle(),
        );
    }

    let is_over = Arc::new(AtomicBool::new(false));
    let watcher = {
        let is_over = Arc::clone(&is_over);
        runtime.spawn(async move {
            let mut wrong = Vec::new();
            while let Some(ended) = tasks.join_next().await {
                match ended {
                    Ok(errors) => wrong.extend(errors),
                    Err(error) => wrong.push(format!("a caller ended: {error}")),
                }
            }
            is_over.store(true, Relaxed);
            wrong
        })
    };
    let mut report = StormReport::default();
    let mut random = Random::new(storm.seed);
    let (mut last_calls, mut last_progress) = (0, Instant::now());
    while !is_over.load(Relaxed) {
        let calls = counts.calls.load(Relaxed);
        if calls != last_calls {
            (last_calls, last_progress) = (calls, Instant::now());
        } else if last_progress.elapsed() > 2 * HANG_TIMEOUT {
            report.wrong.push(format!("no call ended for {:?}", last_progress.elapsed()));
            break;
        }
        progress(&format!("{calls} of {} calls", storm.calls));
        sleep(Duration::from_millis(random.between(20, 200)));
        let fault = inject_fault(&mut server, &proxy, &mut random, &mut report);
        *report.faults.entry(fault).or_default() += 1;
    }
    proxy.pass();
    let repaired = Instant::now();
    if is_over.load(Relaxed) {
        report.wrong.extend(runtime.block_on(watcher).expect("the watcher does not panic"));
    }
    if !runtime.block_on(wait_for_recovery(slice::from_ref(&limiter))) {
        report.wrong.push(format!("the store did not decide again within {HANG_TIMEOUT:?}"));
    }
    report.recovery = repaired.elapsed();
    check_expiries(&server, &mut report);
    let StormCounts { calls, dropped, by_store, by_standby } = &*counts;
    report.calls = calls.load(Relaxed);
    report.dropped = dropped.load(Relaxed);
    report.by_store = by_store.load(Relaxed);
    report.by_standby = by_standby.load(Relaxed);
    report.took = began.elapsed();
    runtime.shutdown_background(); // does not wait for a call that hangs
    report
}

/// Injects one fault, ends it after a random time, and returns its name.
fn inject_fault(
    server: &mut RedisServer,
    proxy: &Proxy,
    random: &mut Random,
    report: &mut StormReport,
) -> &'static str {
    let length = Duration::from_millis(random.between(1, 150));
    match random.below(6) {
        0 => {
            proxy.cut();
            sleep(length);
            proxy.pass();
            "cut"
        }
        1 => {
            check_expiries(server, report);
            server.kill();
            sleep(length);
            server.restart();
            "restart"
        }
        2 => {
            proxy.cut_replies();
            sleep(length);
            proxy.pass();
            "reply cut"
        }
        3 => {
            proxy.lose_replies();
            sleep(length);
            proxy.pass();
            "replies lost"
        }
        4 => {
            server.pause();
            sleep(length);
            server.resume();
            "stop"
        }
        _ => {
            server.flush_scripts();
            "SCRIPT FLUSH"
        }
    }
}

/// Checks that every key has an expiry.
fn check_expiries(server: &RedisServer, report: &mut StormReport) {
    let mut client = server.client().expect("a server that replies");
    let keys = client.call(&["KEYS", "*"]).expect("a reply to KEYS").array();
    for key in keys.into_iter().map(limiter_testkit::Reply::bytes) {
        let left = client.call(&[b"PTTL".as_slice(), &key]).expect("a reply to PTTL").integer();
        report.keys += 1;
        if left == -1 {
            report.wrong.push(format!("{} has no time to live", String::from_utf8_lossy(&key)));
        }
    }
}
