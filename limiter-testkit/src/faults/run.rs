//! One row's run.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rate_limited::{Decision, Key, Limit, Limiter, Source};
use tokio::runtime;

use super::load::{Demand, HANGS, Load};
use super::report::Record;
use super::server_windows::Epoch;
use super::stalls::Stalls;
use super::subject::PERMITS_A_SECOND;
use super::{Row, RowReport};

/// What a call is given, which is the default.
const DEADLINE: Duration = Duration::from_millis(100);
const WORKERS: usize = 2;

/// For how long.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The limits' window; each allows 200 a second.
    pub window: Duration,
    /// Before the fault: two windows at least, of which the first is filled slowly.
    pub healthy: Duration,
    /// How long a fault lasts at most, where that is not for others to decide.
    pub fault: Duration,
    /// What is watched after the store is back, beyond the two windows for which a permit may count.
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

    /// Long enough for figures, on a machine that is not busy.
    pub const QUICK: Self = Self {
        window: Duration::from_millis(500),
        healthy: Duration::from_millis(1_500),
        fault: Duration::from_millis(1_500),
        after: Duration::from_millis(1_500),
    };

    /// As short as it can be and still show what it must.
    pub const SHORT: Self = Self {
        window: Duration::from_millis(300),
        healthy: Duration::from_millis(700),
        fault: Duration::from_millis(600),
        after: Duration::from_millis(400),
    };
}

/// Runs a row; tells of each phase as it begins.
///
/// # Panics
///
/// The servers do not start or do not come back, or a call hangs.
#[must_use]
pub fn run(row: &Row, pace: &Pace, tell: &dyn Fn(&str)) -> RowReport {
    tell("starts");
    let mut scene = (row.scene)();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let builder = || Limiter::builder().url(&scene.url()).deadline(DEADLINE).instances(row.instances);
    let connected = |_| runtime.block_on(builder().connect()).expect("the store is there");
    let limiters: Vec<_> = (0..row.processes).map(connected).collect();
    let subjects = (row.subjects)(pace.window);
    let parts = u32::try_from(subjects.len()).expect("a few");

    let origin = Instant::now();
    let epoch = Epoch::at(origin);
    let stalls = Stalls::watch(origin);
    let demand =
        Demand { tasks: row.tasks / parts, at_first: PERMITS_A_SECOND, calls_a_second: row.calls_a_second / parts };
    let start = |subject| Load::start(runtime.handle(), &limiters, subject, demand, origin);
    let loads: Vec<_> = subjects.iter().map(start).collect();
    tell("is well");
    sleep(pace.healthy);
    let (broken, lasting) = (origin.elapsed(), row.lasts.min(pace.fault));
    tell("is broken");
    scene.breaks(lasting);
    scene.lasts(lasting);
    let mended = scene.mends();
    tell("is mended");
    let is_back = runtime.block_on(come_back(&limiters));
    sleep(2 * pace.window + pace.after);
    tell("is judged");
    let ended = origin.elapsed();
    let calls: Vec<_> = loads.into_iter().map(|load| runtime.block_on(load.end())).collect();
    let stalls = stalls.end();
    let attempts = scene.attempts();
    let epoch = Some(epoch).filter(|epoch| epoch.agrees(Epoch::at(origin)));
    let record = |(subject, calls): (_, &Vec<_>)| {
        let mended = mended - origin;
        Record { subject, calls, stalls: &stalls, deadline: DEADLINE, epoch, broken, mended, ended }.report()
    };
    RowReport {
        deadline: DEADLINE,
        subjects: subjects.iter().zip(&calls).map(record).collect(),
        is_back,
        attempts: attempts.map(|(attempts, _)| attempts),
        most_attempts: attempts.map(|(_, at_once)| at_once),
    }
}

/// Whether the store decides again for each of the limiters, however long the machine takes for it. Takes no permits, so none
/// of them is used up by the standby limiter meanwhile.
pub(super) async fn come_back(limiters: &[Limiter]) -> bool {
    let (until, limit) = (Instant::now() + HANGS, "1000000/s".parse::<Limit>().expect("a limit"));
    for limiter in limiters {
        loop {
            match limiter.peek(&Key::new("probe"), &limit).await {
                Ok(Decision::Allowed(allowed)) if allowed.source() == Source::Store => break,
                _ if Instant::now() > until => return false,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
    true
}
