//! The service in RESP 2 and 3, for every client of Redis.
//!
//! A client sends `RL.CHECK rule part…` as it sends other commands. The replies of a pipeline are written at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::sync::watch;

mod calls;
mod commands;
mod connection;
mod parser;
mod reply;
mod session;
#[cfg(test)]
mod tests;
mod throttle;

use connection::Connection;
use session::ServerFacts;

use crate::access::Access;
use crate::listen::{Phase, Socket};
use crate::service::DecisionService;

/// The error of a connection too many, which Redis has.
pub(crate) const TOO_MANY_CONNECTIONS: &[u8] = b"-ERR max number of clients reached\r\n";
/// The time after which the system probes an idle connection of TCP, and that between probes. Without an answer it ends.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The service in RESP.
pub(crate) struct RespService {
    service: Arc<DecisionService>,
    facts: ServerFacts,
    next_id: AtomicU64,
}

impl RespService {
    /// Creates the service. The token of `access` is the password.
    pub(crate) fn new(service: Arc<DecisionService>, access: Access) -> Self {
        Self { service, facts: ServerFacts::new(access), next_id: AtomicU64::new(1) }
    }

    /// Serves one connection. It ends when the server closes, after the calls that it has received. Its errors are the client's.
    ///
    /// # Cancel safety
    /// A future that is dropped closes the connection. Calls that run may be counted.
    pub(crate) async fn serve(self: Arc<Self>, socket: Socket, phase: watch::Receiver<Phase>) {
        if let Socket::Tcp(stream) = &socket {
            // Clients keep idle connections without an end, so those of dead clients are found by the system.
            let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE);
            let _ = SockRef::from(stream).set_tcp_keepalive(&keep_alive);
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let _ = Connection::new(socket, &self.service, &self.facts, id).serve(phase).await;
    }
}
