//! The layer for clients around a channel of tonic.

use std::future::poll_fn;
use std::time::Duration;

use http::Request;
use rate_limited::tower::{Everyone, OutgoingError, OutgoingLayer, RateLimitLayer};
use rate_limited::{ErrorKind, Limiter, OnError};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Status};
use tonic_types::StatusExt;
use tower::{Layer, ServiceExt};

use super::grpc::Hello;
use super::{Served, limit, limiter};

const SECOND: Duration = Duration::from_secs(1);

/// Starts a server that has a limit for all its calls. Returns a channel to it, and its count.
async fn serve(max: &str) -> (Channel, Served) {
    let (served, (limiter, _)) = (Served::default(), limiter());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let layer = RateLimitLayer::new("server", limit(max)).limiter(limiter).key(Everyone).grpc();
    let server = Server::builder().layer(layer).add_service(Hello(served.clone()));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    (Endpoint::try_from(url).expect("a URL").connect().await.expect("it listens"), served)
}

/// Returns the status of a call as the generated clients of tonic do. The call runs in a task.
async fn call<C>(client: &C) -> Status
where
    C: GrpcService<Body, ResponseBody: Send, Future: Send, Error: Send> + Clone + Send + 'static,
{
    let mut client = client.clone();
    let call = async move {
        poll_fn(|context| client.poll_ready(context)).await?;
        let request = Request::post("http://server/test.Hello/Say").body(Body::empty());
        client.call(request.expect("a request")).await
    };
    match tokio::spawn(call).await.expect("no panic") {
        Ok(response) => Status::from_header_map(response.headers()).expect("a status"),
        Err(error) => Status::from_error(error.into()),
    }
}

fn retry_delay(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

/// The pause that a server of gRPC demands.
fn demanded_pause(response: &http::Response<Body>) -> Option<Duration> {
    retry_delay(&Status::from_header_map(response.headers())?)
}

#[tokio::test]
async fn a_call_that_is_not_sent_has_the_status_of_a_denial() {
    let ((limiter, clock), (channel, served)) = (limiter(), serve("100/1m").await);
    let layer = OutgoingLayer::new("partner", limit("2/10s")).limiter(limiter);
    let client = layer.layer(channel).map_err(Status::from);
    assert_eq!([call(&client).await.code(), call(&client).await.code()], [Code::Ok, Code::Ok]);
    let denied = call(&client).await;
    assert_eq!((denied.code(), retry_delay(&denied)), (Code::ResourceExhausted, Some(10 * SECOND)));
    assert_eq!(served.count(), 2);
    clock.advance(10 * SECOND);
    assert_eq!(call(&client).await.code(), Code::Ok);
}

/// The channel needs no `map_err`: then a denial is in the source of the status.
#[tokio::test]
async fn a_denial_is_the_source_of_a_status_that_tonic_makes() {
    let (channel, _) = serve("100/1m").await;
    let client = OutgoingLayer::new("partner", limit("1/10s")).limiter(limiter().0).layer(channel);
    assert_eq!(call(&client).await.code(), Code::Ok);
    let status = call(&client).await;
    assert_eq!(status.code(), Code::Unknown);
    let source = std::error::Error::source(&status).expect("a source");
    let error: &OutgoingError<tonic::transport::Error> = source.downcast_ref().expect("that of the layer");
    assert_eq!(error.denied().map(|denied| denied.retry_after()), Some(10 * SECOND));
}

#[tokio::test]
async fn the_retry_info_of_a_status_pauses_the_client() {
    let ((limiter, clock), (channel, served)) = (limiter(), serve("1/1m").await);
    let layer = OutgoingLayer::new("partner", limit("100/10s")).limiter(limiter.clone());
    let client = layer.pause_by(demanded_pause).layer(channel).map_err(Status::from);
    assert_eq!(call(&client).await.code(), Code::Ok);
    let denied = call(&client).await;
    assert!(denied.message().contains("`server`"), "{denied:?}");
    let not_sent = call(&client).await;
    assert!(not_sent.message().contains("`partner`"), "{not_sent:?}");
    assert_eq!((not_sent.code(), retry_delay(&not_sent)), (Code::ResourceExhausted, Some(60 * SECOND)));
    // The server's clock stands still, so it denies the call that is sent after the pause.
    clock.advance(60 * SECOND);
    assert!(call(&client).await.message().contains("`server`"));
    assert_eq!(served.count(), 1);
}

#[tokio::test]
async fn other_errors_have_the_status_that_tonic_gives_them() {
    let failing = Limiter::builder().failing(ErrorKind::Unavailable).build().expect("builds");
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address");
    let channel = Endpoint::try_from(format!("http://{gone}")).expect("a URL").connect_lazy();
    let without_layer = call(&channel).await;
    assert_eq!(without_layer.code(), Code::Unavailable);
    let layer = OutgoingLayer::new("partner", limit("1/10s")).limiter(failing);
    let open = layer.clone().on_error(OnError::Open).layer(channel.clone()).map_err(Status::from);
    let status = call(&open).await;
    assert_eq!((status.code(), status.message()), (Code::Unavailable, without_layer.message()));
    let raised = call(&layer.on_error(OnError::Raise).layer(channel).map_err(Status::from)).await;
    assert_eq!((raised.code(), raised.message()), (Code::Unavailable, "the rate limit cannot be checked"));
}

/// Layers of tower such as a timeout have boxed errors.
#[test]
fn a_boxed_error_is_a_status() {
    let boxed: Box<dyn std::error::Error + Send + Sync> = Box::new(Status::data_loss("of the client"));
    let status = Status::from(OutgoingError::Inner(boxed));
    assert_eq!((status.code(), status.message()), (Code::DataLoss, "of the client"));
}
