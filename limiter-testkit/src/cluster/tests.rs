use std::time::{Duration, Instant};

use super::*;
use crate::resp::{Client, Reply};

mod life;
mod moving;
mod proxied;
mod tls;

/// Sends a command and returns the reply.
fn reply_to(client: &mut Client, command: &[&str]) -> Reply {
    client.call(command).expect("a reply")
}

/// Returns each master with a key of one of its slots.
fn key_of_each_master(cluster: &Cluster) -> Vec<(NodeId, String)> {
    let key = |master: &NodeId| {
        let mut keys = (0..).map(|number| format!("key-{number}"));
        let key = keys.find(|key| cluster.master_of(slot_of(key.as_bytes())) == *master);
        (*master, key.expect("one of many"))
    };
    cluster.masters().iter().map(key).collect()
}
