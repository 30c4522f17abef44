//! Ready routes for operators: readiness, metrics and the limits in force.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use limiter_core::{HealthState, Limiter, service};

/// Returns routes for operators: `/ready`, and those that [`Ops`] adds.
///
/// ```
/// # use limiter_core as rate_limited; use limiter_tower::ops;
/// use axum::Router;
/// use rate_limited::Limiter;
///
/// # const TOKEN: &str = "Bearer 6f1d8a02c7b94e35";
/// let limiter = Limiter::memory();
/// let routes = ops(&limiter)
///     .metrics(|| "# the text of your exporter\n".to_owned()) // such as `handle.render()`
///     .limits(|parts| parts.headers.get("authorization").is_some_and(|sent| sent == TOKEN));
/// let app: Router = Router::new().merge(routes.into_router());
/// ```
#[must_use]
pub fn ops(limiter: &Limiter) -> Ops {
    Ops {
        limiter: limiter.clone(),
        is_ready: Arc::new(|state| state == HealthState::Up),
        metrics: None,
        authorize: None,
    }
}

/// The routes of [`ops`].
///
/// | route | answer |
/// |---|---|
/// | `/ready` | 200 or 503 with `{"ready":true,"state":"up"}`. It names no server: [`Limiter::health`] does |
/// | `/metrics` | the text of [`metrics`](Ops::metrics) |
/// | `/limits` | the rules with their limits, a line of JSON for each: see [`limits`](Ops::limits) |
///
/// The answers are not to be cached. A layer around the whole router limits these routes too: merge them outside of it.
pub struct Ops {
    limiter: Limiter,
    is_ready: Arc<dyn Fn(HealthState) -> bool + Send + Sync>,
    metrics: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    authorize: Option<Arc<Authorize>>,
}

type Authorize = dyn Fn(&Parts) -> bool + Send + Sync;

impl Ops {
    /// Sets in which states of the store `/ready` answers with 200. The default is [`Up`](HealthState::Up) alone.
    ///
    /// With the policies [`Standby`](limiter_core::OnError::Standby) and [`Open`](limiter_core::OnError::Open) a service
    /// works without the store: `ready_if(|_| true)`, and an alert instead. Otherwise one Redis takes all instances out of
    /// service at once.
    #[must_use]
    pub fn ready_if(mut self, is_ready: impl Fn(HealthState) -> bool + Send + Sync + 'static) -> Self {
        self.is_ready = Arc::new(is_ready);
        self
    }

    /// Adds `/metrics` with the text that your exporter renders, in the format of Prometheus. The feature `metrics` counts
    /// decisions by the crate `metrics`, whose recorder the program chooses.
    ///
    /// A name of a rule may be in it, and no key.
    #[must_use]
    pub fn metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.metrics = Some(Arc::new(render));
        self
    }

    /// Adds `/limits` for requests that `authorize` permits; others get 403. Without this method there is no such route.
    ///
    /// Each line is `{"rule":"search","keys":["search:{user}"],"limits":["5/10s"],"mode":"enforce","origin":"attribute"}`:
    /// the limits in force for keys without an override, and the level that they come from. `packed` and `block` follow, if the
    /// rule has them. Overrides are left out, since their keys may name customers.
    ///
    /// Compare a secret in constant time, as the crate `subtle` does.
    #[must_use]
    pub fn limits(mut self, authorize: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.authorize = Some(Arc::new(authorize));
        self
    }

    /// Returns the routes, to [merge](Router::merge) into those of the service.
    pub fn into_router<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        let Self { limiter, is_ready, metrics, authorize } = self;
        let mut router = Router::new();
        if let Some(authorize) = authorize {
            let limiter = limiter.clone();
            router = router.route("/limits", get(async move |request: Request| limits(&limiter, &*authorize, request)));
        }
        if let Some(render) = metrics {
            let answer = async move || answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", render());
            router = router.route("/metrics", get(answer));
        }
        router.route("/ready", get(async move || ready(&limiter, &*is_ready)))
    }
}

impl fmt::Debug for Ops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limiter, metrics, authorize, .. } = self;
        let (metrics, limits) = (metrics.is_some(), authorize.is_some());
        f.debug_struct("Ops").field("limiter", limiter).field("metrics", &metrics).field("limits", &limits).finish()
    }
}

fn ready(limiter: &Limiter, is_ready: &(dyn Fn(HealthState) -> bool + Send + Sync)) -> Response {
    let state = limiter.health().state;
    let is_ready = is_ready(state);
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answer(status, "application/json", format!(r#"{{"ready":{is_ready},"state":"{state}"}}"#))
}

fn limits(limiter: &Limiter, authorize: &Authorize, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    if !authorize(&parts) {
        return answer(StatusCode::FORBIDDEN, "text/plain; charset=utf-8", "not permitted\n".to_owned());
    }
    answer(StatusCode::OK, "application/x-ndjson", service::inventory(limiter))
}

fn answer(status: StatusCode, content_type: &'static str, body: String) -> Response {
    (status, [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store")], body).into_response()
}
