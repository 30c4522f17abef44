//! A connection that nobody waits for any more is closed.

use limiter_testkit::{Random, RedisServer};
use rate_limited::{Error, Limiter};

use super::Until;
use crate::deadlines::eventually;
use crate::support::{key, limit, on};

/// Connections to the server, but for the one that asks. Those that asked before may still be there for a moment.
fn connections(server: &RedisServer) -> u32 {
    let connected: u32 = server.info("clients")["connected_clients"].parse().expect("a number");
    connected - 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_opened_is_closed() {
    let server = RedisServer::start();
    let mut random = Random::new(3);
    let (mut done, mut dropped) = (0, 0);
    for _ in 0..60 {
        match Until::random(&mut random).run(on(&server).connect()).await {
            Some(limiter) => done += u32::from(limiter.is_ok()),
            None => dropped += 1,
        }
    }
    assert!(done > 5 && dropped > 5, "{done} and {dropped}");
    eventually("closed", async || connections(&server) == 0).await;
    let limiter = on(&server).connect().await.expect("connects");
    assert!(limiter.check(&key("a"), &limit("5/10s")).await.expect("answers").is_allowed());
}

/// The server takes connections and says nothing.
#[tokio::test]
async fn an_attempt_that_hangs_is_given_up() {
    let mut server = RedisServer::start();
    server.pause();
    for _ in 0..20 {
        let hangs: Option<Result<Limiter, Error>> = Until::Polls(1).run(Limiter::connect(&server.url())).await;
        assert!(hangs.is_none());
    }
    server.resume();
    eventually("closed", async || connections(&server) == 0).await;
}
