//! Envoy's rate limit service, and the health protocol of gRPC.

use std::fmt;
use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HeaderMap};
use tokio::sync::watch;

use crate::envoy::EnvoyConfig;
use crate::reports::ProtocolReports;
use crate::service::DecisionService;

mod decide;
mod health;
mod held;
mod messages;
mod server;
mod status;
#[cfg(test)]
mod tests;

use decide::RateLimits;
use held::HeldHits;
pub(crate) use server::serve_connection;

/// The services of gRPC. A clone is another handle.
#[derive(Clone)]
pub(crate) struct GrpcService {
    limits: Arc<RateLimits>,
    is_token: Option<IsToken>,
    reports: Arc<ProtocolReports>,
    /// The server is ready. A connection ends its watches of health when the sender is gone.
    is_serving: watch::Receiver<bool>,
}

/// Compares a text with the token of the server.
pub(crate) type IsToken = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

impl GrpcService {
    /// Creates the services. Each call of Envoy needs a token if there is one.
    pub(crate) fn new(
        service: Arc<DecisionService>,
        config: Arc<EnvoyConfig>,
        is_token: Option<IsToken>,
        is_serving: watch::Receiver<bool>,
    ) -> Self {
        let limits = Arc::new(RateLimits { service, config, held: HeldHits::default() });
        let reports = Arc::new(ProtocolReports::new("grpc", ["ShouldRateLimit"]));
        Self { limits, is_token, reports, is_serving }
    }

    /// Returns whether the metadata of a call have the token, or none is needed.
    fn permits(&self, headers: &HeaderMap) -> bool {
        let Some(is_token) = &self.is_token else { return true };
        let sent = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        sent.and_then(|sent| sent.strip_prefix(b"Bearer ")).is_some_and(|sent| is_token(sent))
    }
}

impl fmt::Debug for GrpcService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcService").field("limits", &self.limits).finish_non_exhaustive()
    }
}
