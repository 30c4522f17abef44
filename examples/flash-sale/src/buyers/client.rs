//! The connections of the buyers: a few, with many calls on each at the same time (HTTP/2).

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, StatusCode};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::page::Page;
use super::{Call, Outcome};
use crate::answer::{Answer, Order};

/// The number of connections.
const CONNECTIONS: usize = 10;

/// The most calls in flight on one connection. hyper's servers accept 200 streams at once.
const MAX_STREAMS: usize = 120;

/// The time in which a call must have an answer: more than the service needs on a machine that stalls.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes of an answer.
const MAX_ANSWER_BYTES: usize = 100_000;

pub(super) type HttpClient = legacy::Client<HttpConnector, Body>;

pub(super) struct Client {
    base: String,
    connections: Vec<Connection>,
    in_flight: AtomicUsize,
    max_in_flight: AtomicUsize,
    started: Instant,
}

/// A connection, which its client opens with the first call.
struct Connection {
    client: HttpClient,
    streams: Semaphore,
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        let connection = |_| Connection {
            client: legacy::Client::builder(TokioExecutor::new()).http2_only(true).build_http(),
            streams: Semaphore::new(MAX_STREAMS),
        };
        Self {
            base: format!("http://{address}"),
            connections: (0..CONNECTIONS).map(connection).collect(),
            in_flight: AtomicUsize::new(0),
            max_in_flight: AtomicUsize::new(0),
            started: Instant::now(),
        }
    }

    /// Returns the number of calls in flight, and the greatest one so far.
    pub(super) fn in_flight(&self) -> (usize, usize) {
        (self.in_flight.load(Relaxed), self.max_in_flight.load(Relaxed))
    }

    /// Opens the page of the service.
    ///
    /// # Errors
    /// The service does not send it.
    pub(super) async fn open_page(&self) -> io::Result<Page> {
        Page::open(&self.connections[0].client, &self.base).await
    }

    fn connection_of(&self, buyer: u32) -> &Connection {
        &self.connections[usize::try_from(buyer).unwrap_or(0) % CONNECTIONS]
    }

    /// Waits for this many free streams on the connection of the buyer. Without them a call would wait in the client,
    /// and not be in flight.
    pub(super) async fn acquire(&self, buyer: u32, streams: u32) -> Option<SemaphorePermit<'_>> {
        self.connection_of(buyer).streams.acquire_many(streams).await.ok()
    }

    /// Sends an order on the connection of this buyer, after [`acquire`](Self::acquire). Returns the answer, if there
    /// is one, and the record of the call.
    pub(super) async fn buy(&self, buyer: u32, sale: &str, order: &Order) -> (Option<Answer>, Call) {
        let connection = self.connection_of(buyer);
        self.max_in_flight.fetch_max(self.in_flight.fetch_add(1, Relaxed) + 1, Relaxed);
        let sent = self.started.elapsed();
        let reply = timeout(ANSWER_TIMEOUT, self.send(connection, sale, order)).await.ok().flatten();
        let answered = self.started.elapsed();
        self.in_flight.fetch_sub(1, Relaxed);
        let outcome = match &reply {
            None => Outcome::NoAnswer,
            Some((Answer::Unavailable { is_outcome_known: false }, _)) => Outcome::Unknown,
            Some((Answer::Unavailable { .. }, _)) => Outcome::Refused,
            Some((Answer::Degraded { .. }, _)) => Outcome::Degraded,
            // Only the script gives these answers. Without the fields of a limit the call was admitted by none.
            Some((Answer::Bought { .. } | Answer::NotOpen { .. }, _) | (_, true)) => Outcome::Admitted,
            Some((_, false)) => Outcome::Unlimited,
        };
        (reply.map(|reply| reply.0), Call { sent, answered, outcome })
    }

    /// Returns the answer, and whether it has the fields of a limit.
    async fn send(&self, connection: &Connection, sale: &str, order: &Order) -> Option<(Answer, bool)> {
        let body = serde_json::to_vec(order).ok()?;
        let request = Request::post(format!("{}/sales/{sale}/buy", self.base));
        let request = request.header(CONTENT_TYPE, "application/json").body(Body::from(body)).ok()?;
        let response = connection.client.request(request).await.ok()?;
        let (is_denied, has_fields) =
            (response.status() == StatusCode::TOO_MANY_REQUESTS, response.headers().contains_key("ratelimit"));
        let body = to_bytes(Body::new(response.into_body()), MAX_ANSWER_BYTES).await.ok()?;
        let answer = serde_json::from_slice(&body).ok()?;
        // A denial without the fields that clients wait by is no answer.
        (!is_denied || has_fields).then_some((answer, has_fields))
    }
}
