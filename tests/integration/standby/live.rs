//! Tests of `instances_live`: the limiters that live share each limit while the store is away.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use limiter_testkit::{RedisServer, unique};
use rate_limited::{Algorithm, Builder, Error, ErrorKind, Key, Limiter, OnError, Source};
use tokio::time::sleep;

use super::{OutageFixture, take_all, wait_until_connected};
use crate::child_process;
use crate::deadlines::{eventually, once_connected};
use crate::support::{LONG_DEADLINE, key, limit};

/// The interval of heartbeats in these tests.
const INTERVAL: Duration = Duration::from_millis(100);

async fn eventually_shared_by(limiter: &Limiter, key: &Key, instances: u32) {
    let shared_by = || limiter.instances_sharing(key, &limit("5/10s"));
    eventually(&format!("{instances} instances"), async || shared_by() == instances).await;
}

async fn connect_live(builder: Builder) -> Limiter {
    builder.instances_live().presence_interval(INTERVAL).connect().await.expect("the server is there")
}

#[tokio::test]
async fn limiters_that_live_keep_the_limit_together_through_an_outage() {
    let mut fixture = OutageFixture::new();
    let (first, second) = (connect_live(fixture.builder()).await, connect_live(fixture.builder()).await);
    for limiter in [&first, &second] {
        eventually_shared_by(limiter, &key("a"), 2).await;
    }
    fixture.server.kill();
    assert_eq!(take_all(&first).await.0, [Source::Standby; 2], "half of five");
    assert_eq!(take_all(&second).await.0, [Source::Standby; 2]);
    fixture.restart_empty(&[]).await;
    for limiter in [&first, &second] {
        wait_until_connected(limiter).await;
        assert_eq!(take_all(limiter).await.0, [], "its share is used up");
    }
    fixture.advance_secs(10);
    assert_eq!(take_all(&first).await.0, [Source::Store; 5]);
    assert_eq!(take_all(&second).await.0, []);
}

#[tokio::test]
async fn the_number_that_was_heard_holds_through_an_outage_and_an_empty_server() {
    let mut fixture = OutageFixture::new();
    let (first, second) = (connect_live(fixture.builder()).await, connect_live(fixture.builder()).await);
    eventually_shared_by(&first, &key("a"), 2).await;
    // The other one is gone, and the server empty: what is heard from now on is smaller.
    fixture.server.kill();
    drop(second);
    fixture.restart_empty(&[&first]).await;
    let began = std::time::Instant::now();
    eventually_shared_by(&first, &key("a"), 1).await;
    let listed = first.instances().await.expect("the store answers");
    assert_eq!((listed.len(), &listed[0].pid), (1, &std::process::id()), "it is listed again");
    // It has heard the smaller number for twelve intervals, of which the first may have begun before.
    assert!(began.elapsed() >= 10 * INTERVAL, "{:?}", began.elapsed());
}

/// The shops have a rule that the others lack.
#[tokio::test]
async fn limiters_of_other_programs_on_the_prefix_do_not_cut_a_share() {
    let fixture = OutageFixture::new();
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, template: &str, limits: &[&str]| {
        let (path, text) = (directory.path().join(name), format!("key = \"{template}\"\nlimits = {limits:?}\n"));
        fs::write(&path, format!("[rules.{name}]\n{text}")).expect("written");
        path
    };
    let mut limiters = Vec::new();
    for (name, template, limits, count) in [
        ("shop-search", "shop:{user}", &["5/10s", "9/1m"][..], 3),
        ("shop-mail", "mail:{to}", &["5/10s"], 4),
        ("shop-later", "shop:{user}", &["7/1h"], 2),
    ] {
        for _ in 0..count {
            limiters.push(connect_live(fixture.builder().rules_file(file(name, template, limits))).await);
        }
    }
    let (shop, mailer, later) = (&limiters[0], &limiters[3], &limiters[7]);
    let user = Key::new("shop:").part(42);
    for (limiter, key, of, expected) in [
        (shop, &user, "5/10s", 3),
        (shop, &user, "9/1m", 3),
        (mailer, &Key::new("mail:").part("a@b"), "5/10s", 4),
        (later, &user, "7/1h", 2),
        // No rule of these limiters makes such a counter.
        (shop, &user, "7/1h", 9),
        (mailer, &user, "5/10s", 9),
        (shop, &key("direct"), "5/10s", 9),
    ] {
        let shared_by = || limiter.instances_sharing(key, &limit(of));
        eventually(&format!("{of} of {}: {expected}", key.encoded()), async || shared_by() == expected).await;
    }
    let bucket = limit("5/10s").with_algorithm(Algorithm::TokenBucket);
    assert_eq!(shop.instances_sharing(&user, &bucket), 9);
}

#[tokio::test]
async fn a_limiter_that_starts_in_an_outage_has_the_least_number() {
    let mut fixture = OutageFixture::new();
    fixture.server.kill();
    let build = |builder: Builder| builder.build().expect("valid");
    let unaware = build(fixture.builder());
    assert_eq!(take_all(&unaware).await.0, [Source::Standby; 5], "it has heard no number");
    let aware = build(fixture.builder().instances_at_least(2));
    assert_eq!(take_all(&aware).await.0, [Source::Standby; 2]);
}

#[tokio::test]
async fn a_number_that_is_set_comes_before_the_live_one() {
    let fixture = OutageFixture::new();
    let limiter = connect_live(fixture.builder().instances(7)).await;
    eventually("listed", async || limiter.instances().await.is_ok_and(|listed| listed.len() == 1)).await;
    assert_eq!(limiter.instances_sharing(&key("a"), &limit("5/10s")), 7);
}

/// A number is known before the first heartbeat, which comes after two intervals.
#[tokio::test]
async fn the_number_is_known_as_soon_as_the_store_is_connected() {
    let fixture = OutageFixture::new();
    let first = connect_live(fixture.builder()).await;
    eventually("listed", async || first.instances().await.is_ok_and(|listed| listed.len() == 1)).await;
    let long = Duration::from_secs(600);
    let builder = fixture.builder().instances_live().presence_interval(long);
    let second = builder.connect().await.expect("the server is there");
    eventually_shared_by(&second, &key("a"), 2).await;
    assert_eq!(first.instances().await.expect("the store answers").len(), 1, "it has written nothing");
}

#[test]
fn contradictions_are_errors() {
    let built = |builder: Builder| builder.url("redis://127.0.0.1:1").build().map(drop);
    let new = Limiter::builder;
    let message = |result: Result<(), Error>| {
        let error = result.expect_err("a mistake");
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    };
    assert!(message(built(new().instances_live().presence(false))).contains("got `presence(false)`"));
    assert!(message(built(new().instances_at_least(2).presence(false))).contains("got `presence(false)`"));
    assert!(message(built(new().instances_at_least(0))).contains("at least 1, got 0"));
    built(new().instances_live().presence(false).instances(3)).expect("the number that is set");
    Limiter::builder().url("memory:").instances_live().build().expect("it is ignored");
}

// Two processes that are loaded while their server is killed.

/// The limit of the processes. The server is away for several of its windows.
const LIMIT: &str = "400/1s";
const WINDOW: Duration = Duration::from_secs(1);
/// The calls of each process at once.
const TASKS: usize = 4;

/// An admission: no earlier than the first instant, and no later than the second, in microseconds of the system's clock.
type Admission = (u128, u128);

#[test]
fn two_loaded_processes_keep_the_limit_while_the_server_is_killed() {
    let (mut server, prefix) = (RedisServer::start(), unique("live"));
    let mut processes: Vec<_> = (0..2).map(|_| LoadedProcess::start(&server, &prefix)).collect();
    processes.iter_mut().for_each(LoadedProcess::wait_until_aware);
    server.kill();
    let killed_at = now();
    // In each of these windows.
    std::thread::sleep(4 * WINDOW);
    let ended: Vec<_> = processes.into_iter().map(LoadedProcess::end).collect();
    let max = limit(LIMIT).max() as usize;
    let all: Vec<_> = ended.iter().flatten().copied().collect();
    for (process, of_process) in ended.iter().enumerate() {
        let standby = of_process.iter().filter(|(first, _)| *first > killed_at + WINDOW.as_micros()).count();
        assert!(standby > 0, "process {process} has admitted {standby} in the outage");
    }
    let most_from = |start: u128| most_in_a_window(all.iter().copied().filter(|(first, _)| *first >= start));
    // What one of them held above its share at the start comes on top, for a window.
    let at_start = most_from(0);
    assert!(at_start <= max + max / 2, "{at_start} in a window around the kill");
    let later = most_from(killed_at + WINDOW.as_micros());
    assert!(later <= max, "{later} in a window of the outage");
}

/// The most admissions that lie in one window for certain.
fn most_in_a_window(admissions: impl Iterator<Item = Admission>) -> usize {
    let mut admissions: Vec<_> = admissions.collect();
    admissions.sort_unstable();
    let in_window = |start: u128| {
        let end = start + WINDOW.as_micros();
        admissions.iter().filter(|(first, last)| *first >= start && *last < end).count()
    };
    admissions.iter().map(|(first, _)| in_window(*first)).max().unwrap_or(0)
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros()
}

struct LoadedProcess {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl LoadedProcess {
    fn start(server: &RedisServer, prefix: &str) -> Self {
        let variables = [("URL", server.url()), ("PREFIX", prefix.to_owned())];
        let mut command = child_process::command("standby::live::be_loaded", &variables);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("this program");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        Self { process, output }
    }

    /// Waits until the process has heard of the other one.
    fn wait_until_aware(&mut self) {
        (&mut self.output).lines().map(|line| line.expect("a line")).find(|line| line == "aware").expect("aware");
    }

    /// Ends the process, and returns its admissions.
    fn end(mut self) -> Vec<Admission> {
        self.process.stdin.take().expect("piped").write_all(b"end\n").expect("it reads");
        let lines = self.output.lines().map(|line| line.expect("a line"));
        let admission = |line: String| {
            let (first, last) = line.strip_prefix("admitted ")?.split_once(' ')?;
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        let admissions = lines.filter_map(admission).collect();
        assert!(self.process.wait().expect("it has ended").success());
        admissions
    }
}

#[tokio::test]
#[ignore = "is a process of `two_loaded_processes_keep_the_limit_while_the_server_is_killed`"]
async fn be_loaded() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    if !child_process::is_child() {
        return;
    }
    let (url, prefix) = (child_process::variable("URL"), child_process::variable("PREFIX"));
    let builder = || Limiter::builder().url(&url).prefix(&prefix).deadline(LONG_DEADLINE).on_error(OnError::Standby);
    let builder = || builder().instances_live().presence_interval(INTERVAL);
    let limiter = once_connected(async || builder().connect().await).await.expect("connects");
    let of = limit(LIMIT);
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let mut admissions = Vec::new();
                while !IS_OVER.load(Ordering::Relaxed) {
                    let first = now();
                    if limiter.check(&key("a"), &of).await.expect("the standby limiter at least").is_allowed() {
                        admissions.push((first, now()));
                    }
                    sleep(Duration::from_millis(2)).await;
                }
                admissions
            })
        })
        .collect();
    eventually_shared_by(&limiter, &key("a"), 2).await;
    println!("\naware");
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()))
        .await
        .expect("read")
        .expect("a line");
    IS_OVER.store(true, Ordering::Relaxed);
    for task in tasks {
        for (first, last) in task.await.expect("no panic") {
            println!("admitted {first} {last}");
        }
    }
}
