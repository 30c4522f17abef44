//! A server for the dashboard alone, with bounds that `axum::serve` does not have.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tower_service::Service;

use crate::error::Error;
use crate::timed_writes::TimedWrites;

/// The most connections at once. Further ones wait.
const MAX_CONNECTIONS: usize = 256;
/// The longest time from one answer to the end of the next head.
const MAX_HEAD_TIME: Duration = Duration::from_secs(10);
/// The longest time in which a client takes nothing of an answer.
const MAX_STALL: Duration = Duration::from_secs(20);
/// The bytes that the system keeps for a client. It would keep 4 MB, so a reader that stands still would be found late.
const SEND_BUFFER_BYTES: u32 = 64 << 10;
/// The most bytes and fields of a head.
const MAX_HEAD_BYTES: usize = 32 << 10;
const MAX_HEADERS: usize = 64;
/// The pause after a failure to accept, as without free file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// A dashboard with a socket of its own.
#[derive(Debug)]
pub struct DashboardServer {
    router: Router,
    listener: TcpListener,
    address: SocketAddr,
}

impl DashboardServer {
    pub(crate) async fn bind(router: Router, address: SocketAddr) -> Result<Self, Error> {
        let failed =
            |error| Error::new(format!("`listen` must be a free address, got {address}: {error}: use another port"));
        let listener = listen(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { router, listener, address })
    }

    /// Returns its address, with the port that the system has chosen for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves HTTP/1.1 without end. Connections go on when the future is dropped.
    pub async fn run(self) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let router = self.router.clone();
                    tokio::spawn(async move {
                        serve(router, stream, peer).await;
                        drop(place);
                    });
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
}

/// Opens a socket whose connections keep few bytes that their clients have not taken.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As `TcpListener::bind` has it.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(1024)
}

/// Serves one connection. Its errors are the client's.
async fn serve(router: Router, stream: TcpStream, peer: SocketAddr) {
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().call(request)
    });
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(MAX_HEAD_TIME)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES);
    let _ = server.serve_connection(TokioIo::new(TimedWrites::new(stream, MAX_STALL)), service).await;
}
