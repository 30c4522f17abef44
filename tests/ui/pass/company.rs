//! Annotated functions with other attributes: handlers, tracing, `async_trait`, lints and macros.

#![deny(warnings)]

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use rate_limited::{Denied, Limiter, rate_limited};
use tower::ServiceExt;

struct Busy;

impl From<Denied> for Busy {
    fn from(_: Denied) -> Self {
        Self
    }
}

impl IntoResponse for Busy {
    fn into_response(self) -> axum::response::Response {
        StatusCode::TOO_MANY_REQUESTS.into_response()
    }
}

#[rate_limited(key = "user:{id}", limit = "1/1h")]
async fn user(Path(id): Path<u64>, State(name): State<String>) -> Result<String, Busy> {
    Ok(format!("{id} {name}"))
}

#[rate_limited(key = "item:{id}", limit = "1/1h", fallback = no_item)]
async fn item(
    Path((id, _)): Path<(u64, String)>,
    State(name): State<String>,
    request: Request<Body>,
) -> impl IntoResponse {
    format!("{id} {name} {}", request.uri().path())
}

async fn no_item(Path((id, rest)): Path<(u64, String)>, _: State<String>, _: Request<Body>) -> String {
    format!("{id} {rest}")
}

/// A body is `Send` but not `Sync`, and a handler's future must be `Send`.
#[rate_limited(key = "recovered", limit = "1/1h", recover = |status| Ok(format!("recovered {status}")), fallback = Err(StatusCode::TOO_MANY_REQUESTS))]
async fn recovered(request: Request<Body>) -> Result<String, StatusCode> {
    tokio::task::yield_now().await;
    if request.uri().query().is_none() { Err(StatusCode::BAD_REQUEST) } else { Ok("fine".to_owned()) }
}

async fn axum_handlers() {
    let app = Router::new()
        .route("/users/{id}", get(user))
        .route("/items/{id}/{rest}", get(item))
        .route("/recovered", get(recovered))
        .with_state("name".to_owned());
    let cases = [
        ("/users/1", StatusCode::OK),
        ("/users/1", StatusCode::TOO_MANY_REQUESTS),
        ("/users/2", StatusCode::OK),
        ("/items/1/a", StatusCode::OK),
        ("/items/1/b", StatusCode::OK),
        ("/recovered", StatusCode::OK),
        ("/recovered", StatusCode::TOO_MANY_REQUESTS),
    ];
    for (path, expected) in cases {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        assert_eq!(app.clone().oneshot(request).await.unwrap().status(), expected, "{path}");
    }
}

#[tracing::instrument]
#[rate_limited(key = "instrumented", limit = "1/1h", fallback = 0)]
async fn instrumented_first(id: u64) -> u64 {
    id
}

#[rate_limited(key = "instrumented 2", limit = "1/1h", fallback = Ok(0), recover = |_| Ok(1))]
#[tracing::instrument(skip(id), fields(name = "x"), err)]
async fn instrumented_last(id: u64) -> Result<u64, String> {
    if id == 0 { Err("zero".to_owned()) } else { Ok(id) }
}

#[tracing::instrument]
#[rate_limited(key = "instrumented 3", limit = "1/1h", fallback = 0)]
fn instrumented_sync(id: u64) -> u64 {
    id
}

#[async_trait::async_trait]
trait Instrumented {
    async fn run(&self, id: u64) -> u64;
}

#[async_trait::async_trait]
impl Instrumented for u8 {
    #[tracing::instrument(skip(self))]
    #[rate_limited(key = "instrumented 4", limit = "1/1h", fallback = 0)]
    async fn run(&self, id: u64) -> u64 {
        id + u64::from(*self)
    }
}

#[async_trait::async_trait]
impl Instrumented for u16 {
    #[rate_limited(key = "instrumented 5", limit = "1/1h", fallback = 0)]
    #[tracing::instrument(skip(self))]
    async fn run(&self, id: u64) -> u64 {
        id + u64::from(*self)
    }
}

#[rate_limited(key = "rt", limit = "1/1h", fallback = later().await)]
#[tokio::main(flavor = "current_thread")]
async fn with_a_runtime() -> u64 {
    tokio::task::yield_now().await;
    1
}

async fn later() -> u64 {
    2
}

#[must_use]
#[deprecated = "old"]
#[rate_limited(key = "k", limit = "1/1h", fallback = 2)]
#[inline(always)]
#[doc(alias = "other")]
#[cfg_attr(all(), rate_limited(key = "j", limit = "9/1h", fallback = 3))]
fn attributed() -> u64 {
    1
}

#[track_caller]
#[rate_limited(key = "caller", limit = "1/1h", fallback = std::panic::Location::caller().line())]
fn called_from() -> u32 {
    std::panic::Location::caller().line()
}

#[expect(unused_variables, reason = "the parameter is unused")]
#[rate_limited(key = "k", limit = "1/1h", fallback = ())]
fn expects(unused: u64) {}

#[allow(dead_code)]
#[cfg(any())]
#[rate_limited(nonsense)]
fn configured_away() {}

macro_rules! handlers {
    ($($(#[$meta:meta])* $name:ident($argument:ident: $ty:ty) -> $returned:ty = $key:literal, $fallback:expr, $body:block;)*) => {
        $($(#[$meta])*
        #[rate_limited(key = $key, limit = "1/1h", fallback = $fallback)]
        async fn $name($argument: $ty) -> $returned $body)*
    };
}

handlers! {
    /// Documented.
    #[must_use]
    one(id: u64) -> u64 = "macro {id}", id + 1, { id };
    two(id: String) -> Result<String, String> = "macro 2 {id}", |_| Err(id), { Ok(id) };
}

async fn check() {
    axum_handlers().await;
    assert_eq!((instrumented_first(7).await, instrumented_first(7).await), (7, 0));
    assert_eq!((instrumented_last(0).await, instrumented_last(7).await), (Ok(1), Ok(0)));
    assert_eq!((instrumented_sync(7), instrumented_sync(7)), (7, 0));
    assert_eq!((1_u8.run(7).await, 1_u8.run(7).await), (8, 0));
    assert_eq!((1_u16.run(7).await, 1_u16.run(7).await), (8, 0));
    #[expect(deprecated)]
    let called = (attributed(), attributed());
    assert_eq!(called, (1, 2));
    let line = line!();
    assert_eq!((called_from(), called_from()), (line + 1, line + 1));
    expects(1);
    assert_eq!((one(7).await, one(7).await), (7, 8));
    let text = || "text".to_owned();
    assert_eq!((two(text()).await, two(text()).await), (Ok(text()), Err(text())));
}

fn main() {
    let limiter = Limiter::memory();
    // `#[tokio::main]` starts a runtime, so these calls cannot run in `check`. They use the default limiter.
    assert_eq!(with_a_runtime(), 1);
    assert_eq!(with_a_runtime(), 2);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(limiter.scope(check()));
}
