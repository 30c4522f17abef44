//! The health protocol of gRPC.

use std::pin::Pin;

use futures_util::Stream;
use futures_util::stream;
use tonic::codegen::BoxFuture;
use tonic::server::{ServerStreamingService, UnaryService};
use tonic::{Request, Response, Status};

use super::GrpcService;
use super::messages::{HealthCheckRequest, HealthCheckResponse, ServingStatus};

/// The services that have a health: all of them together, and each by its name.
const SERVICES: [&str; 3] = ["", "envoy.service.ratelimit.v3.RateLimitService", "grpc.health.v1.Health"];

/// A call of `Check`.
pub(super) struct HealthCheck(pub(super) GrpcService);

/// A call of `Watch`.
pub(super) struct HealthWatch(pub(super) GrpcService);

impl UnaryService<HealthCheckRequest> for HealthCheck {
    type Response = HealthCheckResponse;
    type Future = BoxFuture<Response<HealthCheckResponse>, Status>;

    fn call(&mut self, request: Request<HealthCheckRequest>) -> Self::Future {
        let status = match is_known(request.get_ref()) {
            true => Ok(Response::new(response(status_of(*self.0.is_serving.borrow())))),
            false => Err(Status::not_found("no service has this name")),
        };
        Box::pin(async move { status })
    }
}

impl ServerStreamingService<HealthCheckRequest> for HealthWatch {
    type Response = HealthCheckResponse;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    /// Sends the status now, and each later one until the server ends.
    fn call(&mut self, request: Request<HealthCheckRequest>) -> Self::Future {
        let is_known = is_known(request.get_ref());
        let mut watched = self.0.is_serving.clone();
        watched.mark_changed();
        let statuses = stream::unfold(watched, move |mut watched| async move {
            watched.changed().await.ok()?;
            let status = if is_known { status_of(*watched.borrow_and_update()) } else { ServingStatus::ServiceUnknown };
            Some((Ok(response(status)), watched))
        });
        Box::pin(async move { Ok(Response::new(Box::pin(statuses) as Self::ResponseStream)) })
    }
}

fn is_known(request: &HealthCheckRequest) -> bool {
    SERVICES.contains(&&*request.service)
}

fn status_of(is_serving: bool) -> ServingStatus {
    if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
