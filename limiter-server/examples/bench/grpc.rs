//! A client of gRPC that makes several calls at once on one connection of HTTP/2.

use std::net::SocketAddr;
use std::time::Instant;

use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::{ClientRound, Kind, ROUND};

/// A descriptor with one entry, as in most of Envoy's routes.
pub(crate) const CONFIG: &str = "domain: bench
descriptors:
  - key: user
    rate_limit: {limit: 1000000000/h}
";

/// Makes calls until the end of a round, `depth` at once.
pub(crate) fn run_client(address: SocketAddr, kind: Kind, depth: usize, client: usize) -> ClientRound {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let stream = TcpStream::connect(address).await.expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        let connection = http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await;
        let (sender, connection) = connection.expect("a connection");
        tokio::spawn(connection);
        let (began, mut answered, mut times) = (Instant::now(), 0, Vec::new());
        while began.elapsed() < ROUND {
            let calls = (0..depth).map(|index| call(sender.clone(), kind, (answered + index + client * 100) % 1_000));
            let sent = Instant::now();
            join_all(calls).await;
            times.push(sent.elapsed());
            answered += depth;
        }
        (answered, times)
    })
}

async fn call(mut sender: SendRequest<Full<Bytes>>, kind: Kind, user: usize) {
    let (path, message) = match kind {
        Kind::Constant => ("http://bench/grpc.health.v1.Health/Check", Vec::new()),
        Kind::Check => {
            ("http://bench/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", rate_limit_request(user))
        }
    };
    let mut framed = vec![0; 4];
    framed.push(u8::try_from(message.len()).expect("a short message"));
    framed.extend(message);
    let request = Request::post(path).header("content-type", "application/grpc").header("te", "trailers");
    let request = request.body(Full::new(Bytes::from(framed))).expect("a request");
    let response = sender.send_request(request).await.expect("an answer");
    let body = response.into_body().collect().await.expect("a body");
    let status = body.trailers().and_then(|trailers| trailers.get("grpc-status"));
    assert!(status.is_some_and(|status| status == "0"), "{status:?}");
}

/// The bytes of a `RateLimitRequest` with one descriptor.
fn rate_limit_request(user: usize) -> Vec<u8> {
    let field = |tag: u8, bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).expect("a short field");
        [&[(tag << 3) | 2, length][..], bytes].concat()
    };
    let entry = [field(1, b"user"), field(2, format!("{user:04}").as_bytes())].concat();
    let descriptor = field(1, &entry);
    [field(1, b"bench"), field(2, &descriptor)].concat()
}
