//! Processes under load that follow the shared rules. The times are printed, for a reader of the output: no test asserts
//! how fast a change spreads.

use std::io::{BufRead, BufReader, Read, Write, stdin, stdout};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use limiter_testkit::{Cluster, RedisServer, Sentinels, full_or, unique};
use rate_limited::{Decision, ErrorKind, Limiter, OnError, SharedRules};

use super::{builder, change};
use crate::child_process;
use crate::deadlines::{DEADLINE, WAIT_TIMEOUT};
use crate::support::{key, limit};

const PROCESSES: usize = 4;
const CALLERS: usize = 4;

/// Returns the permits of the rule in each version.
fn max_of(version: u64) -> u32 {
    u32::try_from(100_000 + version).expect("small")
}

fn text(version: u64, is_long: bool) -> String {
    let mut text = format!("[rules.fleet]\nlimit = \"{}/h\"\n", max_of(version));
    for number in 0..if is_long { 25_000 } else { 0 } {
        text += &format!("[rules.other-{number:06}]\nlimit = \"5/10s\"\n");
    }
    text
}

/// A process under load.
struct Follower {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Follower {
    fn start(url: &str, prefix: &str) -> Self {
        let variables = [("RULES_URL", url), ("RULES_PREFIX", prefix)];
        let mut command = child_process::command("shared_rules::fleet::follower_under_load", &variables);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program runs");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, lines }
    }

    /// Waits for the report of a version. Returns the time at which it was in force, and the late decisions so far.
    fn report_of(&mut self, version: u64) -> (Duration, u64) {
        let mut line = String::new();
        while self.lines.read_line(&mut line).expect("a line") > 0 {
            let fields: Option<Vec<u64>> = line
                .trim()
                .strip_prefix("report ")
                .map(|rest| rest.split(' ').map(|number| number.parse().expect("a number")).collect());
            if let Some([reported, micros, late]) = fields.as_deref()
                && *reported == version
            {
                return (Duration::from_micros(*micros), *late);
            }
            line.clear();
        }
        panic!("the process ended before version {version}");
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        let _ = self.lines.read_to_string(&mut rest);
        assert!(self.child.wait().expect("a child").success(), "{rest}");
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("later")
}

/// The process: callers check a rule all the time, and each version is reported once it is in force.
#[test]
#[ignore = "a process of its own, under load"]
fn follower_under_load() {
    if !child_process::is_child() {
        return;
    }
    let (url, prefix) = (child_process::variable("RULES_URL"), child_process::variable("RULES_PREFIX"));
    let limiter =
        builder(&url, &prefix).deadline(DEADLINE).on_error(OnError::Raise).shared_rules().build().expect("valid");
    let (is_over, late) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (limiter, is_over, late) = (&limiter, &is_over, &late);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if check(limiter, caller).is_none() {
                        late.fetch_add(1, Ordering::Relaxed);
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        scope.spawn(|| {
            let mut version = 0;
            while !is_over.load(Ordering::Relaxed) {
                let present = limiter.shared_rules_version();
                if present != version {
                    let at = since_epoch().as_micros();
                    version = present;
                    // Every call that begins now has the new limit.
                    (0..20)
                        .filter_map(|caller| check(&limiter, caller))
                        .for_each(|max| assert_eq!(max, max_of(version)));
                    println!("\nreport {version} {at} {}", late.load(Ordering::Relaxed));
                    let _ = stdout().flush();
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        let _ = stdin().read_to_end(&mut Vec::new());
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Makes a call. Returns the permits of its limit, or `None` if there was no reply within the deadline.
fn check(limiter: &Limiter, caller: usize) -> Option<u32> {
    let (key, default) = (key(&format!("caller {caller}")), limit("1/m"));
    match limiter.named("fleet").check_blocking(&key, &default) {
        Ok(Decision::Allowed(allowed)) => Some(allowed.limit().max()),
        Ok(Decision::Denied(denied)) => Some(denied.limit().max()),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "{error:?}");
            None
        }
    }
}

async fn assert_each_change_reaches_every_process(store: &str, url: &str) {
    let prefix = unique("fleet");
    let rules = SharedRules::new(&builder(url, &prefix).connect().await.expect("connects"));
    rules.publish(&text(1, false), change(0)).await.expect("published");
    let mut fleet: Vec<_> = (0..PROCESSES).map(|_| Follower::start(url, &prefix)).collect();
    fleet.iter_mut().for_each(|follower| {
        follower.report_of(1);
    });
    let changes = full_or(20, 4);
    let mut spread = Vec::new();
    let late_after = |fleet: &mut Vec<Follower>, version| {
        fleet.iter_mut().map(|follower| follower.report_of(version).1).sum::<u64>()
    };
    for version in 2..=changes + 1 {
        let began = (Instant::now(), since_epoch());
        rules.publish(&text(version, false), change(version - 1)).await.expect("published");
        for follower in &mut fleet {
            let (at, _) = follower.report_of(version);
            spread.push(at.saturating_sub(began.1));
            assert!(began.0.elapsed() < WAIT_TIMEOUT);
        }
    }
    let long = text(changes + 2, true);
    assert!(long.len() > 900_000, "{}", long.len());
    rules.publish(&long, change(changes + 1)).await.expect("published");
    let before = late_after(&mut fleet, changes + 2);
    rules.publish(&text(changes + 3, false), change(changes + 2)).await.expect("published");
    let late = late_after(&mut fleet, changes + 3);
    fleet.into_iter().for_each(Follower::end);
    spread.sort_unstable();
    println!(
        "{store}: {changes} changes in {PROCESSES} processes: median {:?}, longest {:?}; late decisions {late}, {before} \
         before the end of the text of 1 MB",
        spread[spread.len() / 2],
        spread[spread.len() - 1]
    );
}

#[tokio::test]
async fn each_change_reaches_every_process() {
    assert_each_change_reaches_every_process("one server", &RedisServer::start().url()).await;
}

#[tokio::test]
async fn each_change_reaches_every_process_of_a_cluster() {
    assert_each_change_reaches_every_process("cluster", &Cluster::builder().masters_only().start().url()).await;
}

#[tokio::test]
async fn each_change_reaches_every_process_behind_sentinels() {
    // A failover, as on a machine that stands still, may lose a change.
    let sentinels = Sentinels::builder().setting("replica-priority", "0").start();
    assert_each_change_reaches_every_process("sentinels", &sentinels.url()).await;
}
