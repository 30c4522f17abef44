use std::time::{Duration, Instant};

use super::*;
use crate::resp::{Client, Reply};

mod life;
mod moving;
mod proxied;

/// What a client at this node is told.
fn said(client: &mut Client, command: &[&str]) -> Reply {
    client.call(command).expect("an answer")
}

/// A key of every master, by the masters.
fn key_of_each(cluster: &Cluster) -> Vec<(NodeId, String)> {
    let key = |master: &NodeId| {
        let mut keys = (0..).map(|number| format!("key-{number}"));
        let key = keys.find(|key| cluster.master_of(slot_of(key.as_bytes())) == *master);
        (*master, key.expect("one of many"))
    };
    cluster.masters().iter().map(key).collect()
}
