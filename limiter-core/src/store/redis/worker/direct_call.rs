//! Direct calls: a caller writes the command of a lone call itself, and the worker does the rest.
//!
//! So the server is at work while the worker's thread wakes up.

use std::slice;
use std::sync::Arc;

use crate::local::LocalState;
use crate::local::denial_cache::CacheVersion;
use crate::request::{Request, SlottedRequests};
use crate::store::redis::connection::gate::ServerGate;
use crate::store::redis::connection::gate_table::GateTable;
use crate::store::redis::naming::Naming;
use crate::store::redis::pipelined::DirectReply;
use crate::store::redis::script::command::{BatchEntry, Command, Commands, KeyNames};
use crate::store::redis::script::redis_key::RedisKeys;

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

/// Sends calls on their callers' threads.
#[derive(Debug)]
pub(crate) struct DirectSender {
    gates: Arc<GateTable>,
    naming: Arc<Naming>,
    commands: Commands,
    local: LocalState,
}

impl DirectSender {
    pub(crate) fn new(gates: Arc<GateTable>, naming: Arc<Naming>, commands: Commands, local: LocalState) -> Self {
        Self { gates, naming, commands, local }
    }

    /// Sends a call, if its server's connection is idle and the store decides alone. It does not wait.
    pub(super) fn send(&self, request: &Request<'_>, keys: &RedisKeys) -> Option<Box<DirectCall>> {
        let gate = self.gates.gate_if(keys.first_slot(), |gate| gate.direct_writer.is_free())?;
        let mut names = KeyNames::default();
        names.push_with(|text| keys.write_name(request, &self.naming, text));
        let entry = BatchEntry::of_call(request);
        let command = self.commands.batch(names, &[entry]);
        let mut version = None;
        let reply = gate.direct_writer.write(|digest| {
            // The worker takes the write half back before it records that this server has failed.
            let requests = SlottedRequests { requests: slice::from_ref(request), slots: keys.slots() };
            if self.local.standby.is_consulted(requests) {
                return None;
            }
            version = self.local.denials.version(request);
            Some(command.with_digest(digest))
        })?;
        Some(Box::new(DirectCall { gate, command, entry, version, reply }))
    }
}
