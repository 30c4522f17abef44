//! The nodes of a cluster: a connection to each master, and a map of who serves which slot.
//!
//! The map is asked for at the start, whenever a connection is lost, and whenever a node says that it is out of date;
//! again and again while a slot's node is away. Nothing else is retried or followed here: see `exchange.rs`.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{sleep, timeout};

use crate::store::redis::command_error::{CommandError, Redirect};
use crate::store::redis::connection::breaker::Breaker;
use crate::store::redis::connection::breaker_table::BreakerTable;
use crate::store::redis::connection::context::ConnectionContext;
use crate::store::redis::connection::managed::{ManagedConnection, jittered};
use crate::store::redis::connection::server_connection::ServerConnection;
use crate::store::redis::{ReadySignal, Server};
use crate::store::slot;
use crate::{Error, ErrorKind};

mod migrations;
mod slots;

use migrations::SlotMigrations;
use slots::SlotRange;

pub(crate) struct Cluster {
    seeds: Vec<Server>,
    terms: Rc<ConnectionContext>,
    routes: Arc<BreakerTable>,
    /// Of slots that nobody is known to serve.
    unknown: Arc<Breaker>,
    map: RefCell<SlotMap>,
    moves: SlotMigrations,
    changed: Notify,
    /// Who is asked first for the next map: another each time.
    turn: Cell<usize>,
}

struct SlotMap {
    /// By slot.
    owners: Vec<Option<Rc<ManagedConnection>>>,
    nodes: Vec<ClusterNode>,
    /// Why nothing is known; `None` at first, and once something is.
    problem: Option<Error>,
    is_known: bool,
}

struct ClusterNode {
    host: String,
    port: u16,
    link: Rc<ManagedConnection>,
    keeper: AbortHandle,
}

/// Longest wait for a node's map.
const LOOK: Duration = Duration::from_secs(1);
/// Longest wait for the maps of all nodes of the URL, one after the other.
const ALL_SEEDS: Duration = Duration::from_secs(3);
/// Pause between two looks while a node is away; it grows, as replicas follow soon or not by themselves.
const AGAIN: Duration = Duration::from_millis(200);
const SELDOM: Duration = Duration::from_secs(1);

impl Cluster {
    pub(crate) fn new(seeds: Vec<Server>, terms: Rc<ConnectionContext>, routes: Arc<BreakerTable>) -> Self {
        let map = SlotMap { owners: vec![None; slot::COUNT.into()], nodes: Vec::new(), problem: None, is_known: false };
        let unknown = routes.first();
        let (map, moves, changed, turn) = (RefCell::new(map), SlotMigrations::default(), Notify::new(), Cell::new(0));
        Self { seeds, terms, routes, unknown, map, moves, changed, turn }
    }

    pub(crate) fn owner(&self, slot: u16) -> Option<Rc<ManagedConnection>> {
        self.map.borrow().owners[usize::from(slot)].clone()
    }

    pub(crate) async fn serving(&self, slot: u16) -> Result<Rc<ManagedConnection>, Error> {
        loop {
            {
                let map = self.map.borrow();
                if let Some(owner) = &map.owners[usize::from(slot)] {
                    return Ok(Rc::clone(owner));
                }
                if map.is_known {
                    return Err(map.problem.clone().unwrap_or_else(unserved));
                }
                if let Some(problem) = &map.problem {
                    return Err(problem.clone());
                }
            }
            self.changed.notified().await;
        }
    }

    pub(crate) fn instead(
        self: &Rc<Self>,
        redirect: Redirect,
        said_by: &ManagedConnection,
    ) -> Option<Rc<ManagedConnection>> {
        let here = said_by.server().host();
        let host = |host: String| if host.is_empty() { here.to_owned() } else { host };
        match redirect {
            Redirect::Moved { slot, host: to, port } => {
                let link = self.node(&host(to), port);
                link.also_serves(slot);
                self.hand_over([(slot, Rc::clone(&link))]);
                self.moves.moved(slot, &link);
                self.terms.lost.notify_one();
                Some(link)
            }
            Redirect::Ask { slot, host: to, port } => {
                let link = self.node(&host(to), port);
                // With it keys that have moved there would be lost.
                link.also_serves(slot);
                if self.owner(slot).is_some_and(|owner| ptr::eq(&*owner, said_by)) {
                    self.moves.ask(slot, &link);
                }
                Some(link)
            }
            Redirect::TryAgain => None,
        }
    }

    /// Keeps the map true. Ends only if the first look fails and somebody waits for it.
    pub(crate) async fn keep(self: Rc<Self>, mut first: Option<ReadySignal>) {
        let mut pause = AGAIN;
        loop {
            match self.look().await {
                Ok(shards) => {
                    self.draw(&shards);
                    if let Some(first) = first.take() {
                        let reached = self.reached().await;
                        let failed = reached.is_err();
                        first.send(reached);
                        if failed {
                            return;
                        }
                    }
                }
                Err(error) => {
                    if let Some(first) = first.take() {
                        return first.send(Err(error));
                    }
                    self.unknown.open(error.clone());
                    self.map.borrow_mut().problem = Some(error);
                    self.changed.notify_waiters();
                }
            }
            if self.is_whole() {
                pause = AGAIN;
                self.terms.lost.notified().await;
            }
            sleep(jittered(pause)).await;
            pause = (pause * 9 / 8).min(SELDOM);
        }
    }

    /// Whether every slot has a node that answers.
    fn is_whole(&self) -> bool {
        let map = self.map.borrow();
        map.problem.is_none() && map.owners.iter().all(|owner| owner.as_ref().is_some_and(|link| !link.is_down()))
    }

    /// Whether any master can be reached.
    async fn reached(&self) -> Result<(), Error> {
        let links: Vec<_> = self.map.borrow().nodes.iter().map(|node| Rc::clone(&node.link)).collect();
        let mut reached = Err(Error::new(ErrorKind::Unavailable, "the cluster has no master: no slot is assigned"));
        for link in links {
            reached = link.wire().await.map(drop);
            if reached.is_ok() {
                break;
            }
        }
        reached
    }

    /// Asks for the map, of nodes that answer or else of the seeds.
    async fn look(&self) -> Result<Vec<SlotRange>, Error> {
        let turn = self.turn.replace(self.turn.get().wrapping_add(1));
        let mut links: Vec<_> = self.map.borrow().nodes.iter().map(|node| Rc::clone(&node.link)).collect();
        links.retain(|link| link.is_up());
        if !links.is_empty() {
            let start = turn % links.len();
            links.rotate_left(start);
        }
        for link in links {
            if let Ok(wire) = link.wire().await
                && let Ok(Ok(shards)) = timeout(LOOK, ask(&wire, link.server())).await
                && !shards.is_empty()
            {
                return Ok(shards);
            }
        }
        let mut problem = Error::new(ErrorKind::Config, "a cluster's URL names at least one node");
        let look = LOOK.min(ALL_SEEDS / u32::try_from(self.seeds.len()).unwrap_or(u32::MAX).max(1));
        for seed in &self.seeds {
            let asked = async {
                let wire = ServerConnection::new(seed.open(look, Arc::default()).await?, Arc::default());
                ask(&wire, seed).await
            };
            match timeout(look, asked).await {
                // It may have been taken out of the cluster, or not be in it yet.
                Ok(Ok(shards)) if shards.is_empty() => {
                    problem = Error::new(ErrorKind::Unavailable, format!("{seed} knows of no slot that is assigned"));
                }
                Ok(Ok(shards)) => return Ok(shards),
                Ok(Err(error)) => problem = error,
                Err(_) => {
                    problem = Error::new(ErrorKind::Unavailable, format!("{seed} did not answer within {look:?}"));
                }
            }
        }
        Err(problem)
    }

    fn draw(self: &Rc<Self>, shards: &[SlotRange]) {
        let owners: Vec<_> = shards.iter().map(|shard| (shard, self.node(&shard.host, shard.port))).collect();
        let targets = self.moves.targets();
        {
            let mut map = self.map.borrow_mut();
            (map.problem, map.is_known) = (None, true);
            map.nodes.retain(|node| {
                let mut serving = owners.iter().map(|(_, link)| link).chain(targets.iter().map(|(_, link)| link));
                let serves = serving.any(|link| Rc::ptr_eq(link, &node.link));
                if !serves {
                    node.keeper.abort();
                }
                serves
            });
            for node in &map.nodes {
                let mine = owners.iter().filter(|(_, link)| Rc::ptr_eq(link, &node.link));
                node.link.serve(mine.map(|(shard, _)| shard.slots.clone()).collect());
            }
        }
        targets.iter().for_each(|(slot, link)| link.also_serves(*slot));
        let named = owners.iter().flat_map(|(shard, link)| shard.slots.clone().map(move |slot| (slot, link)));
        let (older, news): (Vec<_>, Vec<_>) = named.partition(|(slot, link)| self.moves.contradict(*slot, link));
        self.hand_over(news.into_iter().map(|(slot, link)| (slot, Rc::clone(link))));
        if !older.is_empty() {
            self.terms.lost.notify_one();
        }
        self.drop_orphans(&owners);
        self.unknown.open(unserved());
        self.changed.notify_waiters();
    }

    /// Gives slots to these owners. Unless they were migrated, the counts of the owners before may be lost.
    fn hand_over(&self, owners: impl IntoIterator<Item = (u16, Rc<ManagedConnection>)>) {
        let mut changed = Vec::new();
        let mut map = self.map.borrow_mut();
        for (slot, link) in owners {
            let owner = &mut map.owners[usize::from(slot)];
            if !owner.as_ref().is_some_and(|owner| Rc::ptr_eq(owner, &link)) {
                if owner.is_some() && !self.moves.is_migrated(slot, &link) {
                    self.terms.local.standby.server_failed(&[slot..=slot]);
                }
                changed.push((slot, link.breaker()));
                *owner = Some(link);
            }
        }
        self.routes.set(changed.into_iter());
    }

    /// Slots that nobody serves any more.
    fn drop_orphans(&self, owners: &[(&SlotRange, Rc<ManagedConnection>)]) {
        let mut orphans = Vec::new();
        let mut served = vec![false; slot::COUNT.into()];
        owners.iter().flat_map(|(shard, _)| shard.slots.clone()).for_each(|slot| served[usize::from(slot)] = true);
        let mut map = self.map.borrow_mut();
        for ((slot, served), owner) in (0..).zip(served).zip(map.owners.iter_mut()) {
            if !served {
                if owner.take().is_some() {
                    // Whoever gets it next need not know what this one knew.
                    self.terms.local.standby.server_failed(&[slot..=slot]);
                }
                orphans.push((slot, Arc::clone(&self.unknown)));
            }
        }
        self.routes.set(orphans.into_iter());
    }

    /// The connection to a node, which is made if there is none.
    fn node(self: &Rc<Self>, host: &str, port: u16) -> Rc<ManagedConnection> {
        let mut map = self.map.borrow_mut();
        if let Some(node) = map.nodes.iter().find(|node| node.host == host && node.port == port) {
            return Rc::clone(&node.link);
        }
        let server = self.seeds[0].other_node(host, port);
        let link = Rc::new(ManagedConnection::new(server, Rc::clone(&self.terms), Arc::default()));
        link.serve(Vec::new());
        let keeper = spawn_local(Rc::clone(&link).keep(None)).abort_handle();
        map.nodes.push(ClusterNode { host: host.to_owned(), port, link: Rc::clone(&link), keeper });
        link
    }
}

fn unserved() -> Error {
    Error::new(ErrorKind::Unavailable, "the cluster has no node for the key's slot")
}

async fn ask(wire: &ServerConnection, server: &Server) -> Result<Vec<SlotRange>, Error> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let reply = wire.send(command).await.map_err(|refusal| explain(refusal, server))?;
    let shards = slots::read(&reply).ok_or_else(|| {
        Error::new(ErrorKind::Protocol, format!("{server} answered CLUSTER SLOTS with something else"))
    })?;
    let here = |shard: SlotRange| match shard.host.is_empty() {
        true => SlotRange { host: server.host().to_owned(), ..shard },
        false => shard,
    };
    Ok(shards.into_iter().map(here).collect())
}

fn explain(refusal: CommandError, server: &Server) -> Error {
    if refusal.is_cluster_disabled() {
        let problem = format!("{server} is not a node of a cluster: write `redis://` instead of `redis-cluster://`");
        return Error::new(ErrorKind::Config, problem);
    }
    refusal.into()
}
