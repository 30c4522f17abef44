//! The partner of the demonstration: a server in this process, which is closed for maintenance for a while.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::header::RETRY_AFTER;
use http::{StatusCode, Uri};
use tokio::net::TcpListener;

/// The call at which the maintenance begins.
const MAINTENANCE_AT: u32 = 25;

/// Starts the partner on a free port, and returns its URL.
pub(crate) async fn start() -> Result<Uri, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let partner = Uri::try_from(format!("http://{}/jobs", listener.local_addr()?))?;
    let router = Router::new().route("/jobs", post(receive)).with_state(Arc::new(AtomicU32::new(0)));
    tokio::spawn(async move { axum::serve(listener, router).await });
    println!("a partner at {partner}: it is closed for 2 s at its call {MAINTENANCE_AT}");
    Ok(partner)
}

async fn receive(State(calls): State<Arc<AtomicU32>>, job: String) -> Response {
    let call = calls.fetch_add(1, Relaxed) + 1;
    if call == MAINTENANCE_AT {
        return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "2")]).into_response();
    }
    format!("job {job} is done").into_response()
}
