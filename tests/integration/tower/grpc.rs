//! Answers of gRPC.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use rate_limited::tower::{ClientIp, Everyone, RateLimitLayer};
use rate_limited::{Denied, Key, Limiter, OnError, rate_limited};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming, UdsConnectInfo};
use tonic::transport::{Channel, Server};
use tonic::{Code, Response, Status};
use tonic_types::StatusExt;
use tower::{Service, ServiceExt};

use super::{Served, counted, field, limit, limiter, send};

fn status_of(response: &http::Response<String>) -> Status {
    assert_eq!((response.status().as_u16(), &**response.body()), (200, ""));
    Status::from_header_map(response.headers()).expect("a status")
}

#[tokio::test]
async fn a_denial_is_a_status_in_the_trailers_with_the_time_of_a_retry() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("1/1m")).limiter(limiter).key(Everyone).grpc();
    let service = counted(&layer, &Served::default());
    assert_eq!(field(&send(&service, Request::new(String::new())).await, "grpc-status"), [""; 0]);
    let denied = send(&service, Request::new(String::new())).await;
    assert_eq!(field(&denied, "content-type"), ["application/grpc"]);
    assert_eq!(field(&denied, "grpc-retry-pushback-ms"), ["60000"]);
    let status = status_of(&denied);
    assert_eq!(status.code(), Code::ResourceExhausted);
    let retry_info = status.get_details_retry_info().expect("details");
    assert_eq!(retry_info.retry_delay, Some(Duration::from_secs(60)));
}

#[tokio::test]
async fn failures_and_missing_keys_have_their_own_codes() {
    let down = Limiter::builder().url("redis://127.0.0.1:1").build().expect("starts without its server");
    let layer = RateLimitLayer::new("api", limit("1/1m")).limiter(down).grpc();
    for (policy, code) in [(OnError::Raise, Code::Unavailable), (OnError::Closed, Code::Unavailable)] {
        let service = counted(&layer.clone().key(Everyone).on_error(policy), &Served::default());
        assert_eq!(status_of(&send(&service, Request::new(String::new())).await).code(), code);
    }
    let by_address = counted(&layer, &Served::default());
    assert_eq!(status_of(&send(&by_address, Request::new(String::new())).await).code(), Code::InvalidArgument);
}

#[tokio::test]
async fn the_peer_is_that_of_tonic() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("1/1m")).limiter(limiter).key(ClientIp::peer()).grpc();
    let service = counted(&layer, &Served::default());
    let of = |peer: &str| {
        let remote_addr = Some(peer.parse().expect("an address"));
        let mut request = Request::new(String::new());
        request.extensions_mut().insert(TcpConnectInfo { local_addr: None, remote_addr });
        request
    };
    let mut codes = Vec::new();
    for request in [of("192.0.2.1:1"), of("192.0.2.1:2"), of("192.0.2.2:1")] {
        let response = send(&service, request).await;
        codes.push(Status::from_header_map(response.headers()).map(|status| status.code()));
    }
    assert_eq!(codes, [None, Some(Code::ResourceExhausted), None]);
    let mut unix = Request::new(String::new());
    unix.extensions_mut().insert(UdsConnectInfo { peer_addr: None, peer_cred: None });
    assert_eq!(status_of(&send(&service, unix).await).code(), Code::InvalidArgument);
}

/// A service of a server of tonic, which counts its calls.
#[derive(Clone, Default)]
pub(super) struct Hello(pub(super) Served);

impl NamedService for Hello {
    const NAME: &'static str = "test.Hello";
}

impl Service<Request<Body>> for Hello {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        self.0.0.fetch_add(1, Relaxed);
        ready(Ok(Status::new(Code::Ok, "").into_http()))
    }
}

#[tokio::test]
async fn a_server_of_tonic_counts_its_clients_by_their_addresses() {
    let (limiter, _) = limiter();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let layer = RateLimitLayer::new("api", limit("2/1m")).limiter(limiter.clone()).grpc();
    let server = Server::builder().layer(layer).add_service(Hello::default());
    let server = tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let mut codes = Vec::new();
    // Each client has a connection, and so a port, of its own.
    for _ in 0..3 {
        let client = Channel::from_shared(url.clone()).expect("a URL").connect().await.expect("it listens");
        let request = Request::post(format!("{url}/test.Hello/Say")).body(Body::empty()).expect("a request");
        let response = client.oneshot(request).await.expect("an answer");
        codes.push(Status::from_header_map(response.headers()).expect("a status").code());
    }
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::ResourceExhausted]);
    let key = Key::new("api").text(":ip:").part("127.0.0.1");
    assert_eq!(limiter.peek(&key, &limit("2/1m")).await.expect("decides").remaining(), 0);
    server.abort();
}

#[tokio::test]
async fn an_annotated_method_returns_a_status() {
    #[rate_limited(key = "say_hello", limit = "1/1m")]
    async fn say_hello() -> Result<Response<u32>, Status> {
        Ok(Response::new(1))
    }
    #[rate_limited(key = "same_as", limit = "1/1m")]
    async fn denied_value() -> Result<u32, Denied> {
        Ok(1)
    }
    Limiter::memory()
        .scope(async {
            assert!(say_hello().await.is_ok());
            assert_eq!(say_hello().await.expect_err("one permit").code(), Code::ResourceExhausted);
            assert!(denied_value().await.is_ok() && denied_value().await.is_err());
        })
        .await;
}
