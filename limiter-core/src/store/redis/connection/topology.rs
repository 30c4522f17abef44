//! The server of each slot: one server, or the nodes of a cluster. A script call goes to the owner of its slot, and on to
//! the node that a redirect names.
//!
//! A call that may have been applied is never sent again. A call is sent again only after an error that proves that the
//! script did not run: NOSCRIPT (the server loads the script, see `managed.rs`), MOVED and ASK (the call goes to another
//! node). After TRYAGAIN no node has all keys of the call. Such a call ends and has to be split by key.

use std::rc::Rc;
use std::sync::Arc;

use redis::Value;
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::cluster::Cluster;
use super::gate_table::{GateTable, ServerGate};
use super::in_flight_batches::InFlightPermit;
use super::managed::{Attempt, MAX_IMMEDIATE_RETRIES, ManagedConnection, retry_pause};
use super::server_connection::{ConnectionContext, ServerConnection};
use crate::Error;
use crate::request::Request;
use crate::store::redis::command_error::{CommandError, Redirect};
use crate::store::redis::endpoint::{Endpoint, ReadySignal};
use crate::store::redis::naming::RedisKey;
use crate::store::redis::pipelined::DirectReply;
use crate::store::redis::script::action::Action;
use crate::store::redis::script::command::Command;

pub(crate) enum Topology {
    Single(Rc<ManagedConnection>),
    Cluster(Rc<Cluster>),
}

/// The reason why a script call has no usable reply.
pub(crate) enum CallError {
    /// The slot is moving, and no node has all keys. The script did not run.
    NeedsSplit(Error),
    Failed(Error),
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NeedsSplit(error) | CallError::Failed(error) => error,
        }
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Topology {
    /// Starts to connect. `ready` gets the result of the first attempt.
    pub(crate) fn start(
        endpoint: Endpoint,
        gates: Arc<GateTable>,
        context: &Rc<ConnectionContext>,
        ready: Option<ReadySignal>,
    ) -> Self {
        let name = endpoint.to_string();
        match endpoint {
            Endpoint::Single(server) => {
                let gate = gates.default_gate();
                let connection = Rc::new(ManagedConnection::new(*server, Rc::clone(context), gate));
                spawn_local(Rc::clone(&connection).reconnect_loop(ready));
                Self::Single(connection)
            }
            Endpoint::Cluster(seeds) => {
                let cluster = Rc::new(Cluster::new(seeds, name, Rc::clone(context), gates));
                spawn_local(Rc::clone(&cluster).refresh_loop(ready));
                Self::Cluster(cluster)
            }
        }
    }

    /// Waits until the first attempts to connect to the owners of these slots are over.
    ///
    /// # Errors
    /// The reason why a slot has no connected owner.
    pub(crate) async fn ready(&self, groups: &[SlotGroup]) -> Result<(), Error> {
        for group in groups {
            self.owner_of(group.slot).await?.connected().await?;
        }
        Ok(())
    }

    /// The owner of a slot, if it is connected.
    pub(crate) fn connected_owner_of(&self, slot: u16) -> Option<Rc<ManagedConnection>> {
        let owner = match self {
            Self::Single(connection) => Rc::clone(connection),
            Self::Cluster(cluster) => cluster.known_owner_of(slot)?,
        };
        owner.is_up().then_some(owner)
    }

    /// The owner of a slot. Waits only for the first map of a cluster.
    pub(crate) async fn owner_of(&self, slot: u16) -> Result<Rc<ManagedConnection>, Error> {
        match self {
            Self::Single(connection) => Ok(Rc::clone(connection)),
            Self::Cluster(cluster) => cluster.owner_of(slot).await,
        }
    }

    /// The server that has this gate, if the topology still contains it.
    pub(crate) fn server_of_gate(&self, gate: &Arc<ServerGate>) -> Option<Rc<ManagedConnection>> {
        match self {
            Self::Single(connection) => Some(Rc::clone(connection)),
            Self::Cluster(cluster) => cluster.node_of_gate(gate),
        }
    }

    /// Calls a script and returns the value of its reply. The caller enforces the deadline.
    ///
    /// `permit` is that of its batch. It is released once the call goes to another server than that of the queue.
    pub(crate) async fn call(
        &self,
        command: &Command,
        attempt: &Attempt,
        permit: &mut Option<Rc<InFlightPermit>>,
    ) -> Result<Value, CallError> {
        let node = self.owner_of(command.slot()).await?;
        match node.call(command, attempt, false).await? {
            Ok(value) => Ok(value),
            Err(error) => self.call_again(error, node, command, attempt, permit).await,
        }
    }

    /// Waits for the reply to a command that a caller has written to `node`, and goes on as [`call`](Self::call) does.
    ///
    /// `connection` is the one that it was written to; `None` if that is lost. An error says nothing about a later one.
    pub(crate) async fn receive_direct(
        &self,
        (node, connection): (Rc<ManagedConnection>, Option<ServerConnection>),
        reply: DirectReply,
        command: &Command,
        attempt: &Attempt,
        permit: &mut Option<Rc<InFlightPermit>>,
    ) -> Result<Value, CallError> {
        let Some(connection) = connection else {
            // The reply may have come before.
            return CommandError::check_reply(reply.received().await).map_err(|error| Error::from(error).into());
        };
        match node.receive_direct(connection, reply, command, attempt).await? {
            Ok(value) => Ok(value),
            Err(error) => self.call_again(error, node, command, attempt, permit).await,
        }
    }

    /// Sends a command again after a redirect, which proves that the script did not run. Any other error ends the call.
    async fn call_again(
        &self,
        mut error: CommandError,
        mut node: Rc<ManagedConnection>,
        command: &Command,
        attempt: &Attempt,
        permit: &mut Option<Rc<InFlightPermit>>,
    ) -> Result<Value, CallError> {
        let mut redirects = 0;
        loop {
            redirects += 1;
            let is_asking = match error.redirect().filter(|_| self.is_cluster()) {
                // It may take long until one node has all keys.
                Some(Redirect::TryAgain) if command.has_several_keys() => {
                    return Err(CallError::NeedsSplit(error.into()));
                }
                Some(Redirect::TryAgain) => {
                    // A packed count may be decided by its hash alone, unless it has moved out. The owner of the slot is to
                    // state where the hash is: the node that has asked for both keys may have neither.
                    permit.take();
                    attempt.declared.retry_without();
                    sleep(retry_pause(redirects)).await;
                    node = self.owner_of(command.slot()).await?;
                    false
                }
                Some(redirect) => {
                    permit.take();
                    let is_asking = matches!(redirect, Redirect::Ask { .. });
                    node = match self.follow_redirect(redirect, &node) {
                        Some(other) => other,
                        None => return Err(Error::from(error).into()),
                    };
                    if redirects > MAX_IMMEDIATE_RETRIES {
                        sleep(retry_pause(redirects - MAX_IMMEDIATE_RETRIES)).await;
                    }
                    is_asking
                }
                None => return Err(node.report_reply(error, attempt).into()),
            };
            match node.call(command, attempt, is_asking).await? {
                Ok(value) => return Ok(value),
                Err(next) => error = next,
            }
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// The node that a redirect from `sender` names; `None` where the redirect names none.
    pub(crate) fn follow_redirect(
        &self,
        redirect: Redirect,
        sender: &ManagedConnection,
    ) -> Option<Rc<ManagedConnection>> {
        match self {
            Self::Single(_) => None,
            Self::Cluster(cluster) => cluster.follow_redirect(redirect, sender),
        }
    }
}

// The requests of one decision that one script call can serve.

/// Requests that one script call decides, by their indices in the decision: their keys are in one slot.
#[derive(Clone)]
pub(crate) struct SlotGroup {
    pub(crate) slot: u16,
    pub(crate) indices: Vec<usize>,
}

impl SlotGroup {
    /// The groups of a decision by an action, in the order of their first requests.
    pub(crate) fn of_decision(action: &Action, requests: &[Request<'_>], keys: &[RedisKey]) -> Vec<Self> {
        let all = Self { slot: keys.first().map_or(0, |key| key.slot), indices: (0..keys.len()).collect() };
        // The script of packed counts has no blocks.
        let is_packed = |request: &Request<'_>| request.limit.packed().is_some();
        let has_block = |request: &Request<'_>| request.block.is_some() && !is_packed(request);
        let is_apart = action.uses_blocks() && requests.iter().any(has_block);
        let group = |index: usize| (keys[index].slot, is_apart && is_packed(&requests[index]));
        if all.indices.iter().all(|index| group(*index) == group(0)) {
            return vec![all];
        }
        let mut groups = all.split_by(group);
        groups.iter_mut().for_each(|group| group.slot = keys[group.indices[0]].slot);
        groups
    }

    /// Groups of the same slot, one for each value of `key_of`, in the order of their first requests.
    pub(crate) fn split_by<K: PartialEq>(&self, key_of: impl Fn(usize) -> K) -> Vec<Self> {
        let mut groups: Vec<(K, Self)> = Vec::new();
        for index in self.indices.iter().copied() {
            let key = key_of(index);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, group)) => group.indices.push(index),
                None => groups.push((key, Self { slot: self.slot, indices: vec![index] })),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// The requests of this group, out of all requests of the decision.
    pub(crate) fn select<'a>(&self, requests: &[Request<'a>]) -> Vec<Request<'a>> {
        self.indices.iter().map(|index| requests[*index]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_keeps_the_slot_and_the_order_of_the_requests() {
        let group = SlotGroup { slot: 7, indices: vec![4, 1, 6, 3] };
        let groups = group.split_by(|index| index % 2);
        let groups: Vec<_> = groups.iter().map(|group| (group.slot, &group.indices[..])).collect();
        assert_eq!(groups, [(7, &[4, 6][..]), (7, &[1, 3][..])]);
    }
}
