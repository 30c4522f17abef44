//! Slots of very many keys in one process.

use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Entered, Key, Limiter};
use tokio::task::JoinSet;

use super::LONG_SLOT_TIME;
use crate::concurrency::concurrent;
use crate::deadlines::eventually;
use crate::support::builder_for;

const KEYS: usize = 20_000;
/// The most messages of one script call.
const MESSAGES_OF_CALL: usize = 64;

/// Enters, also when a reply takes too long.
async fn enter(limiter: Limiter, key: Key) -> Entered {
    loop {
        if let Ok(entry) = limiter.enter(&key, &concurrent(2)).await {
            return entry.entered().expect("a free slot");
        }
    }
}

/// Messages about all keys at once would have their replies too late, and be sent again and again.
#[tokio::test]
async fn slots_of_very_many_keys_are_registered_again_by_few_messages() {
    let server = RedisServer::start();
    let builder = builder_for(&server).slot_time(LONG_SLOT_TIME).deadline(Duration::from_millis(50));
    let limiter = builder.connect().await.expect("a server");
    let keys: Vec<_> = (0..KEYS).map(|number| Key::new("k:").part(number)).collect();
    let mut held = Vec::new();
    for keys in keys.chunks(MESSAGES_OF_CALL) {
        let calls: JoinSet<_> = keys.iter().map(|key| enter(limiter.clone(), key.clone())).collect();
        held.extend(calls.join_all().await);
    }
    server.command(&["FLUSHALL"]);
    let before = server.script_calls();
    for kind in ["normal", "pubsub"] {
        server.command(&["CLIENT", "KILL", "TYPE", kind]);
    }
    eventually("registered", async || {
        usize::try_from(server.command(&["DBSIZE"]).integer()).is_ok_and(|keys| keys >= KEYS)
    })
    .await;
    let (calls, needed) = (server.script_calls() - before, (KEYS / MESSAGES_OF_CALL) as u64);
    assert!(calls <= 10 * needed, "{calls} calls, {needed} needed");
}
