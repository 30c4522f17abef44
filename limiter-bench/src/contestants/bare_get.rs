//! A GET of a key that does not exist: the cost of one round trip of this client.

use redis::aio::MultiplexedConnection;

use super::scripts::connection;
use crate::contestant::{
    Commands, Contestant, Entry, Failure, Kind, Place, Setup, Starting, Verdict, failed, starting,
};

pub(super) const ENTRY: Entry = Entry {
    name: "bare GET",
    kind: Kind::Floor,
    place: Place::Redis,
    commands: Commands { sent: &["get"], timed: &["get"] },
    start,
};

fn start(setup: Setup) -> Starting {
    starting(async move { Ok(BareGet { connection: connection(&setup).await?, keys: setup.names() }) })
}

struct BareGet {
    connection: MultiplexedConnection,
    keys: Vec<String>,
}

impl Contestant for BareGet {
    async fn decide(&self, key: usize) -> Result<Verdict, Failure> {
        let mut get = redis::cmd("GET");
        get.arg(&self.keys[key]);
        let reply: Result<Option<String>, _> = get.query_async(&mut self.connection.clone()).await;
        reply.map(|_| Verdict::Allowed).map_err(failed)
    }
}
