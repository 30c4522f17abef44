//! A great many calls, dropped at random points, while the store comes and goes.

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rate_limited::Limiter;
use tokio::runtime;
use tokio::task::JoinSet;

use crate::proxy::Proxy;
use crate::random::Random;
use crate::server::RedisServer;

mod caller;

use super::load::HANGS;
use super::run::come_back;
use caller::{Seen, caller};

const DEADLINE: Duration = Duration::from_millis(100);
const TASKS: u64 = 200;

/// How much of it.
#[derive(Debug, Clone, Copy)]
pub struct Storm {
    /// Calls, dropped ones included.
    pub calls: u64,
    /// Names the whole schedule, but for what the machine adds to it.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct StormReport {
    /// Calls, dropped ones included.
    pub calls: u64,
    /// Futures that were dropped before they were ready.
    pub dropped: u64,
    /// Decisions of the store.
    pub by_store: u64,
    /// Decisions of the stand-in.
    pub by_standby: u64,
    /// Faults in all, and how often each.
    pub faults: BTreeMap<&'static str, u64>,
    /// What is wrong; nothing should be.
    pub wrong: Vec<String>,
    /// Keys that were looked at for their time to live.
    pub keys: u64,
    /// How long it all took.
    pub took: Duration,
    /// After the last fault, until the store decided again.
    pub back: Duration,
}

impl StormReport {
    /// How long the store may take to decide again, on a machine that has time for it.
    pub const BACK: Duration = Duration::from_secs(2);
}

/// Runs it; tells now and then how far it is.
///
/// # Panics
///
/// The server does not start.
#[must_use]
pub fn storm(storm: &Storm, tell: &dyn Fn(&str)) -> StormReport {
    let mut server = RedisServer::start();
    let proxy = Proxy::before(&server);
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let builder = Limiter::builder().url(proxy.url()).deadline(DEADLINE);
    let limiter = runtime.block_on(builder.connect()).expect("the store is there");
    let (seen, began) = (Arc::new(Seen::default()), Instant::now());
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let calls = storm.calls / TASKS;
        tasks.spawn_on(
            caller(limiter.clone(), Random::new(storm.seed + task), calls, Arc::clone(&seen)),
            runtime.handle(),
        );
    }

    let over = Arc::new(AtomicBool::new(false));
    let watched = {
        let over = Arc::clone(&over);
        runtime.spawn(async move {
            let mut wrong = Vec::new();
            while let Some(ended) = tasks.join_next().await {
                match ended {
                    Ok(complaints) => wrong.extend(complaints),
                    Err(error) => wrong.push(format!("a caller ended: {error}")),
                }
            }
            over.store(true, Relaxed);
            wrong
        })
    };
    let mut report = StormReport::default();
    let mut random = Random::new(storm.seed);
    let (mut last, mut moved) = (0, Instant::now());
    while !over.load(Relaxed) {
        let calls = seen.calls.load(Relaxed);
        if calls != last {
            (last, moved) = (calls, Instant::now());
        } else if moved.elapsed() > 2 * HANGS {
            report.wrong.push(format!("no call ended for {:?}", moved.elapsed()));
            break;
        }
        tell(&format!("{calls} of {} calls", storm.calls));
        sleep(Duration::from_millis(random.between(20, 200)));
        let fault = befall(&mut server, &proxy, &mut random, &mut report);
        *report.faults.entry(fault).or_default() += 1;
    }
    proxy.pass();
    let mended = Instant::now();
    if over.load(Relaxed) {
        report.wrong.extend(runtime.block_on(watched).expect("who waits for the callers"));
    }
    if !runtime.block_on(come_back(slice::from_ref(&limiter))) {
        report.wrong.push(format!("the store did not decide again within {HANGS:?}"));
    }
    report.back = mended.elapsed();
    look_at_keys(&server, &mut report);
    let Seen { calls, dropped, by_store, by_standby } = &*seen;
    report.calls = calls.load(Relaxed);
    report.dropped = dropped.load(Relaxed);
    report.by_store = by_store.load(Relaxed);
    report.by_standby = by_standby.load(Relaxed);
    report.took = began.elapsed();
    runtime.shutdown_background(); // in case one hangs
    report
}

/// One fault from beginning to end. Names it.
fn befall(server: &mut RedisServer, proxy: &Proxy, random: &mut Random, report: &mut StormReport) -> &'static str {
    let lasts = Duration::from_millis(random.between(1, 150));
    match random.below(6) {
        0 => {
            proxy.cut();
            sleep(lasts);
            proxy.pass();
            "cut"
        }
        1 => {
            look_at_keys(server, report);
            server.kill();
            sleep(lasts);
            server.restart();
            "restart"
        }
        2 => {
            proxy.cut_replies();
            sleep(lasts);
            proxy.pass();
            "reply cut"
        }
        3 => {
            proxy.lose_replies();
            sleep(lasts);
            proxy.pass();
            "replies lost"
        }
        4 => {
            server.pause();
            sleep(lasts);
            server.resume();
            "stop"
        }
        _ => {
            server.flush_scripts();
            "SCRIPT FLUSH"
        }
    }
}

/// Every key there is must have an end.
fn look_at_keys(server: &RedisServer, report: &mut StormReport) {
    let mut client = server.client().expect("a server that answers");
    let keys = client.call(&["KEYS", "*"]).expect("an answer to KEYS").array();
    for key in keys.into_iter().map(crate::Reply::bytes) {
        let left = client.call(&[b"PTTL".as_slice(), &key]).expect("an answer to PTTL").integer();
        report.keys += 1;
        if left == -1 {
            report.wrong.push(format!("{} has no time to live", String::from_utf8_lossy(&key)));
        }
    }
}
