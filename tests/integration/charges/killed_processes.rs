//! Processes that are killed at any moment while they charge, take and settle permits. A ledger outside of them has each call: before
//! it is sent, and after its reply. The server counts all calls with a reply, and besides them only calls without one.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use limiter_testkit::{Random, RedisServer, full_or, unique};
use rate_limited::Algorithm::{FixedWindow, SlidingWindow};
use rate_limited::{Decision, Key, Limit, Limiter, OnError};
use tokio::task::JoinSet;

use crate::child_process;
use crate::deadlines::eventually;
use crate::support::{LONG_DEADLINE, limit};

const PROCESSES: usize = 4;
/// Calls at once of each process.
const TASKS: u64 = 16;
/// Replies after which a process is killed.
const REPLIES: usize = 120;
/// The longest life of a process whose parent has gone.
const LIFE: Duration = Duration::from_secs(60);

/// The counters: all permits of the test are in one window of each.
fn targets() -> [(Key, Limit); 2] {
    [SlidingWindow, FixedWindow].map(|algorithm| {
        (Key::new("killed:").part(format!("{algorithm:?}")), limit("600/366d").with_algorithm(algorithm))
    })
}

fn limiter(url: &str, prefix: &str) -> Limiter {
    let builder = Limiter::builder().url(url).prefix(prefix).deadline(LONG_DEADLINE).on_error(OnError::Raise);
    builder.build().expect("valid")
}

/// A process that is killed by SIGKILL when it is dropped.
struct Process {
    child: Child,
    ledger: PathBuf,
}

impl Process {
    fn start(url: &str, prefix: &str, ledger: PathBuf, seed: u64) -> Self {
        let variables = [
            ("URL", url.to_owned()),
            ("PREFIX", prefix.to_owned()),
            ("LEDGER", ledger.display().to_string()),
            ("SEED", seed.to_string()),
        ];
        let mut command = child_process::command("charges::killed_processes::call_until_killed", &variables);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("this program runs");
        Self { child, ledger }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The permits of one counter.
#[derive(Clone, Copy, Default)]
struct Permits {
    /// Permits of calls with a reply.
    counted: u64,
    /// Permits of calls without one.
    unknown: u64,
}

/// Adds the calls of a ledger: lines `sent <id> <target> <cost>`, and `counted <id> <permits>` after a reply.
fn add_ledger(path: &Path, permits: &mut [Permits; 2]) {
    let mut sent = HashMap::new();
    let text = fs::read_to_string(path).expect("a ledger");
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<u64>().expect("a number");
        if words[0] == "sent" {
            sent.insert(number(1), (usize::try_from(number(2)).expect("small"), number(3)));
        } else {
            let (target, _) = sent.remove(&number(1)).expect("sent before");
            permits[target].counted += number(2);
        }
    }
    for (target, cost) in sent.into_values() {
        permits[target].unknown += cost;
    }
}

#[tokio::test]
async fn permits_of_killed_processes_are_counted_to_the_permit() {
    let (server, prefix) = (RedisServer::start(), unique("killed"));
    let directory = tempfile::tempdir().expect("a directory");
    let mut permits = [Permits::default(); 2];
    for life in 0..full_or(8, 2) {
        let processes = (0..PROCESSES).map(|process| {
            let ledger = directory.path().join(format!("{life}-{process}"));
            Process::start(&server.url(), &prefix, ledger, life * 10 + process as u64)
        });
        let processes: Vec<_> = processes.collect();
        // One after the other is killed while the others call.
        for process in processes {
            let ledger = process.ledger.clone();
            eventually("replies", || async {
                fs::read_to_string(&ledger).is_ok_and(|text| text.matches("counted").count() >= REPLIES)
            })
            .await;
            drop(process);
            add_ledger(&ledger, &mut permits);
        }
    }
    let limiter = limiter(&server.url(), &prefix);
    for ((key, limit), Permits { counted, unknown }) in targets().iter().zip(permits) {
        let usage = limiter.charge(key, limit, 0).await.expect("a charge of nothing");
        let used = u64::from(limit.max() - usage.remaining()) + u64::from(usage.overdrawn());
        let what = format!("{:?}: {used} used, {counted} with a reply, {unknown} without", limit.algorithm());
        println!("{what}");
        assert!(counted > u64::from(limit.max()) && unknown > 0, "{what}");
        assert!((counted..=counted + unknown).contains(&used), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a process of its own, which is killed"]
async fn call_until_killed() {
    if !child_process::is_child() {
        return;
    }
    let [url, prefix, ledger, seed] = ["URL", "PREFIX", "LEDGER", "SEED"].map(child_process::variable);
    let ledger = Arc::new(File::options().append(true).create(true).open(ledger).expect("a ledger"));
    let (limiter, next) = (limiter(&url, &prefix), Arc::new(AtomicU32::new(0)));
    let (seed, end) = (seed.parse::<u64>().expect("a number"), Instant::now() + LIFE);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (limiter, ledger, next) = (limiter.clone(), Arc::clone(&ledger), Arc::clone(&next));
        let mut random = Random::new(seed * TASKS + task);
        tasks.spawn(async move {
            // One write for each line: a process that is killed has written it or not.
            let write = |line: String| (&*ledger).write_all(line.as_bytes()).expect("written");
            let targets = targets();
            while Instant::now() < end {
                let (index, cost) = (usize::from(random.below(2) == 0), 1 + u32::from(random.below(5) == 0) * 6);
                let (key, limit) = &targets[index];
                let (id, operation) = (next.fetch_add(1, Relaxed), random.below(4));
                let actual = if operation == 1 { u32::try_from(random.below(9)).expect("small") } else { cost };
                write(format!("sent {id} {index} {}\n", cost.max(actual)));
                let counted = match operation {
                    0 | 1 => match limiter.check_n(key, limit, cost).await {
                        Ok(Decision::Allowed(_)) if operation == 0 => cost,
                        Ok(Decision::Allowed(allowed)) => match limiter.settle(&allowed, actual).await {
                            Ok(usage) => actual - usage.uncounted(),
                            Err(_) => continue,
                        },
                        Ok(Decision::Denied(_)) => 0,
                        Err(_) => continue,
                    },
                    _ => match limiter.charge(key, limit, cost).await {
                        Ok(usage) => cost - usage.uncounted(),
                        Err(_) => continue,
                    },
                };
                write(format!("counted {id} {counted}\n"));
            }
        });
    }
    tasks.join_all().await;
}
