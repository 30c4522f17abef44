//! A network that fails when a test says so.

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

/// How many connections there may be at once. More are closed as they come.
const MAX_CONNECTIONS: usize = 64;

/// How long the server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The delay of replies that are held back: longer than any test.
const HELD: Duration = Duration::from_secs(3600);

/// A TCP port of 127.0.0.1 in front of a server, through which everything passes until a test switches it over.
///
/// It never does what no network can: bytes are lost only together with the connection. So when a connection has lost
/// some (stalled, without replies, garbled) and the proxy is switched to anything else, that connection is closed. One
/// that is half open stays so.
///
/// ```
/// use std::time::Duration;
/// use limiter_testkit::{Client, Proxy, RedisServer};
///
/// let server = RedisServer::start();
/// let proxy = Proxy::before(&server);
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
    /// In front of a server; it may be paused, killed and restarted meanwhile.
    ///
    /// # Panics
    ///
    /// There is no free port.
    #[must_use]
    pub fn before(server: &RedisServer) -> Self {
        let mut proxy = Self::to(server.address());
        proxy.url = server.url_at(&proxy.address());
        proxy
    }

    /// In front of whatever listens there, or will.
    ///
    /// # Panics
    ///
    /// There is no free port.
    #[must_use]
    pub fn to(upstream: Address) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free TCP port");
        let address = listener.local_addr().expect("the address of a bound listener");
        let switch = Arc::new(Switch::new());
        let for_acceptor = Arc::clone(&switch);
        let acceptor = thread::spawn(move || accept(&listener, &upstream, &for_acceptor));
        Self { address, url: format!("redis://{address}"), switch, acceptor: Some(acceptor) }
    }

    /// The URL for clients: the server's own, with its credentials, at the proxy's port.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where the proxy listens.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::Tcp(self.address)
    }

    /// Lets everything through. So it begins.
    pub fn pass(&self) {
        self.switch.turn(Mode::Pass);
    }

    /// Lets everything through, each reply so much later.
    pub fn delay(&self, by: Duration) {
        self.switch.turn(Mode::Delay(by));
    }

    /// Lets commands through, and holds replies back until the next switch: what was asked for happens, and the caller
    /// learns of it when the test wants it to.
    pub fn hold_replies(&self) {
        self.switch.turn(Mode::Delay(HELD));
    }

    /// Accepts connections and swallows what is sent; nobody learns anything.
    pub fn stall(&self) {
        self.switch.turn(Mode::Stall);
    }

    /// Lets commands through and swallows the replies: what was asked for happens, and the caller never learns it.
    pub fn lose_replies(&self) {
        self.switch.turn(Mode::LoseReplies);
    }

    /// Lets commands through and turns every bit of the replies: nothing that a server could have said.
    pub fn garble(&self) {
        self.switch.turn(Mode::Garble);
    }

    /// Lets commands through, and closes the connection in the middle of the first reply.
    pub fn cut_replies(&self) {
        self.switch.turn(Mode::CutReplies);
    }

    /// As if the server's machine had lost its power: connections lead nowhere for ever, old ones and those that are
    /// made meanwhile, and nobody closes them. Only connections that are made after the next switch are sound.
    pub fn half_open(&self) {
        self.switch.turn(Mode::HalfOpen);
    }

    /// Closes all connections, and new ones as soon as they are made.
    pub fn cut(&self) {
        self.switch.turn(Mode::Cut);
    }

    /// How many connections have been made since it began, refused ones included.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.switch.connections()
    }

    /// The most connections that were attempts at one moment: open, and without an answer yet. To see whether somebody
    /// makes several at once let them last, by [`stall`](Self::stall) or [`half_open`](Self::half_open): of those that
    /// are [`cut`](Self::cut) each is over before the next one is looked at.
    #[must_use]
    pub fn most_attempts(&self) -> usize {
        self.switch.most_attempts()
    }

    /// Lets [`connections`](Self::connections) and [`most_attempts`](Self::most_attempts) begin anew.
    pub fn forget_counts(&self) {
        self.switch.forget_counts();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).field("switch", &self.switch).finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.switch.turn(Mode::Ended);
        // Wakes the acceptor, which then sees that it is over.
        let woken = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT);
        if let Some(acceptor) = self.acceptor.take().filter(|_| woken.is_ok()) {
            let _ = acceptor.join();
        }
    }
}

/// Links each connection to one of its own to the server, until the proxy is dropped.
fn accept(listener: &TcpListener, upstream: &Address, switch: &Arc<Switch>) {
    let mut pumps: Vec<JoinHandle<()>> = Vec::new();
    for client in listener.incoming() {
        pumps.retain(|pump| !pump.is_finished());
        if switch.mode() == Mode::Ended {
            break;
        }
        switch.count_connection();
        if pumps.len() < MAX_CONNECTIONS * link::PUMPS {
            // What cannot be linked is closed by being dropped.
            pumps.extend(client.and_then(|client| link_up(client, upstream, switch)).into_iter().flatten());
        }
    }
    for pump in pumps {
        let _ = pump.join();
    }
}

fn link_up(client: TcpStream, upstream: &Address, switch: &Arc<Switch>) -> io::Result<Vec<JoinHandle<()>>> {
    if switch.mode() == Mode::Cut {
        return Ok(Vec::new());
    }
    client.set_nodelay(true)?;
    let server = match switch.mode() {
        Mode::HalfOpen => Socket::Unix(UnixStream::pair()?.0), // whose other end is gone
        _ => upstream.connect(CONNECT_TIMEOUT)?,
    };
    Ok(link::start(Socket::Tcp(client), server, switch))
}
