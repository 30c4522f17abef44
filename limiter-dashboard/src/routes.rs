//! The routes, and what holds for all of them: hosts, tokens, times and header fields.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use rate_limited::Limiter;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::access::{Access, Caller};
use crate::answer::Problem;
use crate::assets;
use crate::events::{self, StreamPlaces};
use crate::feed::Feed;
use crate::hosts::Hosts;
use crate::views::{drafts, keys, limiters, rates, shared_rules};

/// The dashboard behind its routes.
pub(crate) struct Service {
    pub(crate) limiter: Limiter,
    /// The limiter of edits.
    pub(crate) operator: Option<Limiter>,
    pub(crate) feed: Feed,
    pub(crate) streams: StreamPlaces,
    /// The places of questions that need a connection of their own, or much memory.
    pub(crate) questions: Semaphore,
    pub(crate) access: Access,
    hosts: Hosts,
}

/// The most questions at once.
const MAX_QUESTIONS: usize = 4;

/// The longest time from the head of a request to that of its answer, with its body.
const MAX_REQUEST_TIME: Duration = Duration::from_secs(15);

impl Service {
    pub(crate) fn new(limiter: Limiter, operator: Option<Limiter>, access: Access, hosts: Hosts) -> Self {
        let feed = Feed::new(limiter.clone());
        let (streams, questions) = (StreamPlaces::new(), Semaphore::new(MAX_QUESTIONS));
        Self { limiter, operator, feed, streams, questions, access, hosts }
    }
}

/// Returns the routes.
pub(crate) fn routes(service: Arc<Service>) -> Router {
    let mut router = Router::new().route("/", get(assets::page));
    for (path, kind, content) in assets::FILES {
        router = router.route(path, get(async move || assets::file(kind, content)));
    }
    router
        .route("/api/events", get(events::stream))
        .route("/api/rates/{rule}", get(rates::series))
        .route("/api/limiters", get(limiters::list))
        .route("/api/rules", get(rates::in_force))
        .route("/api/rules/{rule}", get(rates::in_force_of))
        .route("/api/key", post(keys::report))
        .route("/api/text", get(shared_rules::present))
        .route("/api/text/draft", post(drafts::draft))
        .route("/api/text/check", post(shared_rules::check))
        .route("/api/text/publish", post(shared_rules::publish))
        .route("/api/text/rollback", post(shared_rules::rollback))
        .route("/api/history", get(shared_rules::history))
        .route("/api/history/{version}", get(shared_rules::version))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is no such page"))
        .layer(from_fn_with_state(Arc::clone(&service), guard))
        .with_state(service)
}

/// A caller with the token.
pub(crate) struct Trusted;

impl<S: Sync> FromRequestParts<S> for Trusted {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match parts.extensions.get() {
            Some(Caller::Trusted) => Ok(Self),
            _ => Err(Problem::no_token()),
        }
    }
}

/// The header fields of each answer. The policy has no exception, so no text of others can become a script.
const FIELDS: [(HeaderName, &str); 5] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Refuses what no route may get, and adds the header fields to each answer.
async fn guard(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let mut response = match admit(&service, request) {
        Ok(request) => match timeout(MAX_REQUEST_TIME, next.run(request)).await {
            Ok(response) => response,
            Err(_) => Problem::new(StatusCode::REQUEST_TIMEOUT, "the request took too long").into_response(),
        },
        Err(problem) => problem.into_response(),
    };
    response.headers_mut().extend(FIELDS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

fn admit(service: &Service, request: Request) -> Result<Request, Problem> {
    let (mut parts, body) = request.into_parts();
    if !service.hosts.permit(&parts) {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "the host must be a loopback address or one of `hosts`: add it with `--host`",
        ));
    }
    if is_of_other_site(&parts) {
        return Err(Problem::new(StatusCode::FORBIDDEN, "the request must come from the page itself"));
    }
    let caller = service.access.caller(&parts.headers, address(&parts), Instant::now())?;
    parts.extensions.insert(caller);
    Ok(Request::from_parts(parts, body))
}

/// Returns whether another site has made the request. It may only open the page, as by a link.
fn is_of_other_site(parts: &Parts) -> bool {
    let sent = |name: &str| parts.headers.get(name).map(HeaderValue::as_bytes);
    let is_read = parts.method == Method::GET;
    match sent("sec-fetch-site") {
        None | Some(b"same-origin") => false,
        // A person has typed the address.
        Some(b"none") => !is_read,
        _ => !is_read || sent("sec-fetch-mode") != Some(b"navigate"),
    }
}

/// Returns the address of the client, if the server has given it to the router.
fn address(parts: &Parts) -> Option<IpAddr> {
    Some(parts.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip())
}
