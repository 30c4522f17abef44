//! Where calls go: to the one server, or to the node of a cluster that serves their slot.

use std::rc::Rc;
use std::sync::Arc;

use tokio::task::spawn_local;

use crate::Error;
use crate::request::Request;
use crate::store::naming::Naming;
use crate::store::redis::command_error::Redirect;
use crate::store::redis::connection::breaker_table::BreakerTable;
use crate::store::redis::connection::cluster::Cluster;
use crate::store::redis::connection::context::ConnectionContext;
use crate::store::redis::connection::managed::ManagedConnection;
use crate::store::redis::{Endpoint, ReadySignal};

pub(crate) enum Topology {
    One(Rc<ManagedConnection>),
    Cluster(Rc<Cluster>, Arc<Naming>),
}

/// The requests of one decision that one script call can answer, by their places in it.
#[derive(Clone)]
pub(crate) struct SlotGroup {
    pub(crate) slot: u16,
    pub(crate) places: Vec<usize>,
}

impl Topology {
    /// Begins to connect; tells whoever waits how that went.
    pub(crate) fn start(
        place: Endpoint,
        routes: Arc<BreakerTable>,
        naming: Arc<Naming>,
        terms: &Rc<ConnectionContext>,
        connected: Option<ReadySignal>,
    ) -> Self {
        match place {
            Endpoint::Single(server) => {
                let link = Rc::new(ManagedConnection::new(*server, Rc::clone(terms), routes.first()));
                spawn_local(Rc::clone(&link).keep(connected));
                Self::One(link)
            }
            Endpoint::Cluster(seeds) => {
                let cluster = Rc::new(Cluster::new(seeds, Rc::clone(terms), routes));
                spawn_local(Rc::clone(&cluster).keep(connected));
                Self::Cluster(cluster, naming)
            }
        }
    }

    /// Waits while very first connections are being made; gives why one is missing.
    pub(crate) async fn ready(&self, parts: &[SlotGroup]) -> Result<(), Error> {
        for part in parts {
            self.serving(part.slot).await?.wire().await?;
        }
        Ok(())
    }

    /// The slot of what a request counts; there is only one where there is only one server.
    pub(crate) fn slot(&self, request: &Request<'_>) -> u16 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(_, naming) => naming.slot(request),
        }
    }

    /// Who answers for a slot, if it can be asked just now.
    pub(crate) fn up(&self, slot: u16) -> Option<Rc<ManagedConnection>> {
        let link = match self {
            Self::One(link) => Rc::clone(link),
            Self::Cluster(cluster, _) => cluster.owner(slot)?,
        };
        link.is_up().then_some(link)
    }

    /// Who answers for a slot. Waits while nothing is known of the cluster yet, and never again.
    pub(crate) async fn serving(&self, slot: u16) -> Result<Rc<ManagedConnection>, Error> {
        match self {
            Self::One(link) => Ok(Rc::clone(link)),
            Self::Cluster(cluster, _) => cluster.serving(slot).await,
        }
    }

    pub(crate) fn are_of_a_cluster(&self) -> bool {
        matches!(self, Self::Cluster(..))
    }

    /// Who is to be asked instead; `None` if nobody is, or not at once.
    pub(crate) fn instead(&self, redirect: Redirect, said_by: &ManagedConnection) -> Option<Rc<ManagedConnection>> {
        match self {
            Self::One(_) => None,
            Self::Cluster(cluster, _) => cluster.instead(redirect, said_by),
        }
    }

    /// The parts of a decision, in the order of their first requests.
    pub(crate) fn parts(&self, requests: &[Request<'_>]) -> Vec<SlotGroup> {
        let whole = SlotGroup { slot: 0, places: (0..requests.len()).collect() };
        let Self::Cluster(..) = self else { return vec![whole] };
        let mut parts = whole.split_by(|place| self.slot(&requests[place]));
        parts.iter_mut().for_each(|part| part.slot = self.slot(&requests[part.places[0]]));
        parts
    }
}

impl SlotGroup {
    /// Parts of the same slot, one for each value of `key_of`, in the order of their first requests.
    pub(crate) fn split_by<K: PartialEq>(&self, key_of: impl Fn(usize) -> K) -> Vec<Self> {
        let mut parts: Vec<(K, Self)> = Vec::new();
        for place in self.places.iter().copied() {
            let key = key_of(place);
            match parts.iter_mut().find(|(known, _)| *known == key) {
                Some((_, part)) => part.places.push(place),
                None => parts.push((key, Self { slot: self.slot, places: vec![place] })),
            }
        }
        parts.into_iter().map(|(_, part)| part).collect()
    }

    /// The requests of this part of a decision.
    pub(crate) fn of<'a>(&self, requests: &[Request<'a>]) -> Vec<Request<'a>> {
        self.places.iter().map(|place| requests[*place]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_part_keep_its_slot_and_the_order_of_the_questions() {
        let part = SlotGroup { slot: 7, places: vec![4, 1, 6, 3] };
        let parts = part.split_by(|place| place % 2);
        let parts: Vec<_> = parts.iter().map(|part| (part.slot, &part.places[..])).collect();
        assert_eq!(parts, [(7, &[4, 6][..]), (7, &[1, 3][..])]);
    }
}
