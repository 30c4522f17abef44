//! One row's run.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rate_limited::{Key, Limit, Limiter};
use tokio::runtime;

use super::load::{Demand, Load, Subject};
use super::report::Record;
use super::stalls::Stalls;
use super::{Report, Row};

/// What all tasks call for.
pub(super) const KEY: &str = "a";

/// What a call is given, which is the default.
const DEADLINE: Duration = Duration::from_millis(100);
const PERMITS_A_SECOND: u32 = 1_000;
const WORKERS: usize = 2;

/// For how long.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The limit's window; it allows 1000 a second.
    pub window: Duration,
    /// Before the fault: two windows at least, of which the first is filled slowly.
    pub healthy: Duration,
    /// How long a fault lasts at most, where that is not for others to decide.
    pub fault: Duration,
    /// What is watched after the row's time to be back.
    pub after: Duration,
}

impl Pace {
    /// As long as a reader would ask for.
    pub const FULL: Self = Self {
        window: Duration::from_secs(1),
        healthy: Duration::from_secs(4),
        fault: Duration::from_secs(30),
        after: Duration::from_secs(4),
    };

    /// As short as it can be and still show what it must.
    pub const SHORT: Self = Self {
        window: Duration::from_millis(500),
        healthy: Duration::from_secs(1),
        fault: Duration::from_millis(800),
        after: Duration::from_millis(600),
    };

    fn limit(&self) -> Limit {
        let max = self.window * PERMITS_A_SECOND;
        let max = u32::try_from(max.as_secs()).expect("a short window");
        Limit::new(max, self.window).expect("a limit")
    }
}

/// Runs a row; tells of each phase as it begins.
///
/// # Panics
///
/// The servers do not start or do not come back.
#[must_use]
pub fn run(row: &Row, pace: &Pace, tell: &dyn Fn(&str)) -> Report {
    tell("starts");
    let mut scene = (row.scene)();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let builder = || Limiter::builder().url(&scene.url()).deadline(DEADLINE).instances(row.instances);
    let connected = |_| runtime.block_on(builder().connect()).expect("the store is there");
    let limiters = (0..row.instances).map(connected).collect();
    let limit = pace.limit();

    let origin = Instant::now();
    let stalls = Stalls::watch(origin);
    let demand = Demand { tasks: row.tasks, at_first: PERMITS_A_SECOND, calls_a_second: row.calls_a_second };
    let load = Load::start(runtime.handle(), &Subject { limiters, key: Key::new(KEY), limit, origin }, demand);
    tell("is well");
    sleep(pace.healthy);
    let (broken, lasting) = (origin.elapsed(), row.lasts.min(pace.fault));
    tell("is broken");
    scene.breaks(lasting);
    scene.lasts(lasting);
    let mended = scene.mends();
    tell("is mended");
    sleep((mended + row.bar.back + pace.window + pace.after).saturating_duration_since(Instant::now()));
    tell("is judged");
    let calls = runtime.block_on(load.end());
    let attempts = scene.attempts();
    let record = Record {
        calls: &calls,
        stalls: &stalls.end(),
        deadline: DEADLINE,
        max: limit.max(),
        window: pace.window,
        broken,
        mended: mended - origin,
        ended: origin.elapsed(),
        attempts: attempts.map(|(attempts, _)| attempts),
        most_attempts: attempts.map(|(_, at_once)| at_once),
    };
    record.report()
}
