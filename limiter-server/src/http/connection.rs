//! One connection of HTTP, with the times and bounds of its client.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::sync::watch;
use tokio::time::timeout;
use tower_service::Service;

use crate::listen::{Phase, Socket, StreamTimes, TimedStream, TurnCount};

/// The times of the clients of HTTP. Gateways keep connections for up to 90 s.
const HTTP_TIMES: StreamTimes =
    StreamTimes { head: Duration::from_secs(10), idle: Duration::from_secs(180), stall: Duration::from_secs(20) };
/// The most bytes and fields of a head.
const MAX_HEAD_BYTES: usize = 32 << 10;
const MAX_HEADERS: usize = 64;
/// The time for the first request of a connection that was new when the server closed.
const FIRST_REQUEST_TIME: Duration = Duration::from_millis(500);

/// The answer to a connection too many.
pub(crate) const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n\
    content-length: 144\r\nretry-after: 1\r\nconnection: close\r\n\r\n\
    {\"type\":\"about:blank\",\"title\":\"Too many connections\",\"status\":503,\"code\":\"too-many-connections\",\"detail\":\"all places of connections are in use\"}";

/// Serves one connection of HTTP. Its errors are the client's.
pub(crate) async fn serve_connection(router: Router, socket: Socket, mut phase: watch::Receiver<Phase>) {
    let turns = TurnCount::default();
    let stream = TimedStream::new(socket, HTTP_TIMES, turns.clone());
    let turns_so_far = turns.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        turns.turn();
        let (mut router, turns) = (router.clone(), turns.clone());
        async move {
            let response = router.call(request.map(Body::new)).await;
            turns.turn();
            response.map_err(|never: Infallible| match never {})
        }
    });
    let mut server = http1::Builder::new();
    server.header_read_timeout(None).max_headers(MAX_HEADERS).max_buf_size(MAX_HEAD_BYTES).auto_date_header(false);
    // Answers are small: one write of a copy is cheaper than a vectored one.
    server.writev(false);
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    let closing = async move {
        let _ = phase.wait_for(|phase| *phase == Phase::Closing).await;
    };
    tokio::select! {
        _ = connection.as_mut() => return,
        () = closing => {}
    }
    // A client that has just connected sends its first request now. The answer ends the connection.
    let is_new = turns_so_far.get() == 0;
    if is_new && timeout(FIRST_REQUEST_TIME, connection.as_mut()).await.is_ok() {
        return;
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_connection_too_many_is_whole() {
        let text = std::str::from_utf8(TOO_MANY_CONNECTIONS).expect("ASCII");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{} bytes", body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    }
}
