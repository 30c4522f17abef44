//! Tests of servers with one version of TLS.

use limiter_testkit::RedisServer;
use rate_limited::{Limiter, OnError};
use tokio::task::JoinSet;

use super::trusting;
use crate::deadlines::{eventually, once_connected};
use crate::support::{LONG_DEADLINE, key, limit};

/// Many calls at once are sent in batches. A closed connection is opened again, with a session of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_tls_1_2_alone_decides() {
    const CALLS: u32 = 500;
    let server = RedisServer::builder().tls().setting("tls-protocols", "\"TLSv1.2\"").start();
    let builder = || Limiter::builder().url(server.url()).tls(trusting(server.ca_certificate()));
    let connect = async || builder().deadline(LONG_DEADLINE).on_error(OnError::Raise).connect().await;
    let limiter = once_connected(connect).await.expect("TLS 1.2");
    let limit = limit("1000/1h");
    for round in 1..=2 {
        let mut calls = JoinSet::new();
        for _ in 0..CALLS {
            let limiter = limiter.clone();
            calls.spawn(
                async move { limiter.check(&key("a"), &limit).await.is_ok_and(|decision| decision.is_allowed()) },
            );
        }
        assert!(calls.join_all().await.into_iter().all(|allowed| allowed), "calls of round {round}");
        let left = async || limiter.peek(&key("a"), &limit).await.map(|decision| decision.remaining());
        assert_eq!(left().await.expect("a decision of the store"), 1_000 - round * CALLS);
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        eventually("connected again", async || left().await.is_ok()).await;
    }
}
