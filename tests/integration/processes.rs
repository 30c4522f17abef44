//! A test with several processes, which together call at four times the limit.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use limiter_testkit::history::{Admission, Denial};
use limiter_testkit::{RedisServer, full_or, unique};
use rate_limited::Limiter;

use crate::child_process;
use crate::denials::{MAX_LOG_INSTANTS, MAX_ROUNDING, Run};
use crate::support::{LONG_DEADLINE, key, limit};

const INSTANCES: usize = 8;
/// A limit with more distinct instants per window than the log distinguishes, so that runs merge.
const LIMIT_TEXT: &str = "200/1s";
/// The pause between calls of one instance. Together the instances make 800 calls per second.
const PAUSE_BETWEEN_CALLS: Duration = Duration::from_millis(10);

#[test]
fn eight_processes_keep_one_limit_and_use_it_in_full() {
    let server = RedisServer::start();
    let (url, prefix) = (server.url(), unique("processes"));
    let seconds = full_or("30", "3").to_owned();
    let run = thread::scope(|scope| {
        let variables = [("URL", &url), ("PREFIX", &prefix), ("SECONDS", &seconds)];
        let instance = move || child_process::run("processes::call_repeatedly", &variables);
        let instances: Vec<_> = (0..INSTANCES).map(|_| scope.spawn(instance)).collect();
        let printed = instances.into_iter().map(|instance| instance.join().expect("an instance that ends well"));
        printed.fold(Run::default(), |run, printed| add_calls(run, &printed))
    });
    assert!(run.admissions.len() > INSTANCES && run.denials.len() > INSTANCES, "{run:?}");
    let limit = limit(LIMIT_TEXT);
    // The limit holds, and no call is denied while it fits. So the limit was used in full, however fast the machine.
    run.assert_exact(limit, MAX_ROUNDING + limit.window() / MAX_LOG_INSTANTS);
}

#[tokio::test]
#[ignore = "is one of several processes"]
async fn call_repeatedly() {
    if !child_process::is_child() {
        return;
    }
    let (url, prefix) = (child_process::variable("URL"), child_process::variable("PREFIX"));
    let builder = Limiter::builder().url(&url).prefix(&prefix).deadline(LONG_DEADLINE);
    let limiter = builder.connect().await.expect("connects");
    let (key, limit) = (key("busy"), limit(LIMIT_TEXT));
    let length = Duration::from_secs(child_process::variable("SECONDS").parse().expect("a number"));
    let begun = Instant::now();
    let mut report = Vec::new();
    let mut ticks = tokio::time::interval(PAUSE_BETWEEN_CALLS);
    while begun.elapsed() < length {
        ticks.tick().await;
        let start = wall_clock();
        let is_allowed = limiter.check(&key, &limit).await.expect("answers").is_allowed();
        let verdict = if is_allowed { ADMITTED } else { DENIED };
        writeln!(report, "{verdict} {} {}", start.as_nanos(), wall_clock().as_nanos()).expect("room");
    }
    std::io::stdout().write_all(&report).expect("printed");
}

/// Returns the time of the wall clock, which all processes share.
fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

/// The first word of a call's line.
const ADMITTED: &str = "admitted";
const DENIED: &str = "denied";

fn add_calls(mut run: Run, printed: &str) -> Run {
    let nanos = |text: &str| Duration::from_nanos(text.parse().expect("a number"));
    for line in printed.lines() {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            [ADMITTED, start, end] => {
                run.admissions.push(Admission { start: nanos(start), end: nanos(end), cost: 1 });
            }
            [DENIED, start, end] => run.denials.push(Denial { start: nanos(start), end: nanos(end), cost: 1 }),
            _ => {}
        }
    }
    run
}
