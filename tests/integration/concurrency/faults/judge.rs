//! An outside judge: processes that are killed, stopped and cut off record when their calls begin and end by a clock that all
//! share, and the calls that have not lost their slots are counted.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use limiter_testkit::{Proxy, Random, RedisServer, unique};
use rate_limited::{Limiter, OnError, Source};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::super::concurrent;
use super::LONG_SLOT_TIME;
use crate::child_process;
use crate::support::{LONG_DEADLINE, builder_for, key};

const SLOT_TIME: Duration = Duration::from_secs(1);
const PROCESSES: usize = 4;
/// The length of a round.
const LENGTH: Duration = Duration::from_secs(10);
/// The step back of the server's clock.
const STEP_MICROS: i64 = 5_000_000;
/// The longest life of a process whose parent has gone.
const LIFE: Duration = Duration::from_secs(60);
/// A process that stood still for so long by itself may have lost its slots: the machine is too busy.
const MAX_STANDSTILL: Duration = Duration::from_millis(620);
/// The time within which a loss is reported.
const MAX_REPORT_DELAY: Duration = Duration::from_millis(500);

/// Returns the time by the clock that all processes share.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.expect("positive"), nanos.expect("nanoseconds"))
}

/// One process, in one of its lives.
struct Member {
    child: Child,
    records: PathBuf,
}

impl Member {
    fn start(round: &Round, process: usize, life: usize, url: &str) -> Self {
        let records = round.directory.join(format!("{process}-{life}"));
        let variables = [
            ("URL", url.to_owned()),
            ("PREFIX", round.prefix.clone()),
            ("RECORDS", records.display().to_string()),
            ("MAX", round.max.to_string()),
            ("STANDBY", round.standby.to_string()),
            ("SEED", (round.seed * 1000 + process as u64 * 100 + life as u64).to_string()),
        ];
        let mut command = child_process::command("concurrency::faults::judge::call_until_killed", &variables);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("this program runs");
        Self { child, records }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process lives");
    }

    /// Kills it, and returns the instant before.
    fn kill(&mut self) -> Duration {
        let killed_at = now();
        self.child.kill().expect("the process lives");
        self.child.wait().expect("the process lives");
        killed_at
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Round {
    seed: u64,
    max: u32,
    standby: bool,
    /// True if the server's clock steps back.
    steps: bool,
    prefix: String,
    directory: PathBuf,
}

/// The calls that the judge has seen.
#[derive(Debug, Default)]
struct Verdict {
    calls: u64,
    /// The most calls at once that had not lost their slots, and when.
    most: i64,
    most_at: Duration,
    lost_reports: u64,
    standstills: u64,
    kills: u64,
    stops: u64,
    cuts: u64,
    /// The time from the end of all processes until all slots were free.
    free_after: Duration,
}

/// Begins and ends of calls: +1 and -1.
type Changes = Vec<(Duration, i64)>;

/// Adds the calls of one life of a process.
fn add_records(path: &Path, killed_at: Duration, changes: &mut Changes, verdict: &mut Verdict) {
    let text = fs::read_to_string(path).unwrap_or_default();
    let (mut calls, mut places) = (Vec::new(), std::collections::HashMap::new());
    // From when on calls that ran until then do not count: (a call that had ended earlier counts, start no later than this).
    let mut losses = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<u64>().expect("a number");
        let time = |index: usize| Duration::from_nanos(number(index));
        match words[0] {
            "begin" => {
                places.insert(number(1), calls.len());
                calls.push((time(2), killed_at));
            }
            "end" => calls[places[&number(1)]].1 = time(2),
            "lost" => {
                verdict.lost_reports += 1;
                losses.push((time(1).saturating_sub(MAX_REPORT_DELAY), time(1)));
            }
            _ => {
                verdict.standstills += 1;
                losses.push((time(1), time(2)));
            }
        }
    }
    for (begin, mut end) in calls {
        verdict.calls += 1;
        for (from, until) in &losses {
            if begin <= *until && end > *from {
                end = begin.max(*from);
            }
        }
        if end > begin {
            changes.extend([(begin, 1), (end, -1)]);
        }
    }
}

impl Verdict {
    fn count(&mut self, mut changes: Changes) {
        // An end comes before a begin at the same instant.
        changes.sort_unstable();
        let mut running = 0;
        for (at, change) in changes {
            running += change;
            if running > self.most {
                (self.most, self.most_at) = (running, at);
            }
        }
    }
}

fn run_round(round: &Round) -> Verdict {
    let mut server = RedisServer::builder().tcp().shifted_clock().start();
    let proxies: Vec<_> = (0..PROCESSES).map(|_| Proxy::start(&server)).collect();
    let (mut verdict, mut changes, mut random) = (Verdict::default(), Changes::new(), Random::new(round.seed));
    let mut lives = [0; PROCESSES];
    let start = |process, life| Member::start(round, process, life, proxies[process].url());
    let mut members: Vec<_> = (0..PROCESSES).map(|process| start(process, 0)).collect();
    // The end of the fault of each process, and whether it is stopped.
    let mut healed_at = [Instant::now() + SLOT_TIME; PROCESSES];
    let mut log = String::new();
    let mut faults: [Option<&str>; PROCESSES] = [None; PROCESSES];
    let mut step_at = round.steps.then(|| LENGTH.mul_f64(0.2 + random.below(500) as f64 / 1000.0));
    let began = Instant::now();
    while began.elapsed() < LENGTH {
        if step_at.is_some_and(|at| began.elapsed() > at) {
            step_at = None;
            server.set_clock(-STEP_MICROS);
            let _ = writeln!(log, "{:?} the clock steps back", now());
        }
        for process in 0..PROCESSES {
            if Instant::now() < healed_at[process] {
                continue;
            }
            if let Some(fault) = faults[process].take() {
                match fault {
                    "stop" => members[process].signal(Signal::CONT),
                    _ => proxies[process].pass(),
                }
                let _ = writeln!(log, "{:?} {process} healed of {fault}", now());
                // Faults of one process do not add up.
                healed_at[process] = Instant::now() + SLOT_TIME;
                continue;
            }
            if random.below(20) > 0 {
                continue;
            }
            let (fault, longest) = match random.below(6) {
                0 => {
                    let killed_at = members[process].kill();
                    add_records(&members[process].records, killed_at, &mut changes, &mut verdict);
                    verdict.kills += 1;
                    lives[process] += 1;
                    let _ = writeln!(log, "{killed_at:?} {process} killed");
                    members[process] = start(process, lives[process]);
                    healed_at[process] = Instant::now() + SLOT_TIME;
                    continue;
                }
                1 | 2 => {
                    members[process].signal(Signal::STOP);
                    verdict.stops += 1;
                    ("stop", SLOT_TIME / 2)
                }
                3 => {
                    proxies[process].cut();
                    verdict.cuts += 1;
                    ("cut", if random.below(2) == 0 { SLOT_TIME / 3 } else { 3 * SLOT_TIME })
                }
                4 => {
                    proxies[process].delay(Duration::from_millis(random.between(1, 150)));
                    ("delay", 2 * SLOT_TIME)
                }
                _ => {
                    match random.below(3) {
                        0 => proxies[process].stall(),
                        1 => proxies[process].lose_replies(),
                        _ => proxies[process].half_open(),
                    }
                    verdict.cuts += 1;
                    ("stall", if random.below(2) == 0 { SLOT_TIME / 3 } else { 3 * SLOT_TIME })
                }
            };
            let _ = writeln!(log, "{:?} {process} {fault}", now());
            faults[process] = Some(fault);
            let millis = u64::try_from(longest.as_millis()).expect("short");
            healed_at[process] = Instant::now() + Duration::from_millis(random.between(millis / 5, millis));
        }
        thread::sleep(Duration::from_millis(10));
    }
    for member in &mut members {
        let killed_at = member.kill();
        add_records(&member.records, killed_at, &mut changes, &mut verdict);
    }
    let killed_at = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let builder = builder_for(&server).prefix(&round.prefix).slot_time(LONG_SLOT_TIME).on_error(OnError::Raise);
        let (limiter, limit) = (builder.connect().await.expect("a server"), concurrent(round.max));
        let mut held = Vec::new();
        for _ in 0..round.max {
            let entry = limiter.enter_wait(&key("judged"), &limit, LONG_DEADLINE).await.expect("a decision");
            held.push(entry.entered().expect("all slots come free"));
        }
    });
    verdict.free_after = killed_at.elapsed();
    verdict.count(changes);
    let _ = fs::write(round.directory.join("faults"), log);
    verdict
}

#[test]
#[ignore = "takes minutes: `RATE_LIMITED_SLOT_ROUNDS` is the number of rounds of ten seconds"]
fn calls_that_have_not_lost_their_slots_are_never_above_the_limit() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let Some(rounds) = number("RATE_LIMITED_SLOT_ROUNDS") else { return };
    let first = number("RATE_LIMITED_SLOT_SEED").unwrap_or(0);
    let directory = tempfile::tempdir().expect("a directory");
    let mut violations = Vec::new();
    for seed in first..first + rounds {
        let max = [1, 5, 20, 1000][usize::try_from(seed % 4).expect("small")];
        let directory = directory.path().join(seed.to_string());
        fs::create_dir(&directory).expect("a directory");
        let (standby, steps) = (seed / 4 % 2 == 1, seed / 8 % 2 == 1);
        let round = Round { seed, max, standby, steps, prefix: unique("judge"), directory };
        let verdict = run_round(&round);
        println!("{seed}: N = {max}, standby {standby}, clock steps {steps}: {verdict:?}");
        if verdict.most > i64::from(max) {
            violations.push((seed, verdict.most, max));
            if let Ok(kept) = env::var("RATE_LIMITED_SLOT_RECORDS") {
                let kept = PathBuf::from(kept).join(seed.to_string());
                fs::create_dir_all(&kept).expect("a directory");
                for file in fs::read_dir(&round.directory).expect("a directory") {
                    let file = file.expect("a file");
                    fs::copy(file.path(), kept.join(file.file_name())).expect("copied");
                }
            }
        }
    }
    assert!(violations.is_empty(), "seeds, most calls at once, limits: {violations:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a process of its own, which is killed"]
async fn call_until_killed() {
    if !child_process::is_child() {
        return;
    }
    let [url, prefix, records, max, standby, seed] =
        ["URL", "PREFIX", "RECORDS", "MAX", "STANDBY", "SEED"].map(child_process::variable);
    let records = Arc::new(File::options().append(true).create(true).open(records).expect("a file"));
    // One write for each line: a process that is killed has written it or not.
    let write = move |line: String| (&*records).write_all(line.as_bytes()).expect("written");
    let write_loss = write.clone();
    let policy = if standby == "true" { OnError::Standby } else { OnError::Closed };
    let processes = u32::try_from(PROCESSES).expect("few");
    let builder =
        Limiter::builder().url(&url).prefix(&prefix).slot_time(SLOT_TIME).on_error(policy).instances(processes);
    let builder = builder.on_lost(move |lost| write_loss(format!("lost {} {}\n", now().as_nanos(), lost.slots())));
    let (limiter, next) = (builder.build().expect("valid"), Arc::new(AtomicU64::new(0)));
    let write_standstill = write.clone();
    thread::spawn(move || {
        let mut last = now();
        loop {
            thread::sleep(Duration::from_millis(10));
            let looked_at = now();
            if looked_at - last > MAX_STANDSTILL {
                write_standstill(format!("stood {} {}\n", last.as_nanos(), looked_at.as_nanos()));
            }
            last = looked_at;
        }
    });
    let (max, seed): (u32, u64) = (max.parse().expect("a number"), seed.parse().expect("a number"));
    let (limit, end) = (concurrent(max), Instant::now() + LIFE);
    let mut tasks = JoinSet::new();
    for task in 0..(max * 12 / 10 / processes + 2) {
        let (limiter, write, next) = (limiter.clone(), write.clone(), Arc::clone(&next));
        let mut random = Random::new(seed * 10_000 + u64::from(task));
        tasks.spawn(async move {
            let key = key("judged");
            while Instant::now() < end {
                let wait = Duration::from_millis(random.below(2000));
                // Some calls are dropped while they wait.
                let patience = Duration::from_millis(if random.below(4) == 0 { random.below(20) } else { 10_000 });
                let entry = timeout(patience, async {
                    if wait.is_zero() {
                        limiter.enter(&key, &limit).await
                    } else {
                        limiter.enter_wait(&key, &limit, wait).await
                    }
                });
                let Ok(Ok(entry)) = entry.await else { continue };
                let Some(held) = entry.entered() else {
                    sleep(Duration::from_millis(5)).await;
                    continue;
                };
                let is_counted = held.allowed().source() == Source::Store;
                let id = next.fetch_add(1, Ordering::Relaxed);
                if is_counted {
                    write(format!("begin {id} {}\n", now().as_nanos()));
                }
                let longest = if random.below(2) == 0 { 10 } else { 300 };
                sleep(Duration::from_millis(random.between(1, longest))).await;
                if is_counted {
                    write(format!("end {id} {}\n", now().as_nanos()));
                }
                drop(held);
                if random.below(2) == 0 {
                    sleep(Duration::from_millis(random.below(longest))).await;
                }
            }
        });
    }
    tasks.join_all().await;
}
