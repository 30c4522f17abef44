//! A client that keeps to a limit of its own, and pauses when the server demands it.

use std::time::Duration;

use http::{Request, Response};
use rate_limited::tower::{HeldBody, OutgoingLayer};
use rate_limited::{Key, Limit};
use tonic::Status;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::transport::Channel;
use tonic_types::StatusExt;
use tower::{Layer, ServiceExt};

use crate::shop::quotes_client::QuotesClient;

/// Returns a client whose calls of each method keep to this limit. A call waits up to 5 s for its permit.
///
/// A call that is not sent has the status that a denial of a server has. So its caller needs no other code.
pub(crate) fn limited(
    channel: Channel,
    limit: Limit,
) -> QuotesClient<impl GrpcService<Body, ResponseBody = HeldBody<Body>> + Clone> {
    let layer = OutgoingLayer::new("shop", limit)
        .key_by(|request: &Request<Body>| Key::new("shop:").part(request.uri().path()))
        .pause_by(demanded_pause)
        .wait(Duration::from_secs(5));
    QuotesClient::new(layer.layer(channel).map_err(Status::from))
}

/// Returns the pause that a server demands: `RetryInfo` in the status of a call that failed at once.
fn demanded_pause(response: &Response<Body>) -> Option<Duration> {
    Status::from_header_map(response.headers())?.get_details_retry_info()?.retry_delay
}
