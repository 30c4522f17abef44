//! Blocks on real servers: several processes, batches, clusters, outages, and what the server does for them.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use limiter_testkit::{Cluster, Random, RedisServer, unique};
use rate_limited::{Builder, Decision, Key, Limiter, ManualClock, OnError, Rule, Source};
use tokio::task::JoinSet;

use super::{SECOND, check_n, login, with_rules};
use crate::child_process;
use crate::cluster::key_per_master;
use crate::deadlines::eventually;
use crate::support::{LONG_DEADLINE, Subject, builder_for, key, unpacked_limit as limit};

/// The permits of an attacker's window, and the block after them.
const TRIES: usize = 5;
const BLOCK: Duration = Duration::from_millis(1_500);

fn attacked() -> Rule {
    login(&["5/1s"], "1500ms")
}

#[test]
fn four_processes_let_an_attacker_try_five_times_between_two_blocks() {
    const PROCESSES: usize = 4;
    let server = RedisServer::start();
    let (url, prefix) = (server.url(), unique("attacker"));
    let printed: Vec<_> = thread::scope(|scope| {
        let variables = [("URL", &url), ("PREFIX", &prefix)];
        let attack = move || child_process::run("blocks::servers::attack", &variables);
        let attackers: Vec<_> = (0..PROCESSES).map(|_| scope.spawn(attack)).collect();
        attackers.into_iter().map(|attacker| attacker.join().expect("it ends well")).collect()
    });
    let times = printed.iter().flat_map(|printed| printed.lines()).filter_map(|line| {
        let (start, end) = line.strip_prefix("admitted ")?.split_once(' ')?;
        let millis = |text: &str| text.parse::<u128>().expect("a number");
        Some((millis(start), millis(end)))
    });
    let mut times: Vec<_> = times.collect();
    times.sort_by_key(|(_, end)| *end);
    assert!(times.len() > TRIES, "{times:?}");
    for group in times.windows(TRIES + 1) {
        let (first, last) = (group[0], group[TRIES]);
        // At most five of them are between two blocks, so six are at least a block apart.
        assert!(last.1 - first.0 >= BLOCK.as_millis(), "{times:?}");
    }
}

#[tokio::test]
#[ignore = "is one of several processes"]
async fn attack() {
    if !child_process::is_child() {
        return;
    }
    let (url, prefix) = (child_process::variable("URL"), child_process::variable("PREFIX"));
    let builder = Limiter::builder().url(&url).prefix(&prefix).deadline(LONG_DEADLINE).rule("login", attacked());
    let limiter = builder.connect().await.expect("connects");
    let (key, any) = (key("victim"), limit("1/h"));
    let wall_clock = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    let begun = Instant::now();
    let mut report = Vec::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(4));
    while begun.elapsed() < 3 * BLOCK {
        ticks.tick().await;
        let start = wall_clock();
        if limiter.named("login").check(&key, &any).await.expect("the store answers").is_allowed() {
            writeln!(report, "admitted {start} {}", wall_clock()).expect("room");
        }
    }
    std::io::stdout().write_all(&report).expect("printed");
}

/// Returns how often the server has run a command, in scripts and outside of them.
fn calls_of(server: &RedisServer, command: &str) -> u64 {
    let mut client = server.client().expect("the server accepts connections");
    let reply = client.call(&["INFO", "commandstats"]).expect("the server replies");
    let text = String::from_utf8(reply.bytes()).expect("a text");
    let start = format!("cmdstat_{command}:calls=");
    let calls = text.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next()?.parse().ok());
    calls.unwrap_or(0)
}

#[tokio::test]
async fn a_block_is_written_once_and_denials_of_it_are_cached_for_each_cost() {
    for (remembered, scripts) in [(Duration::ZERO, 505), (Duration::from_secs(60), 7)] {
        let server = RedisServer::start();
        let builder = builder_for(&server).remember_denials(remembered).clock(ManualClock::new());
        let limiter = builder.connect().await.expect("a server");
        with_rules(&limiter, &[("login", login(&["5/10s"], "1min"))]);
        let (key, any) = (key("a"), limit("1/h"));
        let named = limiter.named("login");
        let (before, sent_before) = (calls_of(&server, "set"), calls_of(&server, "evalsha"));
        for number in 0..505 {
            let cost = if number < 5 { 1 } else { 1 + number % 3 };
            let decision = named.check_n(&key, &any, cost).await.expect("the store answers");
            assert_eq!(decision.is_allowed(), number < 5);
        }
        assert_eq!(calls_of(&server, "set") - before, 5 + 1, "five admissions and one block");
        let sent = calls_of(&server, "evalsha") - sent_before;
        assert!(sent <= scripts, "{sent} scripts, of which the first may find none loaded");
    }
}

#[tokio::test]
async fn calls_of_a_batch_have_their_own_blocks() {
    let server = RedisServer::start();
    let builder = builder_for(&server).remember_denials(Duration::ZERO).clock(ManualClock::new());
    let limiter = builder.connect().await.expect("a server");
    let plain = Rule::new().limit(limit("2/10s"));
    with_rules(
        &limiter,
        &[
            ("login", login(&["2/10s"], "20s")),
            ("bucket", login(&["2/10s"], "20s").algorithm(rate_limited::Algorithm::TokenBucket)),
            ("plain", plain),
        ],
    );
    for round in 0..3 {
        let mut calls = JoinSet::new();
        for number in 0..300_u32 {
            let (limiter, any) = (limiter.clone(), limit("1/h"));
            calls.spawn(async move {
                let rule = ["login", "bucket", "plain"][(number % 3) as usize];
                let key = Key::new("batch").part(rule).part(number % 30);
                (rule, number % 30, limiter.named(rule).check(&key, &any).await.expect("the store answers"))
            });
        }
        let decisions = calls.join_all().await;
        for number in 0..30 {
            let of_key = || decisions.iter().filter(|(_, of, _)| *of == number);
            let allowed = of_key().filter(|(_, _, decision)| decision.is_allowed()).count();
            assert_eq!(allowed, if round == 0 { 2 } else { 0 }, "round {round}, key {number}");
            for (rule, _, decision) in of_key() {
                if let Decision::Denied(denied) = decision {
                    assert_eq!(denied.is_blocked(), *rule != "plain");
                    if *rule != "plain" {
                        assert_eq!(denied.retry_after(), 20 * SECOND);
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_decision_over_several_slots_begins_the_blocks_of_each() {
    let cluster = Cluster::builder().masters_only().start();
    let builder = crate::cluster::builder_for(&cluster).remember_denials(Duration::ZERO);
    let limiter = builder.connect().await.expect("a cluster");
    let rules = [("one", login(&["1/h"], "1min")), ("two", login(&["1/h"], "1h")), ("three", login(&["9/h"], "1h"))];
    with_rules(&limiter, &rules);
    let (keys, any) = (key_per_master(&cluster), limit("1/h"));
    let all = async || {
        let rules = [("one", &keys[0], &any, 1), ("two", &keys[1], &any, 1), ("three", &keys[2], &any, 1)];
        limiter.check_rules(&rules).await.expect("the cluster answers")
    };
    assert!(all().await.is_allowed());
    let denied = all().await.into_result().expect_err("a denial");
    assert!(denied.is_blocked() && denied.retry_after() > 3000 * SECOND, "the longer block: {denied:?}");
    for (rule, key) in [("one", &keys[0]), ("two", &keys[1])] {
        let denied = limiter.named(rule).check(key, &any).await.expect("the cluster answers");
        assert!(denied.into_result().expect_err("a blocked key").is_blocked(), "{rule}");
    }
    assert!(limiter.named("three").check(&keys[2], &any).await.expect("the cluster answers").is_allowed());
}

/// A limiter whose server a test kills, with blocks of the rule `login`.
struct Outage {
    server: RedisServer,
    clock: ManualClock,
    prefix: String,
    limiter: Limiter,
}

impl Outage {
    async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    async fn with(options: impl FnOnce(Builder) -> Builder) -> Self {
        let (server, clock, prefix) = (RedisServer::start(), ManualClock::new(), unique("outage"));
        let builder = builder_for(&server).prefix(&prefix).clock(clock.clone());
        let builder = options(builder.remember_denials(Duration::ZERO));
        let limiter = builder.on_error(OnError::Standby).connect().await.expect("a server");
        with_rules(&limiter, &[("login", login(&["1/10s"], "1min"))]);
        Self { server, clock, prefix, limiter }
    }

    async fn check(&self) -> Decision {
        let any = limit("1/h");
        self.limiter.named("login").check(&key("a"), &any).await.expect("the standby limiter at least")
    }

    async fn restart(&mut self) {
        self.server.restart();
        let limiter = &self.limiter;
        let by_store = || async move {
            let seen = limiter.peek(&key("probe"), &limit("1/10s")).await;
            seen.is_ok_and(|seen| seen.source() == Source::Store)
        };
        eventually("connected", by_store).await;
    }
}

#[tokio::test]
async fn a_block_holds_in_an_outage_and_while_the_standby_limiter_is_consulted() {
    let mut outage = Outage::new().await;
    assert!(outage.check().await.is_allowed());
    assert!(outage.check().await.into_result().expect_err("a denial").is_blocked());
    outage.clock.advance(20 * SECOND);
    outage.server.kill();
    let denied = outage.check().await.into_result().expect_err("a blocked key");
    assert_eq!((denied.is_blocked(), denied.source()), (true, Source::Standby));
    assert_eq!(denied.retry_after(), 40 * SECOND);
    outage.restart().await;
    let denied = outage.check().await.into_result().expect_err("the empty server has lost the block");
    assert_eq!((denied.is_blocked(), denied.source()), (true, Source::Standby));
    outage.clock.advance(40 * SECOND);
    assert!(outage.check().await.is_allowed());
}

#[tokio::test]
async fn a_block_that_another_process_has_lifted_is_lifted_in_the_mirror() {
    let mut outage = Outage::new().await;
    assert!(outage.check().await.is_allowed());
    assert!(outage.check().await.into_result().expect_err("a denial").is_blocked());
    let other = builder_for(&outage.server).prefix(&outage.prefix).clock(outage.clock.clone());
    let other = other.connect().await.expect("a server");
    other.named("login").reset(&key("a"), &limit("1/10s")).await.expect("the store answers");
    outage.clock.advance(11 * SECOND);
    assert!(outage.check().await.is_allowed());
    outage.clock.advance(11 * SECOND);
    outage.server.kill();
    assert!(outage.check().await.is_allowed(), "the mirror has no block");
}

#[tokio::test]
async fn a_denial_by_a_share_begins_no_block_while_the_store_answers() {
    let mut outage = Outage::with(|builder| builder.instances(10)).await;
    with_rules(&outage.limiter, &[("login", login(&["20/10s"], "1min"))]);
    outage.server.kill();
    assert_eq!(outage.check().await.source(), Source::Standby);
    outage.restart().await;
    let mut denied = 0;
    for _ in 0..5 {
        if let Decision::Denied(by_share) = outage.check().await {
            assert!(!by_share.is_blocked(), "the store has permits");
            denied += 1;
        }
    }
    assert!(denied > 0);
}

#[tokio::test]
async fn keys_of_sorted_sets_have_a_block_each() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).remember_denials(Duration::ZERO).connect().await.expect("a server");
    let rule = login(&["1/10s"], "1min").layout(rate_limited::Layout::Zset);
    with_rules(&limiter, &[("login", rule)]);
    let any = limit("1/h");
    for prefix in ["{tenant}:", "plain:", "{", "}"] {
        let keys = ["alice", "bob"].map(|user| Key::new(format!("{prefix}{}", unique("set"))).part(user));
        let check = async |key: &Key| limiter.named("login").check(key, &any).await.expect("the store answers");
        assert!(check(&keys[0]).await.is_allowed());
        assert!(check(&keys[0]).await.into_result().expect_err("a denial").is_blocked(), "{prefix}");
        assert!(check(&keys[1]).await.is_allowed(), "{prefix}");
    }
}

#[tokio::test]
async fn a_block_of_an_outage_stays_in_the_process() {
    let mut outage = Outage::new().await;
    outage.server.kill();
    assert!(outage.check().await.is_allowed());
    assert!(outage.check().await.into_result().expect_err("a denial").is_blocked());
    outage.restart().await;
    let other = builder_for(&outage.server).clock(outage.clock.clone()).connect().await.expect("a server");
    with_rules(&other, &[("login", login(&["1/10s"], "1min"))]);
    assert!(outage.check().await.is_denied());
    assert!(other.named("login").check(&key("a"), &limit("1/h")).await.expect("the store answers").is_allowed());
}

#[tokio::test]
async fn processes_with_other_blocks_and_foreign_values_are_no_failures() {
    let server = RedisServer::start();
    let clock = ManualClock::new();
    let builder = || builder_for(&server).prefix("other-blocks").clock(clock.clone()).remember_denials(Duration::ZERO);
    let [short, long] = [builder().connect().await, builder().connect().await].map(|built| built.expect("a server"));
    with_rules(&short, &[("login", login(&["1/s"], "1s"))]);
    with_rules(&long, &[("login", login(&["1/s"], "30d"))]);
    let (key, any) = (key("a"), limit("1/h"));
    let check = async |limiter: &Limiter| limiter.named("login").check(&key, &any).await.expect("the store answers");
    assert!(check(&long).await.is_allowed());
    assert!(check(&long).await.is_denied());
    let denied = check(&short).await.into_result().expect_err("a blocked key");
    assert_eq!(denied.retry_after(), Duration::from_secs(30 * 86_400));
    let mut client = server.client().expect("the server accepts connections");
    let name = "other-blocks:{a}:block:login";
    let endless = [&[1_u8][..], &[0xff; 12]].concat();
    for value in [&b"foreign"[..], b"thirteen byte", &[0xff; 13], b"", &endless] {
        client.call(&[&b"SET"[..], name.as_bytes(), value]).expect("the server replies");
        clock.advance(2 * SECOND);
        assert!(check(&short).await.is_allowed(), "{value:?}");
        assert!(check(&short).await.into_result().expect_err("a denial").is_blocked());
    }
    client.call(&["DEL", name]).expect("the server replies");
    client.call(&["HSET", name, "field", "value"]).expect("the server replies");
    clock.advance(2 * SECOND);
    assert!(check(&short).await.is_allowed(), "a hash");
    assert!(check(&short).await.into_result().expect_err("a denial").is_blocked(), "it replaces the hash");
}

/// Any text may be the key of a sorted set, also one that reads like the name of a block.
#[tokio::test]
async fn the_block_of_a_sorted_set_is_no_counter_of_another_key() {
    let subject = Subject::zset().await;
    let zset = |text: &str| subject.limit(text);
    with_rules(&subject.limiter, &[("r", Rule::new().limit(zset("2/10min")).block("2s".parse().expect("a block")))]);
    let named = subject.limiter.named("r");
    let any = zset("1/h");
    let take = async |text: &str| named.check(&Key::new(text), &any).await.expect("the store answers").is_allowed();
    let others = ["X:block:r", "{CurrentLimiter:X}:block:r", "X:r:1", "X}:r:1"];
    for other in others {
        assert!(take(other).await && take(other).await);
    }
    assert!(take("X").await && take("X").await && !take("X").await, "blocked");
    subject.clock.advance(Duration::from_secs(3));
    for other in others {
        assert!(!take(other).await, "{other}");
    }
    // The rule and the key of two blocks are apart.
    with_rules(&subject.limiter, &[("b", login(&[], "1h")), ("a:b", login(&[], "1h"))]);
    let check = async |rule: &str, key: &str| {
        subject.limiter.named(rule).check(&Key::new(key), &zset("1/s")).await.expect("the store answers")
    };
    assert!(check("b", "K:a").await.is_allowed() && check("b", "K:a").await.is_denied());
    assert!(check("a:b", "K").await.is_allowed());
}

/// The same random calls, resets and changes of rules in memory and on Redis. A cached denial extends no block, and when it is
/// dropped is a matter of chance. So the Redis with a cache is compared under blocks alone that nothing extends.
#[tokio::test]
async fn random_schedules_are_the_same_in_memory_and_on_redis() {
    let uncached = builder_for(RedisServer::timeless()).remember_denials(Duration::ZERO);
    let subjects = [Subject::memory().await, Subject::with_builder(uncached).await, Subject::redis().await];
    let mut is_extended = false;
    let mut random = Random::new(40);
    let limits: [&[&str]; 4] = [&["3/s"], &["2/s", "5/10s"], &["4/5s", "9/m"], &["1/s"]];
    let blocks = ["2s", "500ms", "1s x2 up to 6s", "2s extended", "1s x1.5 up to 4s extended"];
    let keys = [key("a"), key("b"), key("c")];
    let mut outcomes = [0_u32; 3];
    for step in 0..full_steps() {
        if step % 100 == 0 {
            let pick = |random: &mut Random, count: usize| usize::try_from(random.below(count as u64)).expect("small");
            let (limits, block) = (limits[pick(&mut random, 4)], blocks[pick(&mut random, 5)]);
            for subject in &subjects {
                // The stores may differ in what was extended.
                for key in keys.iter().filter(|_| is_extended) {
                    subject.limiter.named("login").reset(key, &limit("1/h")).await.expect("the store answers");
                }
                with_rules(&subject.limiter, &[("login", login(limits, block))]);
            }
            is_extended = block.ends_with("extended");
        }
        let key = &keys[usize::try_from(random.below(3)).expect("small")];
        let millis = random.below(700);
        subjects.iter().for_each(|subject| subject.clock.advance(Duration::from_millis(millis)));
        let (what, cost) = (random.below(20), u32::try_from(random.below(4)).expect("small"));
        let mut seen = Vec::new();
        for subject in &subjects {
            let (named, any) = (subject.limiter.named("login"), limit("1/h"));
            seen.push(match what {
                0 => {
                    named.reset(key, &any).await.expect("the store answers");
                    None
                }
                1 => Some(named.peek(key, &any).await.expect("the store answers")),
                _ => Some(check_n(subject, "login", key, cost).await),
            });
        }
        let describe = |decision: &Option<Decision>| match decision {
            None => (true, false, None, 0),
            Some(Decision::Allowed(allowed)) => (true, false, None, allowed.remaining()),
            Some(Decision::Denied(denied)) => {
                (false, denied.is_blocked(), Some(denied.retry_after()), denied.remaining())
            }
        };
        let [memory, uncached, cached] = [0, 1, 2].map(|subject| describe(&seen[subject]));
        assert_eq!(memory, uncached, "step {step}, cost {cost}, what {what}");
        assert!(is_extended || memory == cached, "step {step}, cost {cost}, what {what}: {memory:?}, {cached:?}");
        outcomes[if memory.0 { 0 } else { 1 + usize::from(memory.1) }] += 1;
    }
    assert!(outcomes.iter().all(|count| *count > 10), "{outcomes:?}");
}

fn full_steps() -> u32 {
    *limiter_testkit::full_or(&20_000, &3_000)
}

#[tokio::test]
async fn a_block_expires_with_its_end_and_one_that_grows_after_its_longest() {
    for (block, seconds) in [("20s", 20), ("20s extended", 20), ("20s x2 up to 1min", 80)] {
        let server = RedisServer::start();
        let clock = ManualClock::new();
        let limiter = builder_for(&server).clock(clock.clone()).connect().await.expect("a server");
        with_rules(&limiter, &[("login", login(&["1/10s"], block))]);
        let (key, any) = (key("a"), limit("1/h"));
        let check = async || limiter.named("login").check(&key, &any).await.expect("the store answers");
        assert!(check().await.is_allowed() && check().await.is_denied());
        clock.advance(2 * SECOND);
        assert!(check().await.is_denied(), "it extends the block, or does not");
        let name = server.keys().into_iter().find(|name| name.contains(":block:")).expect("a block");
        let ttl = server.command(&["PTTL", &name]).integer();
        let expected = i64::from(seconds) * 1000 + 500;
        // The server's clock goes on while the test runs.
        assert!((expected - 4_000..=expected + 1).contains(&ttl), "{block}: {ttl} ms");
    }
}

#[tokio::test]
async fn keys_of_a_slot_that_moves_are_limited_without_their_blocks() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter =
        crate::cluster::builder_for(&cluster).remember_denials(Duration::ZERO).connect().await.expect("a cluster");
    with_rules(&limiter, &[("login", login(&["2/h"], "1h"))]);
    let (key, any) = (key(&crate::cluster::name_in(7)), limit("1/h"));
    let check = async || limiter.named("login").check(&key, &any).await.expect("the cluster answers");
    assert!(check().await.is_allowed());
    let from = cluster.master_of(7);
    let to = cluster.masters().into_iter().find(|master| *master != from).expect("another master");
    let id = |node| cluster.server(node).command(&["CLUSTER", "MYID"]).bytes();
    let text = |bytes| String::from_utf8(bytes).expect("an id");
    cluster.server(to).command(&["CLUSTER", "SETSLOT", "7", "IMPORTING", &text(id(from))]);
    cluster.server(from).command(&["CLUSTER", "SETSLOT", "7", "MIGRATING", &text(id(to))]);
    // The counter is there and the block is not, so the server refuses both together.
    assert!(check().await.is_allowed());
    let denied = check().await.into_result().expect_err("a denial");
    assert!(!denied.is_blocked());
    cluster.server(from).command(&["CLUSTER", "SETSLOT", "7", "STABLE"]);
    cluster.server(to).command(&["CLUSTER", "SETSLOT", "7", "STABLE"]);
    assert!(check().await.into_result().expect_err("a denial").is_blocked());
}
