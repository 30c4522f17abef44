//! The page that the buyers look at: the service's stream of events. One stream serves all of them.

use std::io;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::sync::watch;

use super::client::HttpClient;

/// The state of the service, as far as buyers look at it.
#[derive(Clone, Debug, Default, Deserialize)]
struct ShownState {
    now_ms: u64,
    sales: Vec<ShownSale>,
}

#[derive(Clone, Debug, Deserialize)]
struct ShownSale {
    id: String,
    opens_at_ms: u64,
    state: String,
}

/// A sale on the page.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) id: String,
    pub(super) opens_at: Instant,
}

/// The newest state. If the stream ends, the last state remains, and buyers learn from their calls what has changed.
#[derive(Clone, Debug)]
pub(super) struct Page {
    states: watch::Receiver<ShownState>,
}

impl Page {
    /// Opens the stream, and waits for its first state.
    ///
    /// # Errors
    /// The service does not reply, or its stream ends without a state.
    pub(super) async fn open(client: &HttpClient, base: &str) -> io::Result<Self> {
        let request = Request::get(format!("{base}/events")).body(Body::empty()).map_err(io::Error::other)?;
        let response = client.request(request).await.map_err(io::Error::other)?;
        let (sender, mut states) = watch::channel(ShownState::default());
        tokio::spawn(read(Body::new(response.into_body()), sender));
        states.changed().await.map_err(|_| io::Error::other("the service sends no state of the sales"))?;
        Ok(Self { states })
    }

    /// Returns the sales, in the order of the page.
    pub(super) fn offers(&self) -> Vec<Offer> {
        let (now, state) = (Instant::now(), self.states.borrow());
        let opens_in = |sale: &ShownSale| Duration::from_millis(sale.opens_at_ms.saturating_sub(state.now_ms));
        state.sales.iter().map(|sale| Offer { id: sale.id.clone(), opens_at: now + opens_in(sale) }).collect()
    }

    /// Returns whether the page shows that the sale has no items left.
    pub(super) fn is_sold_out(&self, id: &str) -> bool {
        self.states.borrow().sales.iter().any(|sale| sale.id == id && sale.state == "sold_out")
    }
}

/// Reads events until the stream ends. Each state is one line of data.
async fn read(body: Body, states: watch::Sender<ShownState>) {
    let (mut chunks, mut text) = (body.into_data_stream(), Vec::new());
    while let Some(Ok(chunk)) = chunks.next().await {
        text.extend_from_slice(&chunk);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            if let Some(state) = line.strip_prefix(b"data:").and_then(|data| serde_json::from_slice(data).ok()) {
                states.send_replace(state);
            }
        }
    }
}
