//! `GET /events`: the state of the sales, as a stream of events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::stream::{Stream, unfold};
use tokio::sync::watch;

use crate::board::Board;
use crate::shop::Shop;

/// An open stream. The server drops it when the client has disconnected.
struct Subscription {
    shop: Arc<Shop>,
    states: watch::Receiver<Arc<Board>>,
}

impl Subscription {
    fn open(shop: Arc<Shop>) -> Self {
        shop.totals.open_page();
        let mut states = shop.board.subscribe();
        // The present state is the first event.
        states.mark_changed();
        Self { shop, states }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.shop.totals.close_page();
    }
}

/// Returns the present state and then each new one. A client that is slow misses states, and delays no other.
pub(super) async fn stream(
    State(shop): State<Arc<Shop>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>> + use<>> {
    Sse::new(unfold(Subscription::open(shop), async |mut subscription| {
        subscription.states.changed().await.ok()?;
        let json = subscription.states.borrow_and_update().json.clone();
        Some((Ok(Event::default().event("state").data(json)), subscription))
    }))
}
