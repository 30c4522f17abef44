//! The check `connect`.

use std::time::Duration;

use rate_limited::redis::cmd;
use rate_limited::{Error, ErrorKind, Limiter};

use super::finding::Finding;
use super::node::field;
use super::servers::{Servers, Topology};

/// Judges the result of connecting a limiter, and the time that it took.
pub(super) async fn check(connected: &Result<Limiter, Error>, time: Duration, servers: &Servers) -> Finding {
    match connected {
        Ok(_) if is_replica(servers).await => {
            Finding::fail("the server is a replica, which accepts no calls", remedy(ErrorKind::ReadOnly))
        }
        Ok(limiter) => {
            let server = limiter.health().server.unwrap_or_default();
            Finding::ok(format!("{server} accepts calls, connected in {} ms", time.as_millis()))
        }
        Err(error) => Finding::fail(error.to_string(), remedy(error.kind())),
    }
}

/// Returns whether the only server of a URL is a replica. Sentinels and clusters have masters by definition.
async fn is_replica(servers: &Servers) -> bool {
    let (Topology::Single, [node]) = (&servers.topology, &servers.masters[..]) else { return false };
    let role = node.send(&cmd("HELLO")).await.ok().and_then(|reply| field(&reply, "role"));
    matches!(role.as_deref(), Some("replica" | "slave"))
}

fn remedy(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Refused => "check user and password, the certificates, and `permissions` below",
        ErrorKind::Config | ErrorKind::Protocol => "change the URL or the server as the finding states",
        ErrorKind::ReadOnly => "write the URL of the master, or `redis-sentinel://`, which follows a failover",
        ErrorKind::OutOfMemory => "raise `maxmemory`, or use a dedicated Redis",
        ErrorKind::Loading => "wait until the server has loaded its data",
        ErrorKind::NotServing => "check `persistence`, `cluster` and the server's `min-replicas-to-write`",
        _ => "check that the server runs, the host and the port of the URL, and the firewalls between",
    }
}
