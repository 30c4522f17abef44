//! The server, or the nodes of a cluster, that a limiter counts on.

use std::fmt;

use crate::store::redis::server::Server;
use crate::store::slot;

/// Where the counts are.
pub(crate) enum Endpoint {
    Single(Box<Server>),
    /// Any nodes of a cluster, to ask about the others.
    Cluster(Vec<Server>),
}

impl Endpoint {
    /// Slots that keys are spread over.
    pub(crate) fn slots(&self) -> u16 {
        match self {
            Self::Single(_) => 1,
            Self::Cluster(_) => slot::COUNT,
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// The same for a worker of its own, without what others have found out or wait for.
    pub(crate) fn anew(&self) -> Self {
        match self {
            Self::Single(server) => Self::Single(Box::new(server.anew())),
            Self::Cluster(seeds) => Self::Cluster(seeds.iter().map(Server::anew).collect()),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(server) => f.debug_tuple("One").field(server).finish(),
            Self::Cluster(seeds) => f.debug_tuple("Cluster").field(seeds).finish(),
        }
    }
}
