//! Tests of activity: the totals and the top keys that limiters write into a stream, and what a reader makes of them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join_all;
use limiter_testkit::{Random, RedisServer, Reply, full_or, unique};
use rate_limited::{
    Activity, ActivityCounts, ActivityLog, Builder, ErrorKind, HealthState, Key, KeyActivity, Limiter, OnError,
};
use tokio::task::yield_now;
use tokio::time::{interval, sleep};

use crate::acl::documented_rules;
use crate::child_process;
use crate::deadlines::{eventually, once_connected};
use crate::support::{LONG_DEADLINE, key, unpacked_limit as limit};

/// The time between two entries in these tests.
const INTERVAL: Duration = Duration::from_millis(20);
/// A time between two log lines that no test reaches.
const NO_LOG: Duration = Duration::from_secs(3600);

fn activity(name: &str) -> Activity {
    Activity::new(name).intervals(INTERVAL, NO_LOG)
}

fn builder(url: impl AsRef<str>, prefix: &str) -> Builder {
    Limiter::builder().url(url).prefix(prefix).deadline(LONG_DEADLINE).on_error(OnError::Raise).presence(false)
}

async fn connect(url: impl AsRef<str>, prefix: &str, activity: Activity) -> Limiter {
    once_connected(async || builder(&url, prefix).activity(activity.clone()).connect().await).await.expect("connects")
}

fn stream(prefix: &str) -> String {
    format!("{prefix}-live:{{{prefix}}}:activity")
}

async fn call(limiter: &Limiter, rule: &str, key: &Key, times: u64) {
    for _ in 0..times {
        let _ = limiter.named(rule).check(key, &limit("1/1h")).await.expect("decides");
    }
}

async fn read(limiter: &Limiter) -> ActivityLog {
    let mut log = ActivityLog::new();
    limiter.activity(&mut log).await.expect("the store answers");
    log
}

/// The totals of a rule in all limiters.
fn total(log: &ActivityLog, rule: &str) -> ActivityCounts {
    let rules = log.limiters().flat_map(|limiter| &limiter.rules).filter(|own| own.rule == rule);
    rules.fold(ActivityCounts::default(), |sum, own| sum + own.total)
}

async fn eventually_denied(limiter: &Limiter, rule: &str, denied: u64) -> ActivityLog {
    eventually(&format!("{denied} denied"), async || total(&read(limiter).await, rule).denied == denied).await;
    read(limiter).await
}

/// The sums of the denied keys in all limiters, the greatest first.
fn denied_keys(log: &ActivityLog) -> Vec<(String, u64)> {
    let mut sums = BTreeMap::<String, u64>::new();
    let keys = log.limiters().flat_map(|limiter| &limiter.denied);
    keys.for_each(|KeyActivity { key, count, .. }| *sums.entry(key.clone()).or_default() += count);
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    sums
}

#[tokio::test]
async fn totals_and_keys_of_each_limiter_are_read() {
    let (server, prefix) = (RedisServer::shared(), unique("activity"));
    let (first, second) = (
        connect(server.url(), &prefix, activity("checkout")).await,
        connect(server.url(), &prefix, activity("mailer")).await,
    );
    let before = SystemTime::now() - Duration::from_secs(1);
    call(&first, "search", &Key::new("user:").part(42), 4).await;
    call(&second, "search", &Key::new("user:").part(42), 2).await;
    call(&second, "login", &key("a"), 1).await;
    let _ = first.check(&key("direct"), &limit("9/1h")).await.expect("decides");
    let log = eventually_denied(&first, "search", 5).await;
    eventually("login", async || total(&read(&first).await, "login").allowed == 1).await;
    eventually("direct", async || total(&read(&first).await, "-").allowed == 1).await;
    let by_name: BTreeMap<_, _> = log.limiters().map(|limiter| (limiter.name.clone(), limiter)).collect();
    let checkout = by_name["checkout"];
    assert_eq!((checkout.id.len(), checkout.pid), (16, std::process::id()));
    assert!(checkout.last_seen >= before && log.read_at() >= checkout.last_seen, "{checkout:?}");
    let counted = checkout.rules.iter().find(|own| own.rule == "search").expect("it has decided").total;
    assert_eq!((counted.allowed, counted.denied, counted.by_standby), (1, 3, 0));
    assert_eq!(counted.by_cache, 2, "after the first denial of the store");
    let denied = &checkout.denied[0];
    assert_eq!((&*denied.key, &*denied.rule, denied.count, denied.error), ("user:@42", "search", 3, 0));
    assert_eq!(denied_keys(&log), [("user:@42".to_owned(), 5)]);
    let left = server.pttl(&stream(&prefix));
    assert!((890_000..=900_000).contains(&left), "{left}");
    // Nothing changes, so nothing is written.
    let entries = || server.command(&["XLEN", &stream(&prefix)]).integer();
    eventually("idle", async || {
        let before = entries();
        sleep(5 * INTERVAL).await;
        entries() == before
    })
    .await;
}

#[tokio::test]
async fn a_log_that_is_read_again_gets_the_denials_since_then() {
    let (server, prefix) = (RedisServer::shared(), unique("activity"));
    let limiter = connect(server.url(), &prefix, activity("checkout")).await;
    let (user, mut log) = (Key::new("user:").part(7), ActivityLog::new());
    assert_eq!(limiter.activity(&mut log).await.expect("the store answers"), []);
    let mut bursts = Vec::new();
    for denials in [3, 10, 1] {
        call(&limiter, "search", &user, denials).await;
        let sum = |bursts: &Vec<rate_limited::DenialBurst>| bursts.iter().map(|burst| burst.denials).sum::<u64>();
        let expected = sum(&bursts) + denials - u64::from(bursts.is_empty());
        let until = Instant::now() + LONG_DEADLINE;
        while sum(&bursts) < expected && Instant::now() < until {
            bursts.extend(limiter.activity(&mut log).await.expect("the store answers"));
            sleep(INTERVAL).await;
        }
        assert_eq!(sum(&bursts), expected);
    }
    assert!(bursts.iter().any(|burst| burst.key.is_some()), "{bursts:?}");
    for burst in &bursts {
        assert_eq!((&*burst.rule, &*burst.name), ("search", "checkout"));
        // A call that meets the worker in the sketch has no key.
        assert!(burst.key.as_deref().is_none_or(|key| key == "user:@7"), "{burst:?}");
    }
}

/// An entry fails while the key holds a string, for a tenth of the time.
#[tokio::test]
async fn sums_are_exact_although_a_tenth_of_the_entries_fail() {
    let (server, prefix) = (RedisServer::start(), unique("activity"));
    let limiters = join_all(["a", "b", "c"].map(|name| connect(server.url(), &prefix, activity(name)))).await;
    let (key_name, aside) = (stream(&prefix), format!("{prefix}:aside"));
    let until = Instant::now() + Duration::from_secs(3);
    let fail = async {
        let mut failed = 0;
        while Instant::now() < until {
            sleep(9 * INTERVAL).await;
            if server.command(&["EXISTS", &key_name]).integer() == 1 {
                server.command(&["RENAME", &key_name, &aside]);
                server.command(&["SET", &key_name, "a string"]);
                sleep(INTERVAL).await;
                server.command(&["RENAME", &aside, &key_name]);
                failed += 1;
            }
        }
        failed
    };
    let load = join_all(limiters.iter().enumerate().map(|(number, limiter)| async move {
        let mut calls = 0;
        while Instant::now() < until {
            call(limiter, "search", &Key::new("user:").part(number), 10).await;
            calls += 10;
            yield_now().await;
        }
        calls
    }));
    let (failed, calls) = tokio::join!(fail, load);
    assert!(failed > 0);
    let log = eventually_denied(&limiters[0], "search", calls.iter().sum::<u64>() - 3).await;
    assert_eq!(total(&log, "search").allowed, 3);
    assert!(!format!("{log:?}").contains("user:@"), "a `Debug` form shows no key");
    for (number, calls) in calls.iter().enumerate() {
        let keys = denied_keys(&log);
        let (_, count) = keys.iter().find(|(key, _)| *key == format!("user:@{number}")).expect("a denied key");
        // A call that meets the worker in the sketch is left out of it.
        assert!(*count < *calls && *count > calls / 2, "{count} of {calls}");
    }
    assert!(limiters.iter().all(|limiter| limiter.health().state == HealthState::Up), "no call has failed");
}

#[tokio::test]
async fn rates_of_three_loaded_limiters_are_within_5_percent() {
    const CALLS_PER_TICK: u64 = 4;
    let (server, prefix) = (RedisServer::start(), unique("activity"));
    let usual = || Activity::new("loaded");
    let limiters = join_all([(); 3].map(|()| connect(server.url(), &prefix, usual()))).await;
    let (began, calls) = (Instant::now(), Mutex::new(Vec::new()));
    let load = join_all(limiters.iter().enumerate().map(|(number, limiter)| {
        let calls = &calls;
        async move {
            let mut ticks = interval(Duration::from_secs(1) / 50);
            while began.elapsed() < Duration::from_secs(9) {
                ticks.tick().await;
                call(limiter, "search", &Key::new("user:").part(number), CALLS_PER_TICK).await;
                calls.lock().expect("not poisoned").push(SystemTime::now());
            }
        }
    }));
    let look = async {
        sleep(Duration::from_millis(8_500)).await;
        read(&limiters[0]).await
    };
    let (_, log) = tokio::join!(load, look);
    let rules: Vec<_> = log.limiters().flat_map(|limiter| &limiter.rules).collect();
    let rates: Vec<_> = rules.iter().map(|rule| rule.per_second(|counts| counts.denied)).collect();
    // A machine under load makes fewer calls than it should.
    let (from, to) = (log.read_at() - Duration::from_millis(6_000), log.read_at() - Duration::from_millis(500));
    let ticks = calls.into_inner().expect("not poisoned").iter().filter(|at| from <= **at && **at < to).count();
    let expected = ticks as f64 * CALLS_PER_TICK as f64 / 5.5 / 3.0;
    let sum = rates.iter().sum::<f64>();
    assert_eq!(rules.len(), 3);
    assert!(rates.iter().all(|rate| (rate - expected).abs() < 0.05 * expected), "{rates:?}, expected {expected}");
    assert!((sum - 3.0 * expected).abs() < 0.05 * 3.0 * expected, "{sum}, expected {expected} of each");
    eventually("over", async || {
        let log = read(&limiters[0]).await;
        log.limiters().flat_map(|limiter| &limiter.rules).all(|rule| rule.per_second(|counts| counts.denied) == 0.0)
    })
    .await;
}

#[tokio::test]
async fn the_ten_most_denied_keys_of_a_zipf_load_are_found() {
    let (server, prefix) = (RedisServer::start(), unique("activity"));
    let limiters = join_all([(); 3].map(|()| connect(server.url(), &prefix, activity("loaded")))).await;
    // The key of rank r has a share of 1/r. In each limiter a third of them is denied.
    let mut calls: Vec<u64> = (1..=1_000_u64).flat_map(|rank| (0..3_000 / rank).map(move |_| rank)).collect();
    let mut random = Random::new(7);
    for place in (1..calls.len()).rev() {
        calls.swap(place, usize::try_from(random.below(place as u64 + 1)).expect("a place"));
    }
    for (number, rank) in calls.iter().enumerate() {
        call(&limiters[number % 3], "search", &Key::new("user:").part(rank), 1).await;
    }
    let log = eventually_denied(&limiters[0], "search", calls.len() as u64 - 1_000).await;
    let found: Vec<_> = denied_keys(&log).into_iter().take(10).map(|(key, _)| key).collect();
    assert_eq!(found, (1..=10).map(|rank| format!("user:@{rank}")).collect::<Vec<_>>());
}

/// All texts of a reply.
fn text_of(reply: Reply) -> String {
    match reply {
        Reply::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
        Reply::Array(replies) => replies.into_iter().map(text_of).collect(),
        _ => String::new(),
    }
}

#[tokio::test]
async fn hashed_keys_are_digests_and_without_top_keys_there_are_none() {
    let (server, prefix) = (RedisServer::start(), unique("activity"));
    let secret = "secret-name";
    let hashing = builder(server.url(), &prefix).hash_keys([7; 32]).activity(activity("hashing"));
    let hashing = hashing.connect().await.expect("connects");
    let silent = connect(server.url(), &prefix, activity("silent").top_keys(0)).await;
    for limiter in [&hashing, &silent] {
        call(limiter, "search", &Key::new("user:").part(secret), 4).await;
    }
    let log = eventually_denied(&hashing, "search", 6).await;
    let expected = format!("+{}", "0".repeat(32)).len();
    for limiter in log.limiters() {
        if limiter.name == "silent" {
            assert!(limiter.denied.is_empty() && limiter.allowed.is_empty(), "{limiter:?}");
        } else {
            let keys: Vec<_> = limiter.denied.iter().chain(&limiter.allowed).map(|key| &key.key).collect();
            assert!(
                keys.len() == 2 && keys.iter().all(|key| key.starts_with('+') && key.len() == expected),
                "{keys:?}"
            );
        }
    }
    let entries = text_of(server.command(&["XRANGE", &stream(&prefix), "-", "+"]));
    assert!(entries.contains("search") && !entries.contains(secret), "{entries}");
}

#[tokio::test]
async fn a_stream_that_was_evicted_has_the_totals_again() {
    let (server, prefix) = (RedisServer::start(), unique("activity"));
    let limiter = connect(server.url(), &prefix, activity("checkout")).await;
    call(&limiter, "search", &key("a"), 4).await;
    eventually_denied(&limiter, "search", 3).await;
    server.command(&["DEL", &stream(&prefix)]);
    server.flush_scripts();
    assert_eq!(read(&limiter).await.limiters().count(), 0);
    call(&limiter, "search", &key("a"), 1).await;
    let log = eventually_denied(&limiter, "search", 4).await;
    assert_eq!(denied_keys(&log), [("a".to_owned(), 4)]);
    assert!(limiter.health().state == HealthState::Up);
}

#[tokio::test]
async fn a_limiter_that_is_dropped_writes_its_last_totals() {
    let (server, prefix) = (RedisServer::shared(), unique("activity"));
    let reader = builder(server.url(), &prefix).connect().await.expect("connects");
    let rare = Activity::new("short").intervals(Duration::from_secs(3600), NO_LOG);
    let limiter = connect(server.url(), &prefix, rare).await;
    call(&limiter, "search", &key("a"), 4).await;
    drop(limiter);
    eventually_denied(&reader, "search", 3).await;
}

#[tokio::test]
async fn what_no_limiter_has_written_is_left_out() {
    let (server, prefix) = (RedisServer::start(), unique("activity"));
    let limiter = connect(server.url(), &prefix, activity("checkout")).await;
    let name = stream(&prefix);
    call(&limiter, "search", &key("a"), 4).await;
    eventually_denied(&limiter, "search", 3).await;
    // Entries of others, of which each is as long as one of a limiter or longer.
    let entries = full_or(1_000_000, 20_000);
    let fill = "local long = string.rep('x', 4000) for n = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], '*', 'e', \
                n % 100 == 0 and long or 'foreign') end";
    server.command(&["EVAL", fill, "1", &name, &entries.to_string()]);
    server.command(&["XADD", &name, "*", "e", &"x".repeat(5_000_000)]);
    server.command(&["XADD", &name, "*", "other", "fields", "of", "others"]);
    let forged = "1 0123456789abcdef \u{7f}host 1 name\nr search 1000 d5\n";
    for text in ["", "\n\n", forged, "1 0123456789abcdef host x name\nr search 1 d1\n"] {
        server.command(&["XADD", &name, "*", "e", text]);
    }
    // Each entry of the limiter trims others, and the newest are read.
    let denied = async || {
        call(&limiter, "search", &key("a"), 1).await;
        total(&read(&limiter).await, "search").denied > 3
    };
    eventually("its own entry", denied).await;
    let log = read(&limiter).await;
    assert_eq!(log.limiters().map(|limiter| &*limiter.name).collect::<Vec<_>>(), ["checkout"]);
    eventually("trimmed", async || {
        call(&limiter, "search", &key("a"), 1).await;
        server.command(&["XLEN", &name]).integer() < 4_500
    })
    .await;
    // A possible entry of another limiter, with texts that control a terminal.
    let hostile =
        "1 00000000000000ff host 7 %1B[31mred\nr %1B]0;x%07 1000 d5+5\nd 0 \u{1b}[2J 5+5 0\nd 0 user:@1 5+5 0\n";
    server.command(&["XADD", &name, "*", "e", hostile]);
    let log = read(&limiter).await;
    let hostile = log.limiters().find(|limiter| limiter.id == "00000000000000ff").expect("a possible one");
    assert_eq!((&*hostile.name, &*hostile.rules[0].rule), ("\u{1b}[31mred", "\u{1b}]0;x\u{7}"));
    assert_eq!(hostile.denied.iter().map(|key| &*key.key).collect::<Vec<_>>(), ["user:@1"]);
    // A key of another type is one error of the reader, and no failure of a call.
    server.command(&["SET", &name, "a string"]);
    let mut log = ActivityLog::new();
    assert_eq!(limiter.activity(&mut log).await.expect_err("a foreign value").kind(), ErrorKind::Protocol);
    call(&limiter, "search", &key("a"), 1).await;
    assert_eq!(limiter.health().state, HealthState::Up);
}

/// The times are the ids of the server alone. An id of the future is none, and the next entry removes it. A log that has met
/// it reads on.
#[tokio::test]
async fn an_entry_of_the_future_ends_with_the_next_one() {
    let (server, prefix) = (RedisServer::start(), unique("activity"));
    let limiter = connect(server.url(), &prefix, activity("checkout")).await;
    let text = "1 00000000000000ff host 7 future\nr search 1000 d5+5\n";
    server.command(&["XADD", &stream(&prefix), "99999999999999-1", "e", text]);
    let mut log = read(&limiter).await;
    assert_eq!(log.limiters().count(), 0, "{log:?}");
    call(&limiter, "search", &key("a"), 4).await;
    eventually_denied(&limiter, "search", 3).await;
    limiter.activity(&mut log).await.expect("the store answers");
    assert_eq!(total(&log, "search").denied, 3);
    let own = log.limiters().next().expect("its own");
    let age = log.read_at().duration_since(own.last_seen).expect("not of the future");
    assert!(own.name == "checkout" && age < LONG_DEADLINE, "{own:?}");
}

#[tokio::test]
async fn a_limiter_in_memory_has_no_stream() {
    let limiter = Limiter::builder().activity(activity("memory")).build().expect("valid");
    let error = limiter.activity(&mut ActivityLog::new()).await.expect_err("no store");
    assert_eq!(error.kind(), ErrorKind::Config);
    for activity in [Activity::new(""), Activity::new("x".repeat(65)), Activity::new("a").top_keys(101)] {
        let error = Limiter::builder().activity(activity).build().expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::Config);
    }
}

// Permissions.

fn allow(server: &RedisServer, rules: &[&str]) {
    let command = [&["ACL", "SETUSER", "app", "reset", "on", ">pw"], rules].concat();
    assert_eq!(server.command(&command).text(), "OK");
}

fn url_of_user(server: &RedisServer) -> String {
    server.url().replace("//", "//app:pw@")
}

/// The number of commands that the server has refused, but for those by which a client gives its name.
fn refusals(server: &RedisServer) -> i64 {
    let entries = server.command(&["ACL", "LOG"]).array().into_iter().map(Reply::array);
    let is_named = |entry: &Vec<Reply>, object: &str| entry.contains(&Reply::Bulk(object.into()));
    let is_counted = |entry: &Vec<Reply>| !is_named(entry, "client") && !is_named(entry, "client|setinfo");
    let count = |entry: Vec<Reply>| match &entry[1] {
        Reply::Integer(count) => *count,
        other => panic!("{other:?}"),
    };
    entries.filter(is_counted).map(count).sum()
}

#[tokio::test]
async fn a_refusal_ends_the_entries_of_a_connection_and_no_call_fails() {
    let mut rules = documented_rules("limiter");
    let server = RedisServer::builder().tcp().start();
    allow(&server, &rules);
    let limiter = connect(url_of_user(&server), "rl", activity("app")).await;
    call(&limiter, "search", &key("a"), 2).await;
    eventually("refused", async || refusals(&server) > 0).await;
    let refused = refusals(&server);
    call(&limiter, "search", &key("a"), 5).await;
    sleep(10 * INTERVAL).await;
    call(&limiter, "search", &key("a"), 5).await;
    assert_eq!((refusals(&server), limiter.health().state), (refused, HealthState::Up), "it is not tried again");
    // A connection with other permissions is another chance, and nothing is lost.
    rules.extend(documented_rules("activity"));
    rules.retain(|rule| *rule != "-@all");
    allow(&server, &rules);
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let reader = builder(server.url(), "rl").connect().await.expect("connects");
    eventually_denied(&reader, "search", 11).await;
}

#[tokio::test]
async fn documented_permissions_of_activity_are_minimal() {
    let (of_calls, of_activity) = (documented_rules("limiter"), documented_rules("activity"));
    let server = RedisServer::builder().tcp().start();
    let all = || of_calls.iter().chain(&of_activity).copied().filter(|rule| *rule != "-@all");
    for missing in of_activity.iter().filter(|rule| !of_calls.contains(rule)).map(Some).chain([None]) {
        allow(&server, &all().filter(|rule| Some(rule) != missing).collect::<Vec<_>>());
        server.command(&["ACL", "LOG", "RESET"]);
        let limiter = connect(url_of_user(&server), "rl", activity("app")).await;
        call(&limiter, &unique("rule"), &key("a"), 1).await;
        match missing {
            Some(rule) => eventually(&format!("refused without {rule}"), async || refusals(&server) > 0).await,
            None => {
                eventually("written", async || server.command(&["EXISTS", &stream("rl")]).integer() == 1).await;
                assert_eq!(refusals(&server), 0);
                let error = limiter.activity(&mut ActivityLog::new()).await.expect_err("that of a reader is missing");
                let needed = "to read activity the user needs `~rl-live:* +time +xrevrange`";
                assert!(error.kind() == ErrorKind::Refused && error.to_string().ends_with(needed), "{error}");
            }
        }
        drop(limiter);
        server.command(&["DEL", &stream("rl")]);
    }
    let watcher = documented_rules("watcher");
    for missing in watcher.iter().filter(|rule| rule.starts_with(['+', '~'])).map(Some).chain([None]) {
        allow(&server, &watcher.iter().copied().filter(|rule| Some(rule) != missing).collect::<Vec<_>>());
        let read = async || {
            let watcher = builder(url_of_user(&server), "rl").connect().await?;
            watcher.activity(&mut ActivityLog::new()).await
        };
        let result = once_connected(read).await;
        match missing {
            Some(rule) => assert_eq!(result.expect_err(rule).kind(), ErrorKind::Refused, "without {rule}"),
            None => assert_eq!(result.expect("they suffice"), []),
        }
    }
}

// The log.

#[test]
fn the_log_has_the_denials_of_each_rule_and_no_key() {
    child_process::run("activity::log_denials", &[("X", "")]);
}

#[test]
#[ignore = "sets the subscriber of its process"]
fn log_denials() {
    use crate::logging::events::LineRecorder;
    if !child_process::is_child() {
        return;
    }
    let recorder = LineRecorder::default();
    tracing::subscriber::set_global_default(recorder.clone()).expect("a process of its own");
    let activity = Activity::new("memory").intervals(INTERVAL, Duration::from_millis(300));
    let limiter = Limiter::builder().activity(activity).build().expect("valid");
    for call in 0..36 {
        let key = Key::new("secret:").part(call % 12);
        let decided = limiter.named("user:{user_id}").check_blocking(&key, &limit("1/1h"));
        assert!(decided.is_ok());
    }
    let until = Instant::now() + LONG_DEADLINE;
    let lines = || recorder.all_lines().into_iter().filter(|line| line.starts_with("INFO ")).collect::<Vec<_>>();
    while lines().is_empty() && Instant::now() < until {
        std::thread::sleep(INTERVAL);
    }
    // A slow machine makes the calls in several intervals. The number of keys is an estimate: two may seem to be one.
    let number = |line: &String, field: &str| -> u64 {
        let (_, rest) = line.split_once(&format!(" {field}=")).expect("a field");
        rest.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    };
    let denials = || lines().iter().map(|line| number(line, "denials")).sum::<u64>();
    while denials() < 24 && Instant::now() < until {
        std::thread::sleep(INTERVAL);
    }
    let lines = lines();
    assert!(denials() == 24 && lines.iter().all(|line| line.contains(" denials of `user:{user_id}` by ")), "{lines:?}");
    let keys = lines.iter().map(|line| number(line, "keys")).sum::<u64>();
    assert!(lines.len() > 1 || (10..=12).contains(&keys), "{lines:?}");
    assert!(!recorder.all_lines().concat().contains("secret"), "{:?}", recorder.all_lines());
}
