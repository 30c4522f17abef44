//! The state of one server that callers use on their own threads.

use std::sync::Arc;

use super::breaker::Breaker;
use crate::store::redis::pipelined::DirectWriter;

/// Stops calls while the server is down, and lets a call write to the server's connection while that is idle.
#[derive(Debug, Default)]
pub(crate) struct ServerGate {
    pub(crate) breaker: Breaker,
    pub(crate) direct_writer: Arc<DirectWriter>,
}
