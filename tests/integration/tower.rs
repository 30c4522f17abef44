//! The layer for services of tower.

mod answers;
mod blocks;
mod charges;
mod each_limit;
mod grpc;
mod handlers;
mod keys;
mod ops;
mod outgoing;
mod outgoing_grpc;
mod permits;
mod places;
mod plans;
mod rules;
mod slots;
mod stores;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use http::{Request, Response};
use rate_limited::tower::{HeldBody, Peer};
use rate_limited::{Limit, Limiter, ManualClock};
use tokio::time::timeout;
use tower::{Layer, Service, ServiceExt};

use crate::deadlines::WAIT_TIMEOUT;

/// The requests that the service of [`counted`] has got.
#[derive(Clone, Debug, Default)]
struct Served(Arc<AtomicU32>);

impl Served {
    fn count(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

/// A limiter in memory whose clock stands still until a test moves it.
fn limiter() -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::builder().clock(clock.clone()).build().expect("builds"), clock)
}

fn limit(text: &str) -> Limit {
    text.parse().expect("a limit")
}

/// Adds a layer to a service that answers each request with its own body, and with the status in its path.
fn counted<L>(layer: &L, served: &Served) -> L::Service
where
    L: Layer<Echo>,
{
    layer.layer(Echo { served: served.clone() })
}

/// A service that answers a request with its body. A path such as `/404` is the status.
#[derive(Clone, Debug)]
struct Echo {
    served: Served,
}

impl Service<Request<String>> for Echo {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        self.served.0.fetch_add(1, Relaxed);
        let status: u16 = request.uri().path().trim_start_matches('/').parse().unwrap_or(200);
        let response = Response::builder().status(status).body(request.into_body());
        std::future::ready(Ok(response.expect("a status")))
    }
}

/// A request of the peer with this address.
fn request_of(peer: &str) -> Request<String> {
    request(&format!("{peer}:4711"), "/", &[])
}

/// A request of a peer, with headers.
fn request(peer: &str, path: &str, headers: &[(&str, &str)]) -> Request<String> {
    let peer: SocketAddr = peer.parse().expect("an address with a port");
    let mut request = Request::builder().uri(path).extension(Peer::new(peer));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(String::new()).expect("a request")
}

/// A body of an answer, in as many layers as its service has.
trait Text {
    /// Ends the body.
    fn into_text(self) -> String;
}

impl Text for String {
    fn into_text(self) -> String {
        self
    }
}

impl<B: Text> Text for HeldBody<B> {
    fn into_text(self) -> String {
        self.into_inner().into_text()
    }
}

/// Sends a request to a clone of a service. The response must come within [`WAIT_TIMEOUT`].
async fn send<S, B: Text>(service: &S, request: Request<String>) -> Response<String>
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
{
    let response = timeout(WAIT_TIMEOUT, service.clone().oneshot(request));
    response.await.expect("a response").expect("infallible").map(Text::into_text)
}

async fn statuses<S, B: Text>(service: &S, requests: impl IntoIterator<Item = Request<String>>) -> Vec<u16>
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
{
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(send(service, request).await.status().as_u16());
    }
    statuses
}

fn field<'a, B>(response: &'a Response<B>, name: &str) -> Vec<&'a str> {
    response.headers().get_all(name).iter().map(|value| value.to_str().expect("ASCII")).collect()
}
