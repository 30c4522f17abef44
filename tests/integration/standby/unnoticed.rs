//! Ways for a store to fail that are easily overlooked: none of them is a fresh quota.

use limiter_testkit::RedisServer;
use rate_limited::{Limiter, Rule, rate_limited};

use crate::deadlines::DEADLINE;
use crate::fake::{Fake, Then};
use crate::support::{AMPLE, begun, key, limit, on};

/// How many of eight calls are admitted, by whomever.
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

/// A connection is given up while calls are under way on it. The stand-in decides for others; then the answers come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_come_after_the_stand_in_has_decided() {
    let mut server = RedisServer::start();
    let builder = on(&server).deadline(DEADLINE).rule("patient", Rule::new().deadline(AMPLE));
    let limiter = builder.connect().await.expect("connects");
    server.pause();
    let calls = begun((0..5).map(|_| Box::pin(limiter.scope(patient()))).collect()).await;
    // The first that is late, and gives up the connection for all.
    let _ = limiter.check(&key("another"), &limit("5/1h")).await.expect("decides");
    let by_stand_in = admitted(&limiter).await;
    server.resume();
    let mut later = 0;
    for call in calls {
        later += usize::from(call.await);
    }
    assert!(by_stand_in + later <= 5, "{by_stand_in} and {later} in one window");
}

#[tokio::test]
async fn a_key_that_was_foreign_and_is_mended() {
    let server = RedisServer::start();
    let limiter = on(&server).prefix("rl").connect().await.expect("connects");
    server.command(&["SET", "rl:{a}:sw:3600000", "foreign"]);
    let before = admitted(&limiter).await;
    server.command(&["DEL", "rl:{a}:sw:3600000"]);
    assert_eq!((before, admitted(&limiter).await), (5, 0));
}

/// A proxy answers for a server that is away, in words of its own.
#[tokio::test]
async fn a_proxy_whose_server_is_away() {
    let server = Fake::answering(Then::Say("-no upstream host\r\n"));
    let limiter = Limiter::builder().url(&server.url()).deadline(AMPLE).connect().await.expect("connects");
    let before = admitted(&limiter).await;
    server.recover();
    assert_eq!((before, admitted(&limiter).await), (5, 0));
}

/// Another server behind a connection that stays: only the script that it does not know gives it away.
#[tokio::test]
async fn a_server_that_was_replaced_behind_the_connection() {
    let server = RedisServer::start();
    let limiter = on(&server).connect().await.expect("connects");
    let before = admitted(&limiter).await;
    server.command(&["FLUSHALL"]);
    server.flush_scripts();
    assert_eq!((before, admitted(&limiter).await), (5, 0));
}

/// Whoever loads its data has been away, and may have lost some of what it knew: of every key, and not of the one that
/// somebody asked about meanwhile.
#[tokio::test]
async fn a_server_that_loads_its_data_behind_the_connection() {
    let server = Fake::answering(Then::Say("-LOADING Redis is loading the dataset in memory\r\n"));
    let limiter = Limiter::builder().url(&server.url()).deadline(AMPLE).connect().await.expect("connects");
    server.recover();
    let before = admitted(&limiter).await;
    server.fail_again();
    assert!(limiter.check(&key("another"), &limit("5/1h")).await.expect("decides").is_allowed());
    server.recover();
    assert_eq!((before, admitted(&limiter).await), (8, 0));
}
