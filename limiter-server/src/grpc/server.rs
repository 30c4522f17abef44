//! The calls of gRPC on a connection of HTTP/2.

use std::convert::Infallible;
use std::pin::pin;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::metadata::GRPC_CONTENT_TYPE;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::GrpcService;
use super::health::{HealthCheck, HealthWatch};
use super::messages::{self, RateLimitRequest, RateLimitResponse};
use crate::listen::{FirstBytes, Phase, Socket};
use crate::reports::Outcome;

/// The most bytes of a request. Envoy sends less than 1 kB.
const MAX_MESSAGE_BYTES: usize = 256 << 10;
/// The most calls of one connection at once, which its peer learns.
const MAX_STREAMS: u32 = 1_024;
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// The most streams that a peer may open and reset before the server has looked at them. One that resets more is cut off.
const MAX_RESET_STREAMS: usize = 20;
/// The time without a frame after which a connection is tested, and that for its answer.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(60);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// The bytes with which a client begins HTTP/2, and their time.
const PREFACE_BYTES: usize = 24;
const PREFACE_TIME: Duration = Duration::from_secs(10);
/// The time in which a request must be complete.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// The time of a caller that is left for the way of the answer.
const WAY_BACK: Duration = Duration::from_millis(2);

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// Serves a connection of the server's socket. A peer that does not begin HTTP/2 in time is cut off.
pub(crate) async fn serve(service: GrpcService, socket: Socket, mut phase: watch::Receiver<Phase>) {
    let stream = FirstBytes::new(socket, PREFACE_BYTES, PREFACE_TIME);
    let closing = async move {
        let _ = phase.wait_for(|phase| *phase == Phase::Closing).await;
    };
    serve_connection(service, stream, closing).await;
}

/// Serves a connection until its peer or the server ends it. Its errors are the peer's.
///
/// When `closing` is done, the peer gets GOAWAY, and the calls that run are answered.
pub(super) async fn serve_connection(
    service: GrpcService,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    closing: impl Future<Output = ()>,
) {
    let answer = service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.call(request).await) }
    });
    let mut server = http2::Builder::new(TokioExecutor::new());
    server
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .auto_date_header(false);
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), answer));
    let mut closing = pin!(closing);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = closing.as_mut() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

impl GrpcService {
    async fn call(self, request: Request<Incoming>) -> Response<Body> {
        let began = Instant::now();
        let path = request.uri().path();
        let is_health = path == CHECK || path == WATCH;
        if !is_health && self.access.check_bearer(request.headers()).is_err() {
            self.reports.record(0, Outcome::Invalid, began.elapsed());
            self.reports.refused(0, Code::Unauthenticated.description());
            return Status::unauthenticated("`authorization` must be `Bearer` and the token of this server")
                .into_http();
        }
        let mut response = match path {
            SHOULD_RATE_LIMIT => {
                let deadline = deadline_of(request.headers());
                let end = deadline.and_then(|deadline| began.checked_add(deadline));
                let mut grpc = grpc();
                let answer = grpc.unary(ShouldRateLimit { service: self.clone(), began, end }, request);
                in_time(deadline, answer).await.unwrap_or_else(|late| {
                    self.reports.record(0, Outcome::Failed, began.elapsed());
                    self.reports.refused(0, late.code().description());
                    late.into_http()
                })
            }
            CHECK => {
                let mut grpc = Grpc::new(ProstCodec::default()).max_decoding_message_size(MAX_MESSAGE_BYTES);
                in_time(None, grpc.unary(HealthCheck(self.clone()), request)).await.unwrap_or_else(Status::into_http)
            }
            WATCH => {
                let mut grpc = Grpc::new(ProstCodec::default()).max_decoding_message_size(MAX_MESSAGE_BYTES);
                grpc.server_streaming(HealthWatch(self.clone()), request).await
            }
            _ => Status::unimplemented("this server has `ShouldRateLimit` and `Health` alone").into_http(),
        };
        name_too_large(response.headers_mut());
        response
    }
}

/// Bounds the time of a request whose body may never end, and of one whose sender has gone.
///
/// # Errors
/// The time has passed.
async fn in_time(
    deadline: Option<Duration>,
    answer: impl Future<Output = Response<Body>>,
) -> Result<Response<Body>, Status> {
    let time = deadline.map_or(REQUEST_TIME, |deadline| deadline.saturating_add(WAY_BACK).min(REQUEST_TIME));
    timeout(time, answer).await.map_err(|_| Status::deadline_exceeded("the request was not complete in time"))
}

fn grpc() -> Grpc<ProstCodec<RateLimitResponse, RateLimitRequest>> {
    Grpc::new(ProstCodec::default()).max_decoding_message_size(MAX_MESSAGE_BYTES)
}

/// A call of `ShouldRateLimit`.
struct ShouldRateLimit {
    service: GrpcService,
    /// Its head had arrived.
    began: Instant,
    /// Its sender waits until then. `None` without a bound.
    end: Option<Instant>,
}

impl UnaryService<RateLimitRequest> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future = BoxFuture<tonic::Response<RateLimitResponse>, Status>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        let (service, began, end) = (self.service.clone(), self.began, self.end);
        Box::pin(async move {
            let answer = service.limits.answer(request.get_ref(), end).await;
            service.reports.record(0, outcome_of(&answer), began.elapsed());
            if let Err(status) = &answer {
                service.reports.refused(0, status.code().description());
            }
            answer.map(tonic::Response::new)
        })
    }
}

fn outcome_of(answer: &Result<RateLimitResponse, Status>) -> Outcome {
    match answer {
        Ok(answer) if answer.overall_code() == messages::Code::OverLimit => Outcome::Denied,
        Ok(_) => Outcome::Ok,
        Err(status) if status.code() == Code::Unavailable => Outcome::Failed,
        Err(_) => Outcome::Invalid,
    }
}

/// The time that the caller of a request waits, less that of the answer's way. `None` without a bound, or for no such text.
fn deadline_of(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if number.is_empty() || number.len() > 8 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    let time = match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    };
    Some(time.saturating_sub(WAY_BACK))
}

/// Replaces the status of a message that is too large: gRPC has `RESOURCE_EXHAUSTED` for it.
fn name_too_large(headers: &mut HeaderMap) {
    if let Some(status) = headers.get_mut("grpc-status").filter(|status| *status == "11") {
        *status = HeaderValue::from(Code::ResourceExhausted as i32);
    }
    headers.entry(CONTENT_TYPE).or_insert(GRPC_CONTENT_TYPE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_is_that_of_the_caller_less_the_way_back() {
        for (text, deadline) in [
            ("19m", Some(Duration::from_millis(17))),
            ("1m", Some(Duration::ZERO)),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600) - WAY_BACK)),
            ("20000u", Some(Duration::from_millis(18))),
            ("1S", Some(Duration::from_millis(998))),
            ("2M", Some(Duration::from_secs(120) - WAY_BACK)),
            ("5000000n", Some(Duration::from_millis(3))),
            ("", None),
            ("m", None),
            ("-1m", None),
            ("100000000m", None),
            ("19x", None),
            ("19µ", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", HeaderValue::from_bytes(text.as_bytes()).expect("a value"));
            assert_eq!(deadline_of(&headers), deadline, "{text}");
        }
        assert_eq!(deadline_of(&HeaderMap::new()), None);
    }
}
