//! Tests of lone calls, which callers write to Redis on their own threads after a while.

use std::pin::pin;
use std::thread;
use std::time::Duration;

use limiter_testkit::{Cluster, Proxy, RedisServer, unique};
use rate_limited::{Error, ErrorKind, Limit, Limiter, OnError};

use crate::cluster;
use crate::deadlines::eventually;
use crate::fake_server::{FakeServer, ScriptReply};
use crate::support::{LONG_DEADLINE, builder_for, key, limit, poll_once};

/// More lone calls than come before a caller writes one.
const LONE_CALLS: u32 = 20;

fn of_a_hundred() -> Limit {
    limit("100/1h")
}

async fn remaining(limiter: &Limiter) -> Result<u32, Error> {
    limiter.check(&key("a"), &of_a_hundred()).await.map(|decision| decision.remaining())
}

/// Makes lone calls on another key.
async fn warm_up(limiter: &Limiter) {
    for _ in 0..LONE_CALLS {
        let decision = limiter.check(&key("warm"), &of_a_hundred()).await;
        assert!(decision.expect("the server answers").is_allowed());
    }
}

/// A limiter behind a proxy, and one beside it on the same counters.
struct Proxied {
    proxy: Proxy,
    limiter: Limiter,
    witness: Limiter,
}

impl Proxied {
    async fn start(deadline: Duration) -> Self {
        let server = RedisServer::shared();
        let (proxy, prefix) = (Proxy::start(server), unique("direct"));
        let builder = || builder_for(server).prefix(&prefix).on_error(OnError::Raise);
        let limiter = builder().url(proxy.url()).deadline(deadline).connect().await.expect("the server is there");
        let witness = builder().connect().await.expect("the server is there");
        warm_up(&limiter).await;
        Self { proxy, limiter, witness }
    }

    /// The permits that are left in the store.
    async fn left(&self) -> u32 {
        self.witness.peek(&key("a"), &of_a_hundred()).await.expect("the server answers").remaining()
    }

    /// Waits until calls succeed again. They are on another key.
    async fn recovered(&self) {
        self.proxy.pass();
        let succeeds = async || self.limiter.check(&key("b"), &of_a_hundred()).await.is_ok();
        eventually("connected", succeeds).await;
    }
}

#[tokio::test]
async fn denial_of_a_direct_call_is_remembered() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).on_error(OnError::Raise).connect().await.expect("the server is there");
    warm_up(&limiter).await;
    let (key, limit) = (key("a"), limit("3/1h"));
    let mut before = server.script_calls();
    for (allowed, is_sent) in [(true, true), (true, true), (true, true), (false, true), (false, false)] {
        let decision = limiter.check(&key, &limit).await.expect("the server answers");
        let after = server.script_calls();
        assert_eq!((decision.is_allowed(), after - before), (allowed, u64::from(is_sent)));
        before = after;
    }
}

#[tokio::test]
async fn missing_script_is_loaded_and_the_call_is_counted_once() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).on_error(OnError::Raise).connect().await.expect("the server is there");
    warm_up(&limiter).await;
    for left in [99, 98] {
        server.command(&["SCRIPT", "FLUSH"]);
        assert_eq!(remaining(&limiter).await.expect("the script is loaded again"), left);
        warm_up(&limiter).await;
    }
}

#[tokio::test]
async fn call_without_a_reply_fails_by_its_deadline_and_is_not_sent_again() {
    let proxied = Proxied::start(Duration::from_secs(2)).await;
    proxied.proxy.lose_replies();
    assert_eq!(remaining(&proxied.limiter).await.expect_err("no reply").kind(), ErrorKind::Timeout);
    assert_eq!(proxied.left().await, 99);
    proxied.recovered().await;
    assert_eq!(proxied.left().await, 99);
}

#[tokio::test]
async fn call_to_a_silent_server_fails_by_its_deadline_and_takes_nothing() {
    let proxied = Proxied::start(Duration::from_secs(2)).await;
    proxied.proxy.stall();
    assert_eq!(remaining(&proxied.limiter).await.expect_err("no reply").kind(), ErrorKind::Timeout);
    proxied.recovered().await;
    assert_eq!(proxied.left().await, 100);
}

#[tokio::test]
async fn garbled_reply_fails_the_call_and_no_later_one() {
    let proxied = Proxied::start(LONG_DEADLINE).await;
    proxied.proxy.garble();
    assert_eq!(remaining(&proxied.limiter).await.expect_err("garbled").kind(), ErrorKind::Protocol);
    proxied.recovered().await;
    assert_eq!(proxied.left().await, 99);
    warm_up(&proxied.limiter).await;
    assert_eq!(remaining(&proxied.limiter).await.expect("the server answers"), 98);
}

#[tokio::test]
async fn connection_that_is_cut_fails_the_call_at_once() {
    let proxied = Proxied::start(LONG_DEADLINE).await;
    proxied.proxy.cut_replies();
    assert_eq!(remaining(&proxied.limiter).await.expect_err("cut").kind(), ErrorKind::Unavailable);
    proxied.recovered().await;
    assert_eq!(proxied.left().await, 99);
}

#[tokio::test]
async fn dropped_call_is_counted_once_and_later_calls_get_their_own_replies() {
    let proxied = Proxied::start(LONG_DEADLINE).await;
    proxied.proxy.hold_replies();
    {
        let call = pin!(remaining(&proxied.limiter));
        poll_once(vec![call]).await;
    }
    eventually("counted", async || proxied.left().await == 99).await;
    proxied.proxy.pass();
    for left in (80..99).rev() {
        assert_eq!(remaining(&proxied.limiter).await.expect("the server answers"), left);
    }
}

/// One call is written by its caller, and those that come meanwhile are sent by the worker.
#[tokio::test]
async fn calls_behind_a_direct_call_are_sent_at_once() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let builder = builder_for(&server).url(proxy.url()).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    warm_up(&limiter).await;
    let before = server.script_calls();
    proxy.hold_replies();
    let first = poll_once(vec![Box::pin(remaining(&limiter))]).await;
    eventually("the first is sent", async || server.script_calls() == before + 1).await;
    let others = poll_once((0..3).map(|_| Box::pin(remaining(&limiter))).collect()).await;
    eventually("the others are sent", async || server.script_calls() >= before + 2).await;
    proxy.pass();
    for (call, left) in first.into_iter().chain(others).zip((96..100).rev()) {
        assert_eq!(call.await.expect("the server answers"), left);
    }
}

/// No call of a limiter's threads gets the reply to another's, whoever writes the commands.
#[tokio::test]
async fn threads_that_come_and_go_get_their_own_replies() {
    const THREADS: usize = 4;
    const CALLS: u32 = 300;
    let limiter = builder_for(RedisServer::shared()).on_error(OnError::Raise).connect().await.expect("a server");
    let of_a_thread = |thread: usize| {
        let limiter = limiter.clone();
        move || {
            let (key, limit) = (key(&thread.to_string()), limit("300/1h"));
            for call in 1..=CALLS {
                let decision = limiter.check_blocking(&key, &limit).expect("the server answers");
                assert!(decision.is_allowed() && decision.remaining() == CALLS - call, "{thread}: {decision:?}");
                if (call as usize).is_multiple_of(7 + thread) {
                    thread::yield_now();
                }
            }
        }
    };
    let threads: Vec<_> = (0..THREADS).map(|thread| thread::spawn(of_a_thread(thread))).collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
}

#[tokio::test]
async fn call_follows_a_slot_that_moves() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = cluster::builder_for(&cluster).on_error(OnError::Raise).connect().await.expect("a cluster");
    let (slot, limit) = (4711, of_a_hundred());
    let key = key(&cluster::name_in(slot));
    let mut left = 100;
    let mut lone_calls = async |what: &str| {
        for _ in 0..LONE_CALLS {
            left -= 1;
            let decision = limiter.check(&key, &limit).await.expect(what);
            assert_eq!(decision.remaining(), left, "{what}");
        }
    };
    let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(slot)).expect("another");
    lone_calls("the owner").await;
    let migration = cluster.begin_migration(slot, to);
    assert_eq!(migration.move_keys(10), 1);
    lone_calls("the target, by a redirect").await;
    migration.finish();
    lone_calls("the new owner").await;
}

/// A reply of 1 GB is refused by its announced length.
#[tokio::test]
async fn reply_that_is_too_long_closes_the_connection() {
    let server = FakeServer::with_script_reply(ScriptReply::Bytes("$1073741824\r\n"));
    server.recover();
    let builder = Limiter::builder().presence(false).url(server.url()).deadline(LONG_DEADLINE).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("a server");
    warm_up(&limiter).await;
    server.fail_again();
    assert_eq!(remaining(&limiter).await.expect_err("too long").kind(), ErrorKind::Protocol);
}
