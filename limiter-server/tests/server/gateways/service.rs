//! The service of a gateway, and the program behind the gateway.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use rate_limited::{Key, Limiter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::sleep;

use crate::support::{builder, run};

const RULES: &str = "[rules.search]\nkey = \"search:{ip}\"\nlimit = \"2/h\"\n";

/// The service of a test, with the rule of the pages: two requests of an address in any hour.
pub(super) struct Service {
    pub(super) address: SocketAddr,
    limiter: Limiter,
}

impl Service {
    /// Starts the service. The clients' addresses are in this header.
    pub(super) async fn start(header: &str) -> Self {
        let limiter = builder(RULES).build().expect("valid");
        let server = limiter_server::Server::new(limiter.clone()).header(format!("ip={header}")).expect("a header");
        Self { address: run(server).await, limiter }
    }

    /// Forgets what an address has used.
    pub(super) async fn reset(&self, client: &str) {
        let (key, limit) = (Key::new("search:").part(client), "2/h".parse().expect("a limit"));
        self.limiter.named("search").reset(&key, &limit).await.expect("answers");
    }

    /// Returns what is left for an address.
    pub(super) async fn remaining(&self, client: &str) -> u32 {
        let key = Key::new("search:").part(client);
        let limit = "2/h".parse().expect("a limit");
        self.limiter.named("search").peek(&key, &limit).await.expect("answers").remaining()
    }
}

/// Starts the program behind the gateway. It runs until the test ends.
pub(super) async fn program() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async { axum::serve(listener, Router::new().fallback(|| async { "app" })).await });
    address
}

/// An address at which connections are refused, as long as the socket lives.
pub(super) fn refusing() -> (SocketAddr, TcpSocket) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    (socket.local_addr().expect("bound"), socket)
}

/// An address that accepts connections and never answers.
pub(super) async fn hanging() -> SocketAddr {
    answering_after(Duration::from_secs(3_600)).await
}

/// An address that admits each request after a time.
pub(super) async fn answering_after(delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4_096];
                while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                    sleep(delay).await;
                    if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}
