//! Slots while connections, data, permissions, processes and limits fail or change.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use limiter_testkit::{Proxy, Random, RedisServer, unique};
use rate_limited::{Builder, Entered, Key, Limit, Limiter, OnError, Source};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::processes::fleet;
use super::{concurrent, denied, entered};
use crate::deadlines::eventually;
use crate::support::{LONG_DEADLINE, builder_for, key, limit};

mod counts;
mod judge;
mod many_keys;
mod other_processes;

/// The slot time of a process whose slots end in no test, also on a machine that stands still for long.
const LONG_SLOT_TIME: Duration = Duration::from_secs(600);

/// A limit that no call reaches. A peek with it shows how many slots are in use.
const MANY: u32 = 60_000;

/// Returns the number of slots in use.
async fn in_use(limiter: &Limiter, key: &Key) -> u32 {
    MANY - limiter.peek(key, &concurrent(MANY)).await.expect("a reply").remaining()
}

/// Waits until so many slots are in use.
async fn until_in_use(limiter: &Limiter, key: &Key, slots: u32) {
    eventually(&format!("{slots} in use"), async || in_use(limiter, key).await == slots).await;
}

/// Enters when a slot is free.
async fn entered_late(limiter: &Limiter, key: &Key, limit: &Limit) -> Entered {
    limiter.enter_wait(key, limit, LONG_DEADLINE).await.expect("a decision").entered().expect("a slot within the wait")
}

/// The slots that a limiter has reported as lost.
#[derive(Clone, Default)]
struct Lost(Arc<AtomicU32>);

impl Lost {
    fn observe(&self, builder: Builder) -> Builder {
        let lost = Arc::clone(&self.0);
        builder.on_lost(move |slots| {
            lost.fetch_add(slots.slots(), Ordering::SeqCst);
        })
    }

    fn slots(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Asserts that none of the limiters lets a call in.
async fn assert_nobody_enters(limiters: [&Limiter; 2], key: &Key, limit: &Limit) {
    for limiter in limiters {
        drop(denied(limiter, key, limit).await);
    }
}

#[tokio::test]
async fn slots_of_a_process_that_is_cut_off_are_lost_and_registered_when_it_returns() {
    const SLOT_TIME: Duration = Duration::from_secs(3);
    let server = RedisServer::builder().tcp().start();
    let (proxy, prefix, lost) = (Proxy::start(&server), unique("cut"), Lost::default());
    let one = builder_for(&server).url(proxy.url()).prefix(&prefix).slot_time(SLOT_TIME).on_error(OnError::Closed);
    let one = lost.observe(one.deadline(Duration::from_secs(2))).connect().await.expect("a server");
    let other = builder_for(&server).prefix(&prefix).slot_time(LONG_SLOT_TIME).connect().await.expect("a server");
    let (key, limit) = (key("a"), concurrent(2));
    let mut lost_calls = vec![entered(&one, &key, &limit).await, entered(&one, &key, &limit).await];
    drop(denied(&other, &key, &limit).await);
    proxy.cut();
    let mut held = vec![entered_late(&other, &key, &limit).await, entered_late(&other, &key, &limit).await];
    eventually("lost", async || lost.slots() == 2).await;
    assert!(one.enter(&key, &limit).await.expect("a decision").is_denied());
    proxy.pass();
    // The calls that lost their slots go on, and count again.
    until_in_use(&other, &key, 4).await;
    lost_calls.pop().expect("two").leave();
    assert_nobody_enters([&one, &other], &key, &limit).await;
    for left in [2, 1] {
        until_in_use(&other, &key, left + 1).await;
        assert_nobody_enters([&one, &other], &key, &limit).await;
        held.pop().expect("two").leave();
        until_in_use(&other, &key, left).await;
    }
    let last = entered_late(&one, &key, &limit).await;
    assert_nobody_enters([&one, &other], &key, &limit).await;
    drop((last, lost_calls));
    until_in_use(&other, &key, 0).await;
    assert_eq!(lost.slots(), 2);
}

#[tokio::test]
async fn calls_that_the_policy_lets_in_have_no_slots_to_lose() {
    for policy in [OnError::Open, OnError::Standby] {
        let server = RedisServer::builder().tcp().start();
        let (proxy, lost, key, limit) = (Proxy::start(&server), Lost::default(), key("a"), concurrent(4));
        let builder = builder_for(&server).url(proxy.url()).on_error(policy).deadline(Duration::from_secs(2));
        let builder = lost.observe(builder.instances(1).slot_time(Duration::from_secs(1)));
        let limiter = builder.connect().await.expect("a server");
        let mut held = vec![entered(&limiter, &key, &limit).await];
        proxy.cut();
        for _ in 0..2 {
            held.push(entered(&limiter, &key, &limit).await);
        }
        assert!(held[2].allowed().source() != Source::Store);
        eventually("lost", async || lost.slots() > 0).await;
        held.push(entered(&limiter, &key, &limit).await);
        // The time of a slot passes once more.
        sleep(Duration::from_secs(1)).await;
        proxy.pass();
        eventually("registered", async || {
            let peek = limiter.peek(&key, &concurrent(MANY)).await.expect("a decision");
            peek.source() == Source::Store && peek.remaining() == MANY - 4
        })
        .await;
        assert_eq!(lost.slots(), 1, "{policy:?}");
    }
}

/// Two processes that hold two slots each, with a short time between their messages.
async fn two_that_hold_two(server: &RedisServer) -> ([Limiter; 2], [Vec<Entered>; 2], Key, Lost) {
    let (prefix, key, lost) = (unique("holders"), key("a"), Lost::default());
    let limiter = async || {
        let builder = builder_for(server).prefix(&prefix).slot_time(Duration::from_secs(6));
        lost.observe(builder).connect().await.expect("a server")
    };
    let (limiters, limit) = ([limiter().await, limiter().await], concurrent(4));
    let hold = async |limiter| vec![entered(limiter, &key, &limit).await, entered(limiter, &key, &limit).await];
    let held = [hold(&limiters[0]).await, hold(&limiters[1]).await];
    (limiters, held, key, lost)
}

/// Asserts that all four slots are in use again, and that one enters for each that leaves.
async fn assert_registered_again(limiters: &[Limiter; 2], held: &mut [Vec<Entered>; 2], key: &Key) {
    let ([one, other], limit) = (limiters, concurrent(4));
    until_in_use(one, key, 4).await;
    assert_nobody_enters([one, other], key, &limit).await;
    held[0].pop().expect("two").leave();
    held[1].push(entered_late(other, key, &limit).await);
    assert_nobody_enters([one, other], key, &limit).await;
    held[1].pop().expect("three").leave();
    held[0].push(entered_late(one, key, &limit).await);
}

#[tokio::test]
async fn slots_of_a_store_that_lost_its_data_are_registered_again() {
    let server = RedisServer::start();
    let (limiters, mut held, key, lost) = two_that_hold_two(&server).await;
    for round in 0..2 {
        server.command(&["FLUSHALL"]);
        if round == 1 {
            server.flush_scripts();
        }
        assert_registered_again(&limiters, &mut held, &key).await;
    }
    assert_eq!(lost.slots(), 0);
}

#[tokio::test]
async fn slots_of_a_restarted_store_are_registered_again() {
    let mut server = RedisServer::start();
    let (limiters, mut held, key, _) = two_that_hold_two(&server).await;
    server.kill();
    server.restart();
    eventually("connected", async || {
        let peeks = [limiters[0].peek(&key, &concurrent(4)).await, limiters[1].peek(&key, &concurrent(4)).await];
        peeks.iter().all(|peek| peek.as_ref().is_ok_and(|decision| decision.source() == Source::Store))
    })
    .await;
    assert_registered_again(&limiters, &mut held, &key).await;
}

#[tokio::test]
async fn slots_of_a_damaged_value_are_registered_again() {
    let server = RedisServer::start();
    let (limiters, mut held, key, lost) = two_that_hold_two(&server).await;
    let name = server.keys().into_iter().find(|name| name.contains("holders")).expect("the key of the slots");
    let delete = ["DEL", &name[..]];
    let damages: [&[&[&str]]; 6] = [
        &[&["SET", &name, ""]],
        &[&["SET", &name, "x"]],
        &[&["SET", &name, &"\u{1}".repeat(24 + 31)]],
        &[&["SET", &name, &"9".repeat(24 + 2 * 32)]],
        &[&delete, &["HSET", &name, "a", "b"]],
        &[&delete, &["RPUSH", &name, "a", "b"]],
    ];
    for damage in damages {
        for command in damage {
            server.command(command);
        }
        assert_registered_again(&limiters, &mut held, &key).await;
    }
    assert_eq!(lost.slots(), 0);
}

#[tokio::test]
async fn processes_without_notices_wait_by_polling() {
    assert_waits_by_polling("~* resetchannels +@all -publish -subscribe -psubscribe").await;
}

/// Such processes get notices, and send none to each other.
#[tokio::test]
async fn processes_that_may_not_publish_wait_by_polling() {
    assert_waits_by_polling("~* &* +@all -publish").await;
}

async fn assert_waits_by_polling(rules: &str) {
    let server = RedisServer::builder().user_with_rules("app", "pw", rules).start();
    let [one, other] = fleet(&server).await;
    let (key, limit) = (key("a"), concurrent(1));
    let mut held = entered(&one, &key, &limit).await;
    for limiter in [&other, &one, &other] {
        let waiting = tokio::spawn({
            let (limiter, key) = (limiter.clone(), key.clone());
            async move { entered_late(&limiter, &key, &limit).await }
        });
        let calls = server.script_calls();
        // A message every 50 ms. With notices there would be one a second.
        eventually("polls", async || server.script_calls() >= calls + 30).await;
        assert!(!waiting.is_finished());
        drop(held);
        held = waiting.await.expect("no panic");
    }
}

#[tokio::test]
async fn calls_under_two_limits_of_a_key_never_exceed_the_larger_one() {
    let (prefix, key) = (unique("two-limits"), key("a"));
    let limiter = async |seconds| {
        let builder = builder_for(RedisServer::shared()).prefix(&prefix).slot_time(Duration::from_secs(seconds));
        builder.connect().await.expect("a server")
    };
    let (high, low, running) = (limiter(60).await, limiter(600).await, Arc::new(AtomicU32::new(0)));
    let (four, two) = (concurrent(4), concurrent(2));
    let mut tasks = JoinSet::new();
    for task in 0..12 {
        let (limiter, limit) = if task % 2 == 0 { (high.clone(), four) } else { (low.clone(), two) };
        let (key, running) = (key.clone(), Arc::clone(&running));
        tasks.spawn(async move {
            for round in 0..40 {
                let entry = limiter.enter_wait(&key, &limit, Duration::from_millis(round % 20)).await;
                let Some(_held) = entry.expect("a decision").entered() else { continue };
                assert!(running.fetch_add(1, Ordering::SeqCst) < 4);
                sleep(Duration::from_millis(round % 3)).await;
                running.fetch_sub(1, Ordering::SeqCst);
            }
        });
    }
    tasks.join_all().await;
    // Lowered below what runs: nobody enters until it fits.
    until_in_use(&high, &key, 0).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(entered_late(&high, &key, &four).await);
    }
    for left in [3, 2] {
        held.pop().expect("some").leave();
        drop(denied(&high, &key, &two).await);
        until_in_use(&low, &key, left).await;
        assert_nobody_enters([&high, &low], &key, &two).await;
    }
    held.pop().expect("some").leave();
    held.push(entered_late(&low, &key, &two).await);
    assert_nobody_enters([&high, &low], &key, &two).await;
    // The process with the higher limit may go on above the lower one.
    drop(entered_late(&high, &key, &four).await);
}

/// Polls a wait some times, with pauses in which replies come, and drops it.
async fn drop_after_polls<F: Future>(wait: F, polls: u64, random: &mut Random) {
    let mut wait = pin!(wait);
    for _ in 0..polls {
        let is_done = poll_fn(|context| Poll::Ready(wait.as_mut().poll(context).is_ready())).await;
        if is_done {
            return;
        }
        sleep(Duration::from_micros(random.below(1500))).await;
    }
}

#[tokio::test]
async fn waits_that_are_dropped_at_any_await_hold_nothing() {
    let [one, other] = fleet(RedisServer::shared()).await;
    let (first, second, window) = (key("a"), key("b"), key("window"));
    let (two, rate, mut random) = (concurrent(2), limit("1000000/1h"), Random::new(7));
    for round in 0..full_rounds() {
        let limiter = if random.below(2) == 0 { &one } else { &other };
        let (polls, wait) = (random.below(5), Duration::from_millis(random.below(8)));
        match random.below(4) {
            0 => drop_after_polls(limiter.enter(&first, &two), polls, &mut random).await,
            1 => drop_after_polls(limiter.enter_n(&second, &two, 2), polls, &mut random).await,
            2 => drop_after_polls(limiter.enter_wait(&first, &two, wait), polls, &mut random).await,
            _ => {
                let limits = [(&first, &two, 1), (&second, &two, 2), (&window, &rate, 1)];
                drop_after_polls(limiter.enter_all(&limits), polls, &mut random).await;
            }
        }
        // Some of them wait behind a call of the other process.
        if round % 16 == 0 {
            let _held = entered_late(&one, &first, &two).await;
            drop_after_polls(other.enter_wait(&first, &concurrent(1), LONG_DEADLINE), polls, &mut random).await;
        }
    }
    for key in [&first, &second] {
        until_in_use(&one, key, 0).await;
        for limiter in [&one, &other] {
            drop([entered_late(limiter, key, &two).await, entered_late(limiter, key, &two).await]);
        }
    }
}

fn full_rounds() -> u32 {
    limiter_testkit::full_or(5000, 500)
}
