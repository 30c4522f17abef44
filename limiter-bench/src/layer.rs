//! The time that the layer for services adds to a request, with a store in memory: services are called in process, one
//! after the other, and no server is involved.

use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use axum::BoxError;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::ConnectInfo;
use axum::routing::{Route, get};
use http::{Request, Response};
use rate_limited::http::Fields;
use rate_limited::tower::{ClientIp, Header, RateLimitLayer};
use rate_limited::{Limit, Limiter};
use tower::layer::layer_fn;
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::contestant::{Failure, failed};
use crate::sample::median;

/// Requests of one client in a sample.
const REQUESTS: usize = 20_000;
/// Requests between two readings of the clock.
const REQUESTS_PER_READING: usize = 20;

type BoxedService = BoxCloneService<Request<Body>, Response<Body>, Infallible>;

/// A service with its time.
#[derive(Debug)]
pub struct LayerRow {
    /// The service.
    pub name: &'static str,
    /// The index of the row without the layer.
    pub base: usize,
    /// The median of each round, in nanoseconds a request.
    pub medians: Vec<f64>,
}

impl LayerRow {
    /// Returns the time of a request in nanoseconds: the median of all rounds.
    #[must_use]
    pub fn nanos(&self) -> f64 {
        median(self.medians.iter().copied()).unwrap_or_default()
    }
}

/// Measures each service in each round. The order changes from round to round.
///
/// # Errors
/// A limit that cannot be parsed.
pub fn measure(rounds: usize) -> Result<Vec<LayerRow>, Failure> {
    let subjects = subjects().map_err(failed)?;
    let mut rows: Vec<_> =
        subjects.iter().map(|&(name, base, _)| LayerRow { name, base, medians: Vec::new() }).collect();
    for round in 0..rounds {
        for place in 0..subjects.len() {
            let index = (place + round) % subjects.len();
            rows[index].medians.push(median_nanos(subjects[index].2.clone()));
        }
    }
    Ok(rows)
}

/// The services: a name, the index of the same service without the layer, and the service.
fn subjects() -> Result<Vec<(&'static str, usize, BoxedService)>, rate_limited::Error> {
    let bare = service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Response::new(Body::empty()))));
    let router = || Router::new().route("/", get(|| async { "body" }));
    let roomy: Limit = "4000000000/10s".parse()?;
    let by_address = RateLimitLayer::new("address", roomy).limiter(Limiter::memory());
    let by_both =
        RateLimitLayer::new("both", roomy).limiter(Limiter::memory()).key((ClientIp::peer(), Header::new("x-api-key")));
    let proxied = RateLimitLayer::new("proxy", roomy).limiter(Limiter::memory()).key(ClientIp::x_forwarded_for(1));
    let denied = RateLimitLayer::new("denied", "1/1h".parse()?).limiter(Limiter::memory());
    let no_op = layer_fn(|service: Route| service);
    Ok(vec![
        ("service", 0, BoxCloneService::new(bare)),
        ("service, by address", 0, limited(by_address.layer(bare))),
        ("service, by address, no fields", 0, limited(by_address.clone().fields(Fields::None).layer(bare))),
        ("service, by X-Forwarded-For", 0, limited(proxied.layer(bare))),
        ("service, by address and header", 0, limited(by_both.layer(bare))),
        ("service, denied", 0, limited(denied.layer(bare))),
        ("router", 6, boxed(router())),
        ("router, layer that does nothing", 6, boxed(router().layer(no_op))),
        ("router, by address", 6, boxed(router().layer(by_address))),
    ])
}

/// The service of a layer, with the body type of the others.
fn limited<S, B>(service: S) -> BoxedService
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    BoxCloneService::new(service.map_response(|response| response.map(Body::new)))
}

fn boxed(router: Router) -> BoxedService {
    BoxCloneService::new(router.into_service())
}

/// Returns the median of the times of a request, in nanoseconds.
fn median_nanos(mut service: BoxedService) -> f64 {
    let mut readings = Vec::with_capacity(REQUESTS / REQUESTS_PER_READING);
    for _ in 0..REQUESTS / REQUESTS_PER_READING {
        let requests: Vec<_> = (0..REQUESTS_PER_READING).map(|_| request()).collect();
        let start = Instant::now();
        for request in requests {
            drop(poll_now(async { service.ready().await?.call(request).await }));
        }
        readings.push(start.elapsed().as_secs_f64() * 1e9 / REQUESTS_PER_READING as f64);
    }
    median(readings.into_iter()).unwrap_or_default()
}

fn request() -> Request<Body> {
    let peer = SocketAddr::from(([10, 0, 0, 1], 4711));
    let mut request = Request::new(Body::empty());
    request.extensions_mut().insert(ConnectInfo(peer));
    let headers = request.headers_mut();
    headers.insert("x-api-key", http::HeaderValue::from_static("0123456789abcdef"));
    headers.insert("x-forwarded-for", http::HeaderValue::from_static("192.0.2.1"));
    request
}

/// Returns the result of a future that never waits, or `None`.
fn poll_now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}
