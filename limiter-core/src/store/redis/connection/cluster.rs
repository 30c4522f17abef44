//! The nodes of a cluster: a connection to each master, and the map of slots to their owners.
//!
//! The map is read at the start, whenever a connection is lost, and whenever a node reports that the map is out of
//! date. It is read repeatedly while the owner of a slot is down. Nothing else is retried or followed here: see
//! `topology.rs`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep, timeout};

use super::gate_table::{GateTable, ServerGate};
use super::managed::{ManagedConnection, with_jitter};
use super::server_connection::{ConnectionContext, ServerConnection};
use crate::health::HealthState;
use crate::store::redis::command_error::{CommandError, Redirect};
use crate::store::redis::endpoint::ReadySignal;
use crate::store::redis::health::ServerHealth;
use crate::store::redis::pipelined::ReplyBound;
use crate::store::redis::server::Server;
use crate::store::redis::slot;
use crate::{Error, ErrorKind};

pub(crate) struct Cluster {
    seeds: Vec<Server>,
    context: Rc<ConnectionContext>,
    gates: Arc<GateTable>,
    /// The gate of slots without a known owner.
    unowned: Arc<ServerGate>,
    map: RefCell<SlotMap>,
    migrations: SlotMigrations,
    map_changed: Notify,
    /// The index of the node that the next map is read from first.
    next_node: Cell<usize>,
    /// The health of the map: whether it can be read, and every slot has an owner.
    health: Rc<ServerHealth>,
}

struct SlotMap {
    /// The owner of each slot.
    owners: Vec<Option<Rc<ManagedConnection>>>,
    nodes: Vec<ClusterNode>,
    /// The error of the last read; `None` before the first, and after a success.
    problem: Option<Error>,
    is_known: bool,
}

struct ClusterNode {
    host: String,
    port: u16,
    connection: Rc<ManagedConnection>,
    task: AbortHandle,
}

/// The longest wait for the map of one node.
const MAX_MAP_READ: Duration = Duration::from_secs(1);
/// The longest wait for the maps of all nodes of the URL, one after the other.
const MAX_ALL_SEEDS: Duration = Duration::from_secs(3);
/// The pause between two reads of the map while a node is down. It grows: a replica is promoted soon or not at all.
const MIN_REFRESH_PAUSE: Duration = Duration::from_millis(200);
const MAX_REFRESH_PAUSE: Duration = Duration::from_secs(1);

impl Cluster {
    /// Creates a cluster without a map. `name` is for log lines and the health of the map.
    pub(crate) fn new(seeds: Vec<Server>, name: String, context: Rc<ConnectionContext>, gates: Arc<GateTable>) -> Self {
        let map = SlotMap { owners: vec![None; slot::COUNT.into()], nodes: Vec::new(), problem: None, is_known: false };
        let unowned = gates.default_gate();
        let (map, migrations) = (RefCell::new(map), SlotMigrations::default());
        let (map_changed, next_node) = (Notify::new(), Cell::new(0));
        let health = ServerHealth::new(&context.health, name);
        Self { seeds, context, gates, unowned, map, migrations, map_changed, next_node, health }
    }

    pub(crate) fn known_owner_of(&self, slot: u16) -> Option<Rc<ManagedConnection>> {
        self.map.borrow().owners[usize::from(slot)].clone()
    }

    /// The node that has this gate, unless it has left the cluster.
    pub(crate) fn node_of_gate(&self, gate: &Arc<ServerGate>) -> Option<Rc<ManagedConnection>> {
        let map = self.map.borrow();
        let mut nodes = map.nodes.iter().map(|node| &node.connection);
        nodes.find(|connection| connection.has_gate(gate)).map(Rc::clone)
    }

    /// The owner of a slot. Waits only for the first map.
    pub(crate) async fn owner_of(&self, slot: u16) -> Result<Rc<ManagedConnection>, Error> {
        loop {
            {
                let map = self.map.borrow();
                if let Some(owner) = &map.owners[usize::from(slot)] {
                    return Ok(Rc::clone(owner));
                }
                if map.is_known {
                    return Err(map.problem.clone().unwrap_or_else(no_owner));
                }
                if let Some(problem) = &map.problem {
                    return Err(problem.clone());
                }
            }
            self.map_changed.notified().await;
        }
    }

    /// The node that a redirect from `sender` names; `None` where it names none.
    pub(crate) fn follow_redirect(
        self: &Rc<Self>,
        redirect: Redirect,
        sender: &ManagedConnection,
    ) -> Option<Rc<ManagedConnection>> {
        let sender_host = sender.server().host();
        let host = |host: String| if host.is_empty() { sender_host.to_owned() } else { host };
        match redirect {
            Redirect::Moved { slot, host: to, port } => {
                let node = self.connection_to(&host(to), port);
                node.add_slot(slot);
                self.set_owners([(slot, Rc::clone(&node))]);
                self.migrations.moved(slot, &node);
                self.context.topology_changed.notify_one();
                Some(node)
            }
            Redirect::Ask { slot, host: to, port } => {
                let node = self.connection_to(&host(to), port);
                // Keys that have moved there are lost with it.
                node.add_slot(slot);
                if self.known_owner_of(slot).is_some_and(|owner| ptr::eq(&*owner, sender)) {
                    self.migrations.ask(slot, &node);
                }
                Some(node)
            }
            Redirect::TryAgain => None,
        }
    }

    /// Keeps the map up to date.
    ///
    /// `ready` gets the result of the first attempt. With it the loop ends if that attempt fails.
    pub(crate) async fn refresh_loop(self: Rc<Self>, mut ready: Option<ReadySignal>) {
        let mut pause = MIN_REFRESH_PAUSE;
        loop {
            match self.read_map().await {
                Ok(ranges) => {
                    self.apply(&ranges);
                    if let Some(ready) = ready.take() {
                        let reached = self.connect_any().await;
                        let failed = reached.is_err();
                        ready.send(reached);
                        if failed {
                            return;
                        }
                    }
                }
                Err(error) => {
                    if let Some(ready) = ready.take() {
                        return ready.send(Err(error));
                    }
                    self.unowned.breaker.open(error.clone());
                    self.health.set_failed(&error);
                    self.map.borrow_mut().problem = Some(error);
                    self.map_changed.notify_waiters();
                }
            }
            if self.is_whole() {
                pause = MIN_REFRESH_PAUSE;
                self.context.topology_changed.notified().await;
            }
            sleep(with_jitter(pause)).await;
            pause = (pause * 9 / 8).min(MAX_REFRESH_PAUSE);
        }
    }

    /// Returns whether every slot has an owner that is not down.
    fn is_whole(&self) -> bool {
        let map = self.map.borrow();
        map.problem.is_none() && map.owners.iter().all(|owner| owner.as_ref().is_some_and(|node| !node.is_down()))
    }

    /// Connects to any master.
    async fn connect_any(&self) -> Result<(), Error> {
        let nodes: Vec<_> = self.map.borrow().nodes.iter().map(|node| Rc::clone(&node.connection)).collect();
        let mut reached = Err(Error::new(ErrorKind::Unavailable, "the cluster has no master: no slot is assigned"));
        for node in nodes {
            reached = node.connected().await.map(drop);
            if reached.is_ok() {
                break;
            }
        }
        reached
    }

    /// Reads the map from a connected node, or else from a seed.
    async fn read_map(&self) -> Result<Vec<SlotRange>, Error> {
        let next_node = self.next_node.replace(self.next_node.get().wrapping_add(1));
        let mut nodes: Vec<_> = self.map.borrow().nodes.iter().map(|node| Rc::clone(&node.connection)).collect();
        nodes.retain(|node| node.is_up());
        if !nodes.is_empty() {
            let start = next_node % nodes.len();
            nodes.rotate_left(start);
        }
        for node in nodes {
            if let Ok(connection) = node.connected().await
                && let Ok(Ok(ranges)) = timeout(MAX_MAP_READ, request_map(&connection, node.server())).await
                && !ranges.is_empty()
            {
                return Ok(ranges);
            }
        }
        let mut problem = Error::new(
            ErrorKind::Config,
            "`url` must have at least one node of the cluster, got none: write `redis-cluster://host:port`",
        );
        let max_time = MAX_MAP_READ.min(MAX_ALL_SEEDS / u32::try_from(self.seeds.len()).unwrap_or(u32::MAX).max(1));
        for seed in &self.seeds {
            let attempt = async {
                let connection = seed.open(max_time, Arc::default()).await?;
                let connection = ServerConnection::new(connection, Arc::default(), self.context.deadline, None);
                request_map(&connection, seed).await
            };
            match timeout(max_time, attempt).await {
                // It may have left the cluster, or not have joined it yet.
                Ok(Ok(ranges)) if ranges.is_empty() => {
                    problem = Error::new(ErrorKind::Unavailable, format!("{seed} knows of no assigned slot"));
                }
                Ok(Ok(ranges)) => return Ok(ranges),
                Ok(Err(error)) => problem = error,
                Err(_) => {
                    problem = Error::new(ErrorKind::Unavailable, format!("{seed} did not answer within {max_time:?}"));
                }
            }
        }
        Err(problem)
    }

    /// Applies a map.
    fn apply(self: &Rc<Self>, ranges: &[SlotRange]) {
        let owners: Vec<_> = ranges.iter().map(|range| (range, self.connection_to(&range.host, range.port))).collect();
        let targets = self.migrations.targets();
        {
            let mut map = self.map.borrow_mut();
            (map.problem, map.is_known) = (None, true);
            map.nodes.retain(|node| {
                let mut serving = owners.iter().map(|(_, owner)| owner).chain(targets.iter().map(|(_, target)| target));
                let serves = serving.any(|connection| Rc::ptr_eq(connection, &node.connection));
                if !serves {
                    node.task.abort();
                }
                serves
            });
            for node in &map.nodes {
                let of_node = owners.iter().filter(|(_, owner)| Rc::ptr_eq(owner, &node.connection));
                node.connection.set_slots(of_node.map(|(range, _)| range.slots.clone()).collect());
            }
        }
        targets.iter().for_each(|(slot, node)| node.add_slot(*slot));
        let named = owners.iter().flat_map(|(range, node)| range.slots.clone().map(move |slot| (slot, node)));
        let (outdated, current): (Vec<_>, Vec<_>) =
            named.partition(|(slot, node)| self.migrations.contradicts(*slot, node));
        self.set_owners(current.into_iter().map(|(slot, node)| (slot, Rc::clone(node))));
        if !outdated.is_empty() {
            self.context.topology_changed.notify_one();
        }
        self.remove_owners(&owners);
        self.unowned.breaker.open(no_owner());
        if self.map.borrow().owners.iter().all(Option::is_some) {
            self.health.set_up();
        } else {
            self.health.set_failed_as(HealthState::NotServing, &no_owner());
        }
        self.map_changed.notify_waiters();
    }

    /// Sets the owners of slots. Unless a slot was migrated, the counters of its owner before may be lost.
    fn set_owners(&self, owners: impl IntoIterator<Item = (u16, Rc<ManagedConnection>)>) {
        let (mut changed, mut failed) = (Vec::new(), Vec::new());
        let mut map = self.map.borrow_mut();
        for (slot, node) in owners {
            let owner = &mut map.owners[usize::from(slot)];
            if !owner.as_ref().is_some_and(|owner| Rc::ptr_eq(owner, &node)) {
                if owner.is_some() && !self.migrations.is_migrated(slot, &node) {
                    push_slot(&mut failed, slot);
                }
                changed.push((slot, node.gate()));
                *owner = Some(node);
            }
        }
        self.report_data_loss(&failed);
        self.gates.assign(changed.into_iter());
    }

    /// Removes the owners of slots that the map assigns to no node.
    fn remove_owners(&self, owners: &[(&SlotRange, Rc<ManagedConnection>)]) {
        let (mut unowned, mut failed) = (Vec::new(), Vec::new());
        let mut served = vec![false; slot::COUNT.into()];
        owners.iter().flat_map(|(range, _)| range.slots.clone()).for_each(|slot| served[usize::from(slot)] = true);
        let mut map = self.map.borrow_mut();
        for ((slot, served), owner) in (0..).zip(served).zip(map.owners.iter_mut()) {
            if !served {
                if owner.take().is_some() {
                    // The next owner need not have the counters of this one.
                    push_slot(&mut failed, slot);
                }
                unowned.push((slot, Arc::clone(&self.unowned)));
            }
        }
        self.report_data_loss(&failed);
        self.gates.assign(unowned.into_iter());
    }

    /// Reports to the local state that the counters of these slots may be lost, before calls are sent to new owners.
    fn report_data_loss(&self, slots: &[RangeInclusive<u16>]) {
        if !slots.is_empty() {
            self.context.local.server_failed(slots);
            self.context.slots.server_failed(slots);
        }
    }

    /// The connection to a node; a new one if there is none.
    fn connection_to(self: &Rc<Self>, host: &str, port: u16) -> Rc<ManagedConnection> {
        let mut map = self.map.borrow_mut();
        if let Some(node) = map.nodes.iter().find(|node| node.host == host && node.port == port) {
            return Rc::clone(&node.connection);
        }
        let server = self.seeds[0].other_node(host, port);
        let node = Rc::new(ManagedConnection::new(server, Rc::clone(&self.context), Arc::default()));
        node.set_slots(Vec::new());
        let task = spawn_local(Rc::clone(&node).reconnect_loop(None)).abort_handle();
        map.nodes.push(ClusterNode { host: host.to_owned(), port, connection: Rc::clone(&node), task });
        node
    }
}

fn no_owner() -> Error {
    Error::new(ErrorKind::Unavailable, "the cluster has no node for the key's slot")
}

async fn request_map(connection: &ServerConnection, server: &Server) -> Result<Vec<SlotRange>, Error> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let reply = connection.send_within(&command, ReplyBound::Long).await.map_err(|error| explain(error, server))?;
    let ranges = decode_slots(&reply).ok_or_else(|| {
        Error::new(ErrorKind::Protocol, format!("{server} sent an unexpected reply to CLUSTER SLOTS"))
    })?;
    let with_host = |range: SlotRange| match range.host.is_empty() {
        true => SlotRange { host: server.host().to_owned(), ..range },
        false => range,
    };
    Ok(ranges.into_iter().map(with_host).collect())
}

fn explain(error: CommandError, server: &Server) -> Error {
    if error.is_cluster_disabled() {
        let problem = format!("{server} is not a node of a cluster: write `redis://` instead of `redis-cluster://`");
        return Error::new(ErrorKind::Config, problem);
    }
    error.into()
}

// Slots that move from one node to another.
//
// A new owner of a slot may lack its counters: the master failed, or the slot was assigned anew. A migrated slot lacks
// none: its keys went to the new owner one by one, and calls on them were redirected there by ASK before the slot
// itself moved. So an ASK proves that the new owner has the counters of the old one.

/// The latest redirect of each slot.
#[derive(Default)]
pub(crate) struct SlotMigrations(RefCell<BTreeMap<u16, SlotMigration>>);

struct SlotMigration {
    to: Rc<ManagedConnection>,
    redirect: RedirectKind,
    at: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RedirectKind {
    Ask,
    Moved,
}

/// The time for which an ASK proves a migration.
const ASK_VALIDITY: Duration = Duration::from_secs(10);
/// The time for which a MOVED outweighs a map. The map may come from a node that has not applied the move yet.
const MOVED_VALIDITY: Duration = Duration::from_secs(1);

impl SlotMigrations {
    /// Records that the owner of a slot redirects calls on some of its keys to another node.
    pub(crate) fn ask(&self, slot: u16, to: &Rc<ManagedConnection>) {
        self.record(slot, to, RedirectKind::Ask);
    }

    /// Records that a slot has another owner.
    pub(crate) fn moved(&self, slot: u16, to: &Rc<ManagedConnection>) {
        self.record(slot, to, RedirectKind::Moved);
    }

    /// Returns whether the slot was migrated to this node.
    pub(crate) fn is_migrated(&self, slot: u16, to: &Rc<ManagedConnection>) -> bool {
        self.0.borrow().get(&slot).is_some_and(|latest| {
            latest.redirect == RedirectKind::Ask && latest.is_valid() && Rc::ptr_eq(&latest.to, to)
        })
    }

    /// Returns whether a map that names this owner is older than a MOVED.
    pub(crate) fn contradicts(&self, slot: u16, owner: &Rc<ManagedConnection>) -> bool {
        self.0.borrow().get(&slot).is_some_and(|latest| {
            latest.redirect == RedirectKind::Moved && latest.is_valid() && !Rc::ptr_eq(&latest.to, owner)
        })
    }

    /// The nodes that have keys of moving slots, also where the map does not name them.
    pub(crate) fn targets(&self) -> Vec<(u16, Rc<ManagedConnection>)> {
        let mut moves = self.0.borrow_mut();
        moves.retain(|_, latest| latest.is_valid());
        moves.iter().map(|(slot, latest)| (*slot, Rc::clone(&latest.to))).collect()
    }

    fn record(&self, slot: u16, to: &Rc<ManagedConnection>, redirect: RedirectKind) {
        let latest = SlotMigration { to: Rc::clone(to), redirect, at: Instant::now() };
        self.0.borrow_mut().insert(slot, latest);
    }
}

impl SlotMigration {
    fn is_valid(&self) -> bool {
        self.at.elapsed()
            < match self.redirect {
                RedirectKind::Ask => ASK_VALIDITY,
                RedirectKind::Moved => MOVED_VALIDITY,
            }
    }
}

// The reply of CLUSTER SLOTS: ranges of slots and their masters.

/// A range of slots and its master.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) slots: RangeInclusive<u16>,
    /// Empty: the host of the node that replied.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Adds a slot to ranges, and extends the last one if the slot follows it.
pub(crate) fn push_slot(ranges: &mut Vec<RangeInclusive<u16>>, slot: u16) {
    match ranges.last_mut() {
        Some(last) if last.end().checked_add(1) == Some(slot) => *last = *last.start()..=slot,
        _ => ranges.push(slot..=slot),
    }
}

/// Decodes the reply; `None` if it is not one.
pub(crate) fn decode_slots(reply: &Value) -> Option<Vec<SlotRange>> {
    let Value::Array(entries) = reply else { return None };
    entries.iter().map(decode_range).collect()
}

fn decode_range(entry: &Value) -> Option<SlotRange> {
    let Value::Array(fields) = entry else { return None };
    let [first, last, Value::Array(master), ..] = &fields[..] else { return None };
    let [host, port, ..] = &master[..] else { return None };
    let slot = |value: &Value| port_or_slot(value).filter(|slot| *slot < slot::COUNT);
    let host = match host {
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        Value::SimpleString(host) => host.clone(),
        Value::Nil => String::new(),
        _ => return None,
    };
    // A node that does not know its own name.
    let host = if host == "?" { String::new() } else { host };
    Some(SlotRange { slots: slot(first)?..=slot(last)?, host, port: port_or_slot(port)? })
}

fn port_or_slot(value: &Value) -> Option<u16> {
    if let Value::Int(number) = value { u16::try_from(*number).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(first: i64, last: i64, host: Value) -> Value {
        let node = |host, port| Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node(host, 7000), node(Value::Nil, 7001)])
    }

    #[test]
    fn decodes_masters_and_their_slots() {
        let host = || Value::BulkString(b"10.0.0.1".to_vec());
        let reply = Value::Array(vec![entry(0, 5460, host()), entry(5461, 16_383, Value::Nil)]);
        let range = |slots, host: &str| SlotRange { slots, host: host.to_owned(), port: 7000 };
        assert_eq!(decode_slots(&reply), Some(vec![range(0..=5460, "10.0.0.1"), range(5461..=16_383, "")]));
        assert_eq!(decode_slots(&Value::Array(vec![])), Some(vec![]));
    }

    #[test]
    fn slots_in_a_row_are_one_range() {
        let mut ranges = Vec::new();
        [0, 1, 2, 7, 16_383, 8, 9].into_iter().for_each(|slot| push_slot(&mut ranges, slot));
        assert_eq!(ranges, [0..=2, 7..=7, 16_383..=16_383, 8..=9]);
    }

    #[test]
    fn rejects_other_replies() {
        let wrong =
            [Value::Nil, Value::Int(1), Value::Array(vec![Value::Int(1)]), Value::Array(vec![Value::Array(vec![])])];
        for reply in wrong.into_iter().chain([
            entry(0, 16_384, Value::Nil),
            entry(-1, 1, Value::Nil),
            entry(0, 1, Value::Int(1)),
        ]) {
            assert_eq!(decode_slots(&Value::Array(vec![reply.clone()])), None, "{reply:?}");
        }
    }
}
