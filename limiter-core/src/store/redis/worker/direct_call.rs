//! The part of a direct call that its caller has sent.

use std::sync::Arc;

use crate::local::denial_cache::CacheVersion;
use crate::store::redis::connection::gate_table::ServerGate;
use crate::store::redis::pipelined::DirectReply;
use crate::store::redis::script::command::{BatchEntry, Command};

/// The part of a call that its caller has sent.
#[derive(Debug)]
pub(crate) struct DirectCall {
    pub(super) gate: Arc<ServerGate>,
    pub(super) command: Command,
    pub(super) entry: BatchEntry,
    /// The version of the denial cache before the call was sent.
    pub(super) version: Option<CacheVersion>,
    pub(super) reply: DirectReply,
}

impl DirectCall {
    /// Returns whether its caller is to poll for the reply.
    pub(crate) fn is_polled(&self) -> bool {
        self.reply.is_polled()
    }
}
