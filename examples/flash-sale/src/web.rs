//! The routes of the service.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{AppendHeaders, Html, IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Order, check_id};
use crate::board::{BOARD_CLUBS, rows};
use crate::shop::{Reply, Shop};

mod events;

/// The most bytes of a request's body.
const MAX_BODY_BYTES: usize = 1_024;

/// The most rows of a leaderboard.
const MAX_ROWS: u32 = 100;

/// The query of a leaderboard.
#[derive(Deserialize)]
struct Rows {
    top: Option<u32>,
}

/// Returns the service.
pub(crate) fn router(shop: Arc<Shop>) -> Router {
    Router::new()
        .route("/", get(async || Html(include_str!("page.html"))))
        .route("/events", get(events::stream))
        .route("/state", get(state))
        .route("/sales/{id}/buy", post(buy))
        .route("/sales/{id}/leaderboard", get(leaderboard))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(shop)
}

async fn state(State(shop): State<Arc<Shop>>) -> Response {
    json(StatusCode::OK, shop.board.borrow().json.clone())
}

async fn buy(
    State(shop): State<Arc<Shop>>,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Reply, Answer> {
    check_id("sale", &id).map_err(bad_request)?;
    let body = body.map_err(|_| bad_request(format!("the body must have at most {MAX_BODY_BYTES} bytes")))?;
    let order = Order::parse(&body).map_err(bad_request)?;
    Ok(shop.order(&id, &order).await)
}

async fn leaderboard(
    State(shop): State<Arc<Shop>>,
    Path(id): Path<String>,
    query: Result<Query<Rows>, QueryRejection>,
) -> Result<Response, Answer> {
    check_id("sale", &id).map_err(bad_request)?;
    let top = query.map(|Query(rows)| rows.top.unwrap_or(BOARD_CLUBS)).unwrap_or_default();
    if !(1..=MAX_ROWS).contains(&top) {
        return Err(bad_request(format!("`top` must be a number from 1 to {MAX_ROWS}")));
    }
    let sale = shop.sales.iter().find(|sale| sale.id == id).ok_or(Answer::UnknownSale)?;
    let unavailable = Answer::Unavailable { is_outcome_known: true };
    let mut snapshot = shop.store.snapshot(&[*sale], top).await.map_err(|_| unavailable)?;
    let sale = snapshot.sales.pop().flatten().ok_or(Answer::UnknownSale)?;
    let leaderboard = serde_json::json!({ "leaderboard": rows(sale.leaders) });
    Ok(json(StatusCode::OK, leaderboard.to_string()))
}

fn bad_request(message: String) -> Answer {
    Answer::BadRequest { message }
}

fn json(status: StatusCode, text: String) -> Response {
    let fields = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, fields, text).into_response()
}

fn to_json(status: StatusCode, body: &impl Serialize) -> Response {
    json(status, serde_json::to_string(body).unwrap_or_default())
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Bought { .. } => StatusCode::OK,
            Self::BoughtAlready { .. } => StatusCode::CONFLICT,
            Self::SoldOut => StatusCode::GONE,
            Self::NotOpen { .. } => StatusCode::TOO_EARLY,
            Self::UnknownSale => StatusCode::NOT_FOUND,
            Self::Degraded { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::BadRequest { .. } => StatusCode::BAD_REQUEST,
        };
        let mut response = to_json(status, &self);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let mut response = self.answer.into_response();
        // The policy `closed` has a `Retry-After` of its own.
        if self.fields.iter().any(|(name, _)| *name == RETRY_AFTER) {
            response.headers_mut().remove(RETRY_AFTER);
        }
        (AppendHeaders(self.fields), response).into_response()
    }
}
