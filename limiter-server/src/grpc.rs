//! Envoy's rate limit service, and the health protocol of gRPC.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::access::Access;
use crate::envoy::EnvoyConfig;
use crate::reports::ProtocolReports;
use crate::service::DecisionService;

mod decide;
mod health;
mod held;
mod matching;
mod messages;
mod response;
mod server;
mod status;
#[cfg(test)]
mod tests;

use decide::RateLimits;
use held::HeldHits;
pub(crate) use server::serve;

/// The services of gRPC. A clone is another handle.
#[derive(Clone)]
pub(crate) struct GrpcService {
    limits: Arc<RateLimits>,
    access: Access,
    reports: Arc<ProtocolReports>,
    /// The server is ready. A connection ends its watches of health when the sender is gone.
    is_serving: watch::Receiver<bool>,
}

impl GrpcService {
    /// Creates the services. Each call of Envoy needs a token if there is one.
    pub(crate) fn new(
        service: Arc<DecisionService>,
        config: Arc<EnvoyConfig>,
        access: Access,
        is_serving: watch::Receiver<bool>,
    ) -> Self {
        let limits = Arc::new(RateLimits { service, config, held: HeldHits::default() });
        let reports = Arc::new(ProtocolReports::new("grpc", ["ShouldRateLimit"]));
        Self { limits, access, reports, is_serving }
    }
}

impl fmt::Debug for GrpcService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcService").field("limits", &self.limits).finish_non_exhaustive()
    }
}
