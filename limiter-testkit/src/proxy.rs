//! A TCP proxy that simulates network faults.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::server::RedisServer;
use crate::socket::{Address, Socket};

mod link;
mod switch;
#[cfg(test)]
mod tests;

use self::switch::{Mode, Switch};

/// The greatest number of concurrent connections. The proxy closes further ones at once.
const MAX_CONNECTIONS: usize = 64;

/// The time in which the server must accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The delay of held replies: longer than any test.
const HELD_REPLY_DELAY: Duration = Duration::from_secs(3600);

/// A TCP proxy on 127.0.0.1 in front of a server. It forwards everything until a test selects a fault.
///
/// The proxy loses bytes only together with their connection, as a real network does. A connection that has lost bytes
/// (stalled, without replies, garbled) is closed when another mode is selected. A half-open connection stays half open.
///
/// ```
/// use std::time::Duration;
/// use limiter_testkit::{Client, Proxy, RedisServer};
///
/// let server = RedisServer::start();
/// let proxy = Proxy::start(&server);
/// let mut client = Client::connect(&proxy.address(), Duration::from_millis(100))?;
/// assert_eq!(client.call(&["PING"])?.text(), "PONG");
/// proxy.stall();
/// assert!(client.call(&["PING"]).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Proxy {
    address: SocketAddr,
    url: String,
    switch: Arc<Switch>,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of a server, which may be paused, killed and restarted meanwhile.
    ///
    /// # Panics
    ///
    /// There is no free port.
    #[must_use]
    pub fn start(server: &RedisServer) -> Self {
        let mut proxy = Self::forward_to(server.address());
        proxy.url = server.url_at(&proxy.address());
        proxy
    }

    /// Starts a proxy in front of an address. A server may start to listen there later.
    ///
    /// # Panics
    ///
    /// There is no free port.
    #[must_use]
    pub fn forward_to(upstream: Address) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free TCP port");
        let address = listener.local_addr().expect("the address of a bound listener");
        let switch = Arc::new(Switch::new());
        let for_acceptor = Arc::clone(&switch);
        let acceptor = thread::spawn(move || accept_connections(&listener, &upstream, &for_acceptor));
        Self { address, url: format!("redis://{address}"), switch, acceptor: Some(acceptor) }
    }

    /// Returns the URL for clients: the server's own, with its credentials, at the proxy's port.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the address that the proxy listens on.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::Tcp(self.address)
    }

    /// Forwards everything. This is the initial mode.
    pub fn pass(&self) {
        self.switch.set_mode(Mode::Pass);
    }

    /// Forwards everything, and delays each reply by this time.
    pub fn delay(&self, by: Duration) {
        self.switch.set_mode(Mode::Delay(by));
    }

    /// Forwards commands and holds all replies until the next mode is selected. The commands are executed, and the test
    /// decides when their callers get the replies.
    pub fn hold_replies(&self) {
        self.switch.set_mode(Mode::Delay(HELD_REPLY_DELAY));
    }

    /// Accepts connections and discards all bytes in both directions.
    pub fn stall(&self) {
        self.switch.set_mode(Mode::Stall);
    }

    /// Forwards commands and discards the replies: the commands are executed, but no caller gets a reply.
    pub fn lose_replies(&self) {
        self.switch.set_mode(Mode::LoseReplies);
    }

    /// Forwards commands and inverts every bit of the replies, so that they are not valid RESP.
    pub fn garble(&self) {
        self.switch.set_mode(Mode::Garble);
    }

    /// Forwards commands and closes each connection in the middle of its first reply.
    pub fn cut_replies(&self) {
        self.switch.set_mode(Mode::CutReplies);
    }

    /// Simulates a server whose machine lost its power. Existing connections, and those made in this mode, become half
    /// open: they stay open and never carry a byte again. Only connections made after the next mode change work.
    pub fn half_open(&self) {
        self.switch.set_mode(Mode::HalfOpen);
    }

    /// Closes all connections, and each new one at once.
    pub fn cut(&self) {
        self.switch.set_mode(Mode::Cut);
    }

    /// Returns the number of connections since the start, including closed and rejected ones.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.switch.connections()
    }

    /// Returns the greatest number of connections that were attempts at the same time: open and without a reply yet.
    ///
    /// The attempts must last for this: use [`stall`](Self::stall) or [`half_open`](Self::half_open). In the mode
    /// [`cut`](Self::cut) each attempt ends before the next one is counted.
    #[must_use]
    pub fn max_concurrent_attempts(&self) -> usize {
        self.switch.max_concurrent_attempts()
    }

    /// Resets [`connections`](Self::connections) and [`max_concurrent_attempts`](Self::max_concurrent_attempts).
    pub fn reset_counts(&self) {
        self.switch.reset_counts();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).field("switch", &self.switch).finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.switch.set_mode(Mode::Ended);
        // This wakes the acceptor, which then sees the mode `Ended`.
        let woken = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT);
        if let Some(acceptor) = self.acceptor.take().filter(|_| woken.is_ok()) {
            let _ = acceptor.join();
        }
    }
}

/// Accepts connections, and connects each to the server, until the proxy is dropped.
fn accept_connections(listener: &TcpListener, upstream: &Address, switch: &Arc<Switch>) {
    let mut pumps: Vec<JoinHandle<()>> = Vec::new();
    for client in listener.incoming() {
        pumps.retain(|pump| !pump.is_finished());
        if switch.mode() == Mode::Ended {
            break;
        }
        switch.count_connection();
        if pumps.len() < MAX_CONNECTIONS * link::PUMPS_PER_LINK {
            // A connection that cannot be forwarded is closed when it is dropped.
            pumps.extend(client.and_then(|client| connect_upstream(client, upstream, switch)).into_iter().flatten());
        }
    }
    for pump in pumps {
        let _ = pump.join();
    }
}

fn connect_upstream(client: TcpStream, upstream: &Address, switch: &Arc<Switch>) -> io::Result<Vec<JoinHandle<()>>> {
    if switch.mode() == Mode::Cut {
        return Ok(Vec::new());
    }
    client.set_nodelay(true)?;
    let server = match switch.mode() {
        Mode::HalfOpen => Socket::Unix(UnixStream::pair()?.0), // a socket without a peer
        _ => upstream.connect(CONNECT_TIMEOUT)?,
    };
    Ok(link::start(Socket::Tcp(client), server, switch))
}
