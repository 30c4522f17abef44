//! `GET api/events`: the state of all limiters each second, as a stream of events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use crate::access::Caller;
use crate::answer::Problem;
use crate::feed::INTERVAL;
use crate::routes::Service;

/// The most streams of each kind of caller. Those without a token take none of the others' places.
pub(crate) const MAX_STREAMS: usize = 16;
/// The time in which a client must take an event.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// The places of the streams.
pub(crate) struct StreamPlaces {
    anyone: Arc<Semaphore>,
    trusted: Arc<Semaphore>,
}

impl StreamPlaces {
    pub(crate) fn new() -> Self {
        let places = || Arc::new(Semaphore::new(MAX_STREAMS));
        Self { anyone: places(), trusted: places() }
    }

    fn take(&self, caller: Caller) -> Option<OwnedSemaphorePermit> {
        let places = match caller {
            Caller::Anyone => &self.anyone,
            Caller::Trusted => &self.trusted,
        };
        Arc::clone(places).try_acquire_owned().ok()
    }
}

/// Returns the stream. It ends when the client is slow, and holds at most two events for it.
pub(crate) async fn stream(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let place = service.streams.take(caller).ok_or_else(|| {
        Problem::try_later(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open: close one, or try later", 5)
    })?;
    let (sender, events) = mpsc::channel(1);
    tokio::spawn(send(service, caller, sender, place));
    let body = Body::from_stream(EventStream { events });
    Ok((StatusCode::OK, [(CONTENT_TYPE, "text/event-stream")], body).into_response())
}

/// Sends events until the client has gone or is slow.
async fn send(service: Arc<Service>, caller: Caller, sender: mpsc::Sender<Bytes>, _place: OwnedSemaphorePermit) {
    let send = async |name: &str, text: &str| {
        let event = Bytes::from(format!("event: {name}\ndata: {text}\n\n"));
        timeout(MAX_DELAY, sender.send(event)).await.is_ok_and(|sent| sent.is_ok())
    };
    let mut snapshot = service.feed.snapshot().await;
    let (trusted, sparks) = (caller == Caller::Trusted, service.feed.sparks().await);
    let has_token = service.access.has_token();
    let session = json!({ "trusted": trusted, "editable": trusted && service.operator.is_some(), "has_token": has_token, "sparks": sparks });
    if !send("session", &session.to_string()).await {
        return;
    }
    while send("state", snapshot.text(caller)).await {
        tokio::select! {
            () = sleep(INTERVAL) => snapshot = service.feed.snapshot().await,
            () = sender.closed() => return,
        }
    }
}

/// The events of one client.
struct EventStream {
    events: mpsc::Receiver<Bytes>,
}

impl Stream for EventStream {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_recv(context).map(|event| event.map(Ok))
    }
}
