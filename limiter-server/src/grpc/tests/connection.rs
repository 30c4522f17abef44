//! The services on a connection of HTTP/2: what a client sees, and what it may not do.

use std::sync::Mutex;

use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{HeaderMap, Request};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use metrics_exporter_prometheus::PrometheusBuilder;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::super::GrpcService;
use super::super::messages::{HealthCheckRequest, HealthCheckResponse, ServingStatus};
use super::super::server::serve_connection;
use super::*;
use crate::access::Access;

type Body = http_body_util::combinators::BoxBody<Bytes, std::io::Error>;

/// A server of one connection.
struct GrpcServer {
    serving: watch::Sender<bool>,
    close: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    _directory: TempDir,
}

/// A client of it.
struct Client(SendRequest<Body>);

/// The answer to a call: its messages and its status.
#[derive(Debug)]
struct Reply {
    body: Bytes,
    status: GrpcCode,
}

fn serve(yaml: &str, access: Access) -> (GrpcServer, DuplexStream) {
    let Limits { limits, _directory: directory, .. } = Limits::new(yaml);
    let (serving, watched) = watch::channel(true);
    let service = GrpcService::new(limits.service, limits.config, access, watched);
    let (client, server) = tokio::io::duplex(1 << 20);
    let (close, closed) = oneshot::channel();
    let task = tokio::spawn(serve_connection(service, server, async {
        let _ = closed.await;
    }));
    (GrpcServer { serving, close: Some(close), task, _directory: directory }, client)
}

async fn connect(yaml: &str) -> (GrpcServer, Client) {
    let (server, stream) = serve(yaml, Access::default());
    (server, Client::new(stream).await)
}

impl Client {
    async fn new(stream: DuplexStream) -> Self {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new());
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("a connection");
        tokio::spawn(connection);
        Self(sender)
    }

    async fn send(&mut self, path: &str, fields: &[(&str, &str)], body: Body) -> Result<Reply, hyper::Error> {
        let mut request = Request::post(format!("http://limiter{path}")).header("content-type", "application/grpc");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let response = self.0.send_request(request.body(body).expect("a request")).await?;
        let mut fields: HeaderMap = response.headers().clone();
        let collected = response.into_body().collect().await?;
        fields.extend(collected.trailers().cloned().unwrap_or_default());
        let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let status = GrpcCode::from_bytes(text("grpc-status").as_bytes());
        Ok(Reply { body: collected.to_bytes(), status })
    }

    async fn call(&mut self, path: &str, message: &impl Message) -> Reply {
        self.send(path, &[], frame(message)).await.expect("an answer")
    }

    async fn limit(&mut self, request: &RateLimitRequest) -> Reply {
        self.call(LIMIT, request).await
    }
}

const LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";

fn bytes(bytes: Vec<u8>) -> Body {
    Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed()
}

/// A message with its prefix.
fn frame(message: &impl Message) -> Body {
    bytes(framed(&message.encode_to_vec()))
}

fn framed(message: &[u8]) -> Vec<u8> {
    let len = u32::try_from(message.len()).expect("a short message");
    [&[0][..], &len.to_be_bytes(), message].concat()
}

fn decoded<M: Message + Default>(reply: &Reply) -> M {
    assert_eq!(reply.status, GrpcCode::Ok, "{reply:?}");
    M::decode(&reply.body[5..]).expect("a message")
}

#[tokio::test]
async fn a_call_is_counted_by_its_outcome() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let (_server, stream) = metrics::with_local_recorder(&recorder, || serve(PLAIN, Access::default()));
    let mut client = Client::new(stream).await;
    for _ in 0..4 {
        client.limit(&request("d", &["user=1"])).await;
    }
    client.limit(&request("d", &[])).await;
    let shown = recorder.handle().render();
    for (outcome, number) in [("ok", 3), ("denied", 1), ("invalid", 1), ("failed", 0)] {
        let labels = format!(r#"protocol="grpc",command="ShouldRateLimit",outcome="{outcome}""#);
        assert!(shown.contains(&format!("limiter_server_requests_total{{{labels}}} {number}\n")), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_without_the_token_and_one_that_takes_too_long_are_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let access = Access::with_token(b"0123456789abcdef").expect("long enough");
    let (_server, stream) = metrics::with_local_recorder(&recorder, || serve(PLAIN, access));
    let mut client = Client::new(stream).await;
    assert_eq!(client.limit(&request("d", &["user=1"])).await.status, GrpcCode::Unauthenticated);
    let never = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, std::io::Error>>());
    let reply = client.send(LIMIT, &[("authorization", "Bearer 0123456789abcdef")], BodyExt::boxed(never)).await;
    assert_eq!(reply.expect("an answer").status, GrpcCode::DeadlineExceeded);
    let shown = recorder.handle().render();
    for (outcome, number) in [("ok", 0), ("denied", 0), ("invalid", 1), ("failed", 1)] {
        let labels = format!(r#"protocol="grpc",command="ShouldRateLimit",outcome="{outcome}""#);
        assert!(shown.contains(&format!("limiter_server_requests_total{{{labels}}} {number}\n")), "{shown}");
    }
}

#[tokio::test]
async fn a_call_is_answered_and_unknown_fields_are_skipped() {
    let (_server, mut client) = connect(PLAIN).await;
    let reply = client.limit(&request("d", &["user=1"])).await;
    assert_eq!(text_of(&decoded(&reply)), "OK: OK 2/3 MINUTE");
    // The fields 15 and 100 of a later Envoy.
    let mut message = request("d", &["user=1"]).encode_to_vec();
    message.extend([0x7a, 3, b'n', b'e', b'w', 0xa0, 6, 1]);
    let reply = client.send(LIMIT, &[], bytes(framed(&message))).await.expect("an answer");
    assert_eq!(text_of(&decoded(&reply)), "OK: OK 1/3 MINUTE");
    let reply = client.call("/envoy.service.ratelimit.v3.RateLimitService/Other", &request("d", &["user=1"])).await;
    assert_eq!(reply.status, GrpcCode::Unimplemented);
}

#[tokio::test]
async fn a_message_that_is_wrong_or_too_large_is_an_error() {
    let (_server, mut client) = connect(PLAIN).await;
    let many = vec!["user=1"; 500_000];
    let large = request("d", &many);
    assert!(large.encoded_len() > 5_000_000);
    let reply = client.limit(&large).await;
    assert_eq!(reply.status, GrpcCode::ResourceExhausted, "{reply:?}");
    let garbage = client.send(LIMIT, &[], bytes(framed(b"\xff\xff\xff"))).await.expect("an answer");
    assert_eq!(garbage.status, GrpcCode::Internal, "{garbage:?}");
    // 4 GB are announced, and nothing is sent.
    let announced = client.send(LIMIT, &[], bytes(vec![0, 0xff, 0xff, 0xff, 0xff])).await.expect("an answer");
    assert_eq!(announced.status, GrpcCode::ResourceExhausted, "{announced:?}");
    assert_eq!(client.limit(&request("d", &["user=1"])).await.status, GrpcCode::Ok);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_ends_is_ended() {
    let (_server, mut client) = connect(PLAIN).await;
    let half = StreamBody::new(futures_util::stream::unfold(0, |sent| async move {
        match sent {
            0 => Some((Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(&[0, 0, 0, 0, 50, 1]))), 1)),
            _ => std::future::pending().await,
        }
    }));
    let half = BodyExt::boxed(Mutexed(Mutex::new(Box::pin(half))));
    let reply = client.send(LIMIT, &[], half).await.expect("an answer");
    assert_eq!(reply.status, GrpcCode::DeadlineExceeded, "{reply:?}");
    assert_eq!(client.limit(&request("d", &["user=1"])).await.status, GrpcCode::Ok);
}

/// A body that may be shared, as a boxed one must be.
struct Mutexed<B>(Mutex<std::pin::Pin<Box<B>>>);

impl<B: hyper::body::Body<Data = Bytes, Error = std::io::Error>> hyper::body::Body for Mutexed<B> {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.get_mut().0.get_mut().expect("no panic").as_mut().poll_frame(context)
    }
}

#[tokio::test]
async fn the_token_is_needed_by_all_but_health() {
    let access = Access::with_token(b"0123456789abcdef").expect("long enough");
    let (_server, stream) = serve(PLAIN, access);
    let mut client = Client::new(stream).await;
    let message = request("d", &["user=1"]);
    for (field, status) in [
        ("Bearer 0123456789abcdef", GrpcCode::Ok),
        ("Bearer other", GrpcCode::Unauthenticated),
        ("0123456789abcdef", GrpcCode::Unauthenticated),
    ] {
        let reply = client.send(LIMIT, &[("authorization", field)], frame(&message)).await.expect("an answer");
        assert_eq!(reply.status, status, "{field}: {reply:?}");
    }
    assert_eq!(client.limit(&message).await.status, GrpcCode::Unauthenticated);
    assert_eq!(client.call(CHECK, &HealthCheckRequest::default()).await.status, GrpcCode::Ok);
}

#[tokio::test]
async fn health_is_that_of_the_server_and_a_watch_ends_with_it() {
    let (mut server, mut client) = connect(PLAIN).await;
    let named = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let status = |reply: &Reply| decoded::<HealthCheckResponse>(reply).status;
    for service in ["", "envoy.service.ratelimit.v3.RateLimitService"] {
        let reply = client.call(CHECK, &named(service)).await;
        assert_eq!(status(&reply), ServingStatus::Serving as i32);
    }
    assert_eq!(client.call(CHECK, &named("other")).await.status, GrpcCode::NotFound);
    let mut watching = Client(client.0.clone());
    let watch = tokio::spawn(async move { watching.call(WATCH, &named("")).await });
    // The answer to a later call shows that the watch has begun.
    while server.serving.receiver_count() < 2 {
        assert_eq!(client.call(CHECK, &named("")).await.status, GrpcCode::Ok);
    }
    server.serving.send_replace(false);
    assert_eq!(status(&client.call(CHECK, &named("")).await), ServingStatus::NotServing as i32);
    drop(server.serving);
    let reply = watch.await.expect("no panic");
    assert_eq!(reply.status, GrpcCode::Ok, "{reply:?}");
    // The first status may have been read after the change.
    let last = HealthCheckResponse { status: ServingStatus::NotServing.into() };
    assert!(reply.body.ends_with(&framed(&last.encode_to_vec())), "{reply:?}");
    // The connection ends when the server closes it, after what runs.
    server.close.take().expect("open").send(()).expect("it serves");
    server.task.await.expect("no panic");
    assert!(client.send(CHECK, &[], frame(&HealthCheckRequest::default())).await.is_err());
}

#[tokio::test]
async fn a_flood_of_reset_streams_ends_the_connection() {
    let (server, mut stream) = serve(PLAIN, Access::default());
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("open");
    // POST to the root, by the static table of HPACK, and a reset of each.
    let mut flood = Vec::new();
    for stream in (1..20_001_u32).step_by(2) {
        flood.extend([0, 0, 3, 1, 4]);
        flood.extend(stream.to_be_bytes());
        flood.extend([0x83, 0x84, 0x86]);
        flood.extend([0, 0, 4, 3, 0]);
        flood.extend(stream.to_be_bytes());
        flood.extend([0, 0, 0, 8]);
    }
    let (mut read, mut write) = tokio::io::split(stream);
    tokio::spawn(async move {
        let _ = write.write_all(&flood).await;
        // The end of the server ends it.
        std::future::pending::<()>().await;
    });
    let mut received = Vec::new();
    read.read_to_end(&mut received).await.expect("the end of the connection");
    // GOAWAY with ENHANCE_YOUR_CALM.
    let goaway =
        received.windows(17).any(|frame| frame[..4] == [0, 0, 8, 7] || frame[3] == 7 && frame[13..17] == [0, 0, 0, 11]);
    assert!(goaway, "{received:?}");
    server.task.await.expect("no panic");
}
