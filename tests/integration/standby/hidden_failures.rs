//! Tests of store failures that are easily overlooked: none of them gives a fresh quota.

use limiter_testkit::RedisServer;
use rate_limited::{Limiter, Rule, rate_limited};

use crate::deadlines::DEADLINE;
use crate::fake_server::{FakeServer, ScriptReply};
use crate::support::{LONG_DEADLINE, builder_for, key, limit, poll_once};

/// Returns how many of eight calls are admitted, by any source.
async fn admitted(limiter: &Limiter) -> usize {
    let mut admitted = 0;
    for _ in 0..8 {
        admitted += usize::from(limiter.check(&key("a"), &limit("5/1h")).await.expect("decides").is_allowed());
    }
    admitted
}

#[rate_limited(key = "a", name = "patient", limit = "5/1h", fallback = false)]
async fn patient() -> bool {
    true
}

/// A connection is given up with calls in flight. The standby limiter decides other calls, and then the replies arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_after_standby_decisions_give_no_fresh_quota() {
    let mut server = RedisServer::start();
    let builder = builder_for(&server).deadline(DEADLINE).rule("patient", Rule::new().deadline(LONG_DEADLINE));
    let limiter = builder.connect().await.expect("connects");
    server.pause();
    let calls = poll_once((0..5).map(|_| Box::pin(limiter.scope(patient()))).collect()).await;
    // The first call that times out, which gives up the connection for all.
    let _ = limiter.check(&key("another"), &limit("5/1h")).await.expect("decides");
    let by_standby = admitted(&limiter).await;
    server.resume();
    let mut later = 0;
    for call in calls {
        later += usize::from(call.await);
    }
    assert!(by_standby + later <= 5, "{by_standby} and {later} in one window");
}

#[tokio::test]
async fn removed_foreign_value_gives_no_fresh_quota() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).prefix("rl").connect().await.expect("connects");
    server.command(&["SET", "rl:{a}1h", "foreign"]);
    let before = admitted(&limiter).await;
    server.command(&["DEL", "rl:{a}1h"]);
    assert_eq!((before, admitted(&limiter).await), (5, 0));
}

/// A proxy replies for an unavailable server with an error of its own.
#[tokio::test]
async fn proxy_with_an_unavailable_server_gives_no_fresh_quota() {
    let server = FakeServer::with_script_reply(ScriptReply::Bytes("-no upstream host\r\n"));
    let limiter = server.limiter().deadline(LONG_DEADLINE).connect().await.expect("connects");
    let before = admitted(&limiter).await;
    server.recover();
    assert_eq!((before, admitted(&limiter).await), (5, 0));
}

/// Another server behind a connection that stays open. Only its missing script reveals it.
#[tokio::test]
async fn server_replaced_behind_the_connection_gives_no_fresh_quota() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).connect().await.expect("connects");
    let before = admitted(&limiter).await;
    server.command(&["FLUSHALL"]);
    server.flush_scripts();
    assert_eq!((before, admitted(&limiter).await), (5, 0));
}

/// A server that loads its data has restarted and may have lost counters of every key, not only of the key of the call
/// that failed.
#[tokio::test]
async fn server_that_reloads_its_data_gives_no_fresh_quota() {
    let server =
        FakeServer::with_script_reply(ScriptReply::Bytes("-LOADING Redis is loading the dataset in memory\r\n"));
    let limiter = server.limiter().deadline(LONG_DEADLINE).connect().await.expect("connects");
    server.recover();
    let before = admitted(&limiter).await;
    server.fail_again();
    assert!(limiter.check(&key("another"), &limit("5/1h")).await.expect("decides").is_allowed());
    server.recover();
    assert_eq!((before, admitted(&limiter).await), (8, 0));
}
