//! The routes of HTTP and JSON.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode};
use axum::routing::any;
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::access::Access;
use crate::reports::{Outcome, ProtocolReports};
use crate::service::{Answer, Call, DEFAULT_TTL, DecisionService, Target};
use answer::{AnswerBody, SlotBody, UsageBody, add_fields, json_response, status_of, uncached};
use auth::PartHeaders;
use body::{
    BatchBody, ChargeBody, CheckBody, EnterBody, LeaveBody, MAX_BATCH_BYTES, MAX_BODY_BYTES, RefundBody, SettleBody,
    TargetOnlyBody, parse, read_json,
};
pub(crate) use connection::{TOO_MANY_CONNECTIONS, serve_connection};
use problem::{HttpProblem, ProblemBody};
use right::Right;

mod answer;
pub(crate) mod auth;
mod body;
mod connection;
mod ops;
mod problem;
mod right;
#[cfg(test)]
mod openapi_tests;

/// The most checks of a batch.
const MAX_BATCH: usize = 1_000;

/// The routes with what they need.
pub(crate) struct HttpService {
    pub(crate) service: Arc<DecisionService>,
    pub(crate) access: Access,
    pub(crate) part_headers: PartHeaders,
    /// Returns the text of `/metrics`; `None` without that route.
    pub(crate) render_metrics: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    /// True once the server ends: it is not ready, and each answer closes its connection.
    pub(crate) is_ending: Arc<AtomicBool>,
    reports: ProtocolReports,
}

/// The routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Check,
    Peek,
    Charge,
    Settle,
    Refund,
    Enter,
    Leave,
    Batch,
    Reset,
    Auth,
    Rules,
    OpenApi,
    Healthz,
    Readyz,
    Metrics,
}

/// A route with its path, its name in series, its methods and the rights that it needs.
struct RouteEntry {
    route: Route,
    path: &'static str,
    name: &'static str,
    methods: &'static [Method],
    /// The methods as the header `Allow` has them.
    allow: &'static str,
    right: Right,
}

const GET: (&[Method], &str) = (&[Method::GET, Method::HEAD], "GET, HEAD");
const POST: (&[Method], &str) = (&[Method::POST], "POST");
const GET_OR_POST: (&[Method], &str) = (&[Method::GET, Method::POST], "GET, POST");

const fn entry(
    route: Route,
    path: &'static str,
    name: &'static str,
    (methods, allow): (&'static [Method], &'static str),
    right: Right,
) -> RouteEntry {
    RouteEntry { route, path, name, methods, allow, right }
}

/// The routes, in the order of [`Route`].
const ROUTES: [RouteEntry; 15] = [
    entry(Route::Check, "/v1/check", "check", POST, Right::Caller),
    entry(Route::Peek, "/v1/peek", "peek", POST, Right::Caller),
    entry(Route::Charge, "/v1/charge", "charge", POST, Right::Caller),
    entry(Route::Settle, "/v1/settle", "settle", POST, Right::Caller),
    entry(Route::Refund, "/v1/refund", "refund", POST, Right::Caller),
    entry(Route::Enter, "/v1/enter", "enter", POST, Right::Caller),
    entry(Route::Leave, "/v1/leave", "leave", POST, Right::Caller),
    entry(Route::Batch, "/v1/batch", "batch", POST, Right::Caller),
    entry(Route::Reset, "/v1/reset", "reset", POST, Right::Operator),
    entry(Route::Auth, "/v1/auth", "auth", GET_OR_POST, Right::Caller),
    entry(Route::Rules, "/v1/rules", "rules", GET, Right::Operator),
    entry(Route::OpenApi, "/openapi.json", "openapi", GET, Right::Anyone),
    entry(Route::Healthz, "/healthz", "healthz", GET, Right::Anyone),
    entry(Route::Readyz, "/readyz", "readyz", GET, Right::Anyone),
    entry(Route::Metrics, "/metrics", "metrics", GET, Right::Caller),
];

type Answered = Result<(Response<Body>, Outcome), HttpProblem>;

impl HttpService {
    pub(crate) fn new(service: Arc<DecisionService>) -> Self {
        Self {
            service,
            access: Access::default(),
            part_headers: PartHeaders::default(),
            render_metrics: None,
            is_ending: Arc::default(),
            reports: ProtocolReports::new("http", ROUTES.iter().map(|entry| entry.name)),
        }
    }

    /// Returns the routes.
    pub(crate) fn into_router(self) -> Router {
        let http = Arc::new(self);
        let mut router = Router::new();
        for (index, entry) in ROUTES.iter().enumerate() {
            let http = Arc::clone(&http);
            let handler = any(move |request: Request<Body>| {
                let http = Arc::clone(&http);
                async move { http.serve(index, request).await }
            });
            router = router.route(entry.path, handler);
        }
        router.fallback(async |request: Request<Body>| Ok::<_, Infallible>(unknown_path(request.uri().path())))
    }

    /// Answers a request of the route at this place.
    async fn serve(&self, index: usize, request: Request<Body>) -> Response<Body> {
        let (entry, began) = (&ROUTES[index], Instant::now());
        let answered = match self.check(entry, &request) {
            Ok(()) => self.answer(entry.route, request).await,
            Err(problem) => Err(problem),
        };
        let (mut response, outcome) = answered.unwrap_or_else(|problem| {
            let outcome = if problem.status.is_server_error() { Outcome::Failed } else { Outcome::Invalid };
            self.reports.refused(index, problem.code());
            (problem.into_response(), outcome)
        });
        self.reports.record(index, outcome, began.elapsed());
        if self.is_ending.load(Ordering::Relaxed) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn check(&self, entry: &RouteEntry, request: &Request<Body>) -> Result<(), HttpProblem> {
        if !entry.methods.contains(request.method()) {
            return Err(HttpProblem::of_method(entry.allow));
        }
        entry.right.check(&self.access, request.headers())
    }

    async fn answer(&self, route: Route, request: Request<Body>) -> Answered {
        // The future of a check and of a gateway's request stays small: it is moved a few times.
        match route {
            Route::Check => self.check_one(request).await,
            Route::Peek => Box::pin(self.peek(request)).await,
            Route::Charge => Box::pin(self.charge(request)).await,
            Route::Settle => Box::pin(self.settle(request)).await,
            Route::Refund => Box::pin(self.refund(request)).await,
            Route::Enter => Box::pin(self.enter(request)).await,
            Route::Leave => Box::pin(self.leave(request)).await,
            Route::Batch => Box::pin(self.batch(request)).await,
            Route::Reset => Box::pin(self.reset(request)).await,
            Route::Auth => auth::answer(&self.service, &self.part_headers, &request.into_parts().0).await,
            Route::Rules => Ok((ops::rules(&self.service), Outcome::Ok)),
            Route::OpenApi => Ok((ops::openapi(), Outcome::Ok)),
            Route::Healthz => Ok((ops::healthz(), Outcome::Ok)),
            Route::Readyz => Ok((ops::readyz(&self.service, self.is_ending.load(Ordering::Relaxed)), Outcome::Ok)),
            Route::Metrics => ops::metrics(self.render_metrics.as_deref()).map(|response| (response, Outcome::Ok)),
        }
    }

    async fn check_one(&self, request: Request<Body>) -> Answered {
        let bytes = read_json(request, MAX_BODY_BYTES).await?;
        let mut body: CheckBody<'_> = parse(&bytes)?;
        let (target, plan) = body.take_call()?;
        let call = Call {
            plan: &plan,
            cost: body.cost.unwrap_or(1),
            max_wait: Duration::from_millis(body.wait_ms.unwrap_or(0)),
            wants_receipt: body.receipt.unwrap_or(false),
            ..Call::new(target)
        };
        Ok(decision_response(&self.service.check(&call).await?, &call))
    }

    async fn peek(&self, request: Request<Body>) -> Answered {
        let bytes = read_json(request, MAX_BODY_BYTES).await?;
        let (target, plan) = parse::<TargetOnlyBody<'_>>(&bytes)?.take_call()?;
        let call = Call { plan: &plan, ..Call::new(target) };
        let answer = self.service.peek(&call).await?;
        let (response, outcome) = decision_response(&answer, &call);
        Ok((with_status(response, StatusCode::OK), outcome))
    }

    /// Charges in a task of its own: a client that leaves cannot stop it halfway.
    async fn charge(&self, request: Request<Body>) -> Answered {
        let bytes = read_json(request, MAX_BODY_BYTES).await?;
        let service = Arc::clone(&self.service);
        let charge = tokio::spawn(async move {
            let mut body: ChargeBody<'_> = parse(&bytes)?;
            let (target, plan) = body.take_call()?;
            let call = Call { plan: &plan, cost: body.cost, ..Call::new(target) };
            Ok::<_, HttpProblem>(json_response(StatusCode::OK, &UsageBody::from(&service.charge(&call).await?)))
        });
        Ok((charge.await.map_err(|_| panicked())??, Outcome::Ok))
    }

    async fn settle(&self, request: Request<Body>) -> Answered {
        let bytes = read_json(request, MAX_BODY_BYTES).await?;
        let mut body: SettleBody<'_> = parse(&bytes)?;
        let (target, plan) = body.take_call()?;
        let call = Call { plan: &plan, ..Call::new(target) };
        let usage = self.service.settle(&call, &body.receipt.0, body.actual).await?;
        Ok((json_response(StatusCode::OK, &UsageBody::from(&usage)), Outcome::Ok))
    }

    async fn refund(&self, request: Request<Body>) -> Answered {
        let bytes = read_json(request, MAX_BODY_BYTES).await?;
        let mut body: RefundBody<'_> = parse(&bytes)?;
        let (target, plan) = body.take_call()?;
        let call = Call { plan: &plan, ..Call::new(target) };
        self.service.refund(&call, &body.receipt.0).await?;
        Ok((json_response(StatusCode::OK, &RefundAnswer { refunded: true }), Outcome::Ok))
    }

    async fn enter(&self, request: Request<Body>) -> Answered {
        let bytes = read_json(request, MAX_BODY_BYTES).await?;
        let mut body: EnterBody<'_> = parse(&bytes)?;
        let ttl = body.ttl_ms.map_or(DEFAULT_TTL, Duration::from_millis);
        if let Some(slot) = &body.slot {
            if body.has_call() {
                let detail = "`slot` renews a slot, and goes with `ttl_ms` alone: remove the other fields";
                return Err(HttpProblem::invalid("invalid-target", "The call has no clear target", detail));
            }
            let renewed = self.service.renew(&slot.0, ttl)?;
            return Ok((json_response(StatusCode::OK, &SlotBody::from(&renewed)), Outcome::Ok));
        }
        let (target, plan) = body.take_call()?;
        let call = Call {
            plan: &plan,
            cost: body.cost.unwrap_or(1),
            max_wait: Duration::from_millis(body.wait_ms.unwrap_or(0)),
            wants_receipt: body.receipt.unwrap_or(false),
            ..Call::new(target)
        };
        Ok(decision_response(&self.service.enter(&call, ttl).await?, &call))
    }

    async fn leave(&self, request: Request<Body>) -> Answered {
        let bytes = read_json(request, MAX_BODY_BYTES).await?;
        self.service.leave(&parse::<LeaveBody<'_>>(&bytes)?.slot.0)?;
        Ok((json_response(StatusCode::OK, &LeaveAnswer { left: true }), Outcome::Ok))
    }

    async fn batch(&self, request: Request<Body>) -> Answered {
        let bytes = read_json(request, MAX_BATCH_BYTES).await?;
        let checks = parse::<BatchBody<'_>>(&bytes)?.checks;
        if checks.len() > MAX_BATCH {
            let detail = format!("a batch must have at most {MAX_BATCH} checks, got {}", checks.len());
            return Err(HttpProblem::invalid("batch-too-long", "The batch has too many checks", detail));
        }
        let answers = join_all(checks.into_iter().map(|check| self.check_of_batch(check))).await;
        let items = answers.iter().map(|answer| match answer {
            Ok((answer, is_of_rule)) => BatchItem::Answer(AnswerBody::of_batch(answer, *is_of_rule)),
            Err(problem) => BatchItem::Problem(problem),
        });
        let body = BatchAnswer { answers: items.collect() };
        Ok((json_response(StatusCode::OK, &body), Outcome::Ok))
    }

    async fn check_of_batch(&self, check: &RawValue) -> Result<(Answer, bool), ProblemBody> {
        let mut body = parse::<CheckBody<'_>>(check.get().as_bytes()).map_err(HttpProblem::into_body)?;
        let (target, plan) = body.take_call().map_err(HttpProblem::into_body)?;
        let call = Call {
            plan: &plan,
            cost: body.cost.unwrap_or(1),
            max_wait: Duration::from_millis(body.wait_ms.unwrap_or(0)),
            wants_receipt: body.receipt.unwrap_or(false),
            ..Call::new(target)
        };
        let answer = self.service.check(&call).await;
        let is_of_rule = matches!(call.target, Target::Rule { .. });
        answer.map(|answer| (answer, is_of_rule)).map_err(|problem| HttpProblem::from(problem).into_body())
    }

    async fn reset(&self, request: Request<Body>) -> Answered {
        let bytes = read_json(request, MAX_BODY_BYTES).await?;
        let (target, plan) = parse::<TargetOnlyBody<'_>>(&bytes)?.take_call()?;
        self.service.reset(&Call { plan: &plan, ..Call::new(target) }).await?;
        Ok((json_response(StatusCode::OK, &ResetAnswer { reset: true }), Outcome::Ok))
    }
}

#[derive(Serialize)]
struct RefundAnswer {
    refunded: bool,
}

#[derive(Serialize)]
struct LeaveAnswer {
    left: bool,
}

#[derive(Serialize)]
struct ResetAnswer {
    reset: bool,
}

#[derive(Serialize)]
struct BatchAnswer<'a> {
    answers: Vec<BatchItem<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum BatchItem<'a> {
    Answer(AnswerBody<'a>),
    Problem(&'a ProblemBody),
}

/// Returns the response to a decision, with its fields.
fn decision_response(answer: &Answer, call: &Call<'_>) -> (Response<Body>, Outcome) {
    let is_of_rule = matches!(call.target, Target::Rule { .. });
    let mut response = json_response(status_of(answer), &AnswerBody::new(answer, is_of_rule));
    add_fields(answer, response.headers_mut());
    (response, if answer.is_allowed() { Outcome::Ok } else { Outcome::Denied })
}

fn with_status(mut response: Response<Body>, status: StatusCode) -> Response<Body> {
    *response.status_mut() = status;
    response
}

fn panicked() -> HttpProblem {
    let title = "The server has failed";
    HttpProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal-error", title, "the call has panicked")
}

fn unknown_path(path: &str) -> Response<Body> {
    let shown: Cow<'_, str> = path.chars().take(100).collect();
    let problem = HttpProblem::new(
        StatusCode::NOT_FOUND,
        "unknown-path",
        "There is no such path",
        format!("`{shown}` is no path"),
    );
    let nearest = limiter_syntax::nearest(path, ROUTES.iter().map(|entry| entry.path));
    uncached(
        match nearest {
            Some(nearest) => problem.suggest(format!("write `{nearest}`")),
            None => problem,
        }
        .into_response(),
    )
}
