//! Tests that a dropped `connect` closes its connection.

use limiter_testkit::{Random, RedisServer};
use rate_limited::{Error, Limiter};

use super::DropPoint;
use crate::deadlines::eventually;
use crate::support::{builder_for, key, limit};

/// Returns the number of connections, without that of this `INFO`. Connections of earlier `INFO`s may still be open.
fn connections(server: &RedisServer) -> u32 {
    let connected: u32 = server.info("clients")["connected_clients"].parse().expect("a number");
    connected - 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_connects_leave_no_connection_open() {
    let server = RedisServer::start();
    let mut random = Random::new(3);
    let (mut done, mut dropped) = (0, 0);
    for _ in 0..60 {
        match Box::pin(DropPoint::random(&mut random).run(builder_for(&server).connect())).await {
            Some(limiter) => done += u32::from(limiter.is_ok()),
            None => dropped += 1,
        }
    }
    assert!(done > 5 && dropped > 5, "{done} and {dropped}");
    eventually("closed", async || connections(&server) == 0).await;
    let limiter = builder_for(&server).connect().await.expect("connects");
    assert!(limiter.check(&key("a"), &limit("5/10s")).await.expect("answers").is_allowed());
}

/// The server accepts connections and sends nothing.
#[tokio::test]
async fn dropping_a_connect_that_hangs_closes_its_connection() {
    let mut server = RedisServer::start();
    server.pause();
    for _ in 0..20 {
        let result: Option<Result<Limiter, Error>> =
            Box::pin(DropPoint::Polls(1).run(Limiter::connect(&server.url()))).await;
        assert!(result.is_none());
    }
    server.resume();
    eventually("closed", async || connections(&server) == 0).await;
}
