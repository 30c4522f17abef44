//! The dashboard's own server, over TCP.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{TOKEN, dashboard};

async fn serve(server: &RedisServer) -> SocketAddr {
    let bound = dashboard(server).await.bind("127.0.0.1:0".parse().expect("an address")).await.expect("a socket");
    let address = bound.address();
    tokio::spawn(bound.run());
    address
}

/// Sends bytes and reads until the server closes, or for so long.
async fn exchange(address: SocketAddr, bytes: &[u8], longest: Duration) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(bytes).await.expect("written");
    let mut answer = Vec::new();
    let _ = timeout(longest, stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_are_counted_by_the_address_of_the_connection() {
    let server = RedisServer::start();
    let address = serve(&server).await;
    let get = |token: &str| {
        format!(
            "GET /api/text HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        )
    };
    let longest = Duration::from_secs(20);
    assert!(exchange(address, get(TOKEN).as_bytes(), longest).await.starts_with("HTTP/1.1 200"));
    for _ in 0..10 {
        assert!(exchange(address, get("wrong").as_bytes(), longest).await.starts_with("HTTP/1.1 401"));
    }
    assert!(exchange(address, get(TOKEN).as_bytes(), longest).await.starts_with("HTTP/1.1 429"));
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_and_long_requests_are_ended() {
    let server = RedisServer::start();
    let address = serve(&server).await;
    let began = Instant::now();
    let slow_body = format!(
        "POST /api/text/check HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    );
    let long_head = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    let longest = Duration::from_secs(60);
    let (head, body, long) = tokio::join!(
        exchange(address, b"GET / HTTP/1.1\r\nHost: lo", longest),
        exchange(address, slow_body.as_bytes(), longest),
        exchange(address, long_head.as_bytes(), longest),
    );
    assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
    assert!(head.is_empty() || head.starts_with("HTTP/1.1 408"), "{head}");
    assert!(body.starts_with("HTTP/1.1 408"), "{body}");
    assert!(long.starts_with("HTTP/1.1 431"), "{long}");
    let fields: String = (0..100).map(|number| format!("X-{number}: 1\r\n")).collect();
    let many =
        exchange(address, format!("GET / HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").as_bytes(), longest).await;
    assert!(many.starts_with("HTTP/1.1 431"), "{many}");
}

/// The system kept 4 MB for it, so it had its place for a minute and more.
#[tokio::test(flavor = "multi_thread")]
async fn little_is_kept_for_a_client_that_takes_nothing() {
    let server = RedisServer::start();
    let mut stream = TcpStream::connect(serve(&server).await).await.expect("a connection");
    stream
        .write_all("GET /uplot.js HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(150).as_bytes())
        .await
        .expect("written");
    // The server closes the connection after 20 s.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let mut kept = Vec::new();
    let _ = timeout(Duration::from_secs(20), stream.read_to_end(&mut kept)).await;
    assert!((1..1 << 20).contains(&kept.len()), "{} bytes", kept.len());
}
