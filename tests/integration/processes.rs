//! Instances that are processes of their own, for half a minute, at four times what the limit allows.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use limiter_testkit::history::{Admission, feasible};
use limiter_testkit::{RedisServer, unique};
use rate_limited::Limiter;

use crate::child;
use crate::support::{key, limit};

const INSTANCES: usize = 8;
/// More distinct instants a window than the log keeps apart: runs merge.
const LIMIT: &str = "200/1s";
const LENGTH: Duration = Duration::from_secs(30);
/// Calls of one instance: all together 800 a second.
const PAUSE: Duration = Duration::from_millis(10);

#[test]
fn eight_instances_keep_one_limit_and_use_it() {
    let server = RedisServer::start();
    let (url, prefix) = (server.url(), unique("processes"));
    let admitted: Vec<Admission> = thread::scope(|scope| {
        let instance = || child::run("processes::calls_for_half_a_minute", &[("URL", &url), ("PREFIX", &prefix)]);
        let instances: Vec<_> = (0..INSTANCES).map(|_| scope.spawn(instance)).collect();
        let printed = instances.into_iter().map(|instance| instance.join().expect("an instance that ends well"));
        printed.flat_map(|printed| read(&printed)).collect()
    });
    let limit = limit(LIMIT);
    assert_eq!(feasible(&admitted, limit.window(), limit.max()), Ok(()));

    let first = admitted.iter().map(|call| call.start).min().expect("calls");
    let last = admitted.iter().map(|call| call.end).max().expect("calls");
    let allowed = (last - first).as_secs_f64() * f64::from(limit.max());
    let share = f64::from(u32::try_from(admitted.len()).expect("few")) / allowed;
    assert!(last - first > LENGTH.mul_f64(0.8), "{:?}", last - first);
    assert!(share >= 0.97, "{} admitted where {allowed:.0} were allowed", admitted.len());
}

#[tokio::test]
#[ignore = "is one of several processes"]
async fn calls_for_half_a_minute() {
    if !child::is_one() {
        return;
    }
    let (url, prefix) = (child::variable("URL"), child::variable("PREFIX"));
    let builder = Limiter::builder().url(&url).prefix(&prefix).deadline(Duration::from_secs(5));
    let limiter = builder.connect().await.expect("connects");
    let (key, limit) = (key("busy"), limit(LIMIT));
    let begun = Instant::now();
    let mut report = Vec::new();
    let mut ticks = tokio::time::interval(PAUSE);
    while begun.elapsed() < LENGTH {
        ticks.tick().await;
        let start = now();
        if limiter.check(&key, &limit).await.expect("answers").is_allowed() {
            writeln!(report, "admitted {} {}", start.as_nanos(), now().as_nanos()).expect("room");
        }
    }
    std::io::stdout().write_all(&report).expect("printed");
}

/// By the wall clock, which all processes share.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

fn read(printed: &str) -> Vec<Admission> {
    let nanos = |text: &str| Duration::from_nanos(text.parse().expect("a number"));
    let lines = printed.lines().filter_map(|line| line.strip_prefix("admitted "));
    let interval = |line: &str| {
        let (start, end) = line.split_once(' ').expect("two numbers");
        Admission { start: nanos(start), end: nanos(end), cost: 1 }
    };
    lines.map(interval).collect()
}
