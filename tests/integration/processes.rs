//! Instances that are processes of their own, at four times what the limit allows.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use limiter_testkit::history::{Admission, Denial};
use limiter_testkit::{RedisServer, full_or, unique};
use rate_limited::Limiter;

use crate::child;
use crate::denials::{CAPACITY, ROUNDING, Run};
use crate::support::{AMPLE, key, limit};

const INSTANCES: usize = 8;
/// More distinct instants a window than the log keeps apart: runs merge.
const LIMIT: &str = "200/1s";
/// Calls of one instance: all together 800 a second.
const PAUSE: Duration = Duration::from_millis(10);

#[test]
fn eight_instances_keep_one_limit_and_use_it() {
    let server = RedisServer::start();
    let (url, prefix) = (server.url(), unique("processes"));
    let seconds = full_or("30", "3").to_owned();
    let run = thread::scope(|scope| {
        let variables = [("URL", &url), ("PREFIX", &prefix), ("SECONDS", &seconds)];
        let instance = move || child::run("processes::calls_for_some_time", &variables);
        let instances: Vec<_> = (0..INSTANCES).map(|_| scope.spawn(instance)).collect();
        let printed = instances.into_iter().map(|instance| instance.join().expect("an instance that ends well"));
        printed.fold(Run::default(), |run, printed| read(run, &printed))
    });
    assert!(run.admissions.len() > INSTANCES && run.denials.len() > INSTANCES, "{run:?}");
    let limit = limit(LIMIT);
    // Within it, and nothing denied that had room: so all of it was used, however fast the machine.
    run.assert_right(limit, ROUNDING + limit.window() / CAPACITY);
}

#[tokio::test]
#[ignore = "is one of several processes"]
async fn calls_for_some_time() {
    if !child::is_one() {
        return;
    }
    let (url, prefix) = (child::variable("URL"), child::variable("PREFIX"));
    let builder = Limiter::builder().url(&url).prefix(&prefix).deadline(AMPLE);
    let limiter = builder.connect().await.expect("connects");
    let (key, limit) = (key("busy"), limit(LIMIT));
    let length = Duration::from_secs(child::variable("SECONDS").parse().expect("a number"));
    let begun = Instant::now();
    let mut report = Vec::new();
    let mut ticks = tokio::time::interval(PAUSE);
    while begun.elapsed() < length {
        ticks.tick().await;
        let start = now();
        let is_allowed = limiter.check(&key, &limit).await.expect("answers").is_allowed();
        let verdict = if is_allowed { ADMITTED } else { DENIED };
        writeln!(report, "{verdict} {} {}", start.as_nanos(), now().as_nanos()).expect("room");
    }
    std::io::stdout().write_all(&report).expect("printed");
}

/// By the wall clock, which all processes share.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

/// What a call's line begins with.
const ADMITTED: &str = "admitted";
const DENIED: &str = "denied";

fn read(mut run: Run, printed: &str) -> Run {
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
