//! The server, or the nodes of a cluster, that a limiter counts on.

use std::fmt;

use crate::store::redis::server::Server;
use crate::store::slot;

/// Where the counts are.
pub(crate) enum Endpoint {
    One(Box<Server>),
    /// Any nodes of a cluster, to ask about the others.
    Cluster(Vec<Server>),
}

impl Endpoint {
    /// Slots that keys are spread over.
    pub(crate) fn slots(&self) -> u16 {
        match self {
            Self::One(_) => 1,
            Self::Cluster(_) => slot::COUNT,
        }
    }

    /// The same for a worker of its own, without what others have found out or wait for.
    pub(crate) fn anew(&self) -> Self {
        match self {
            Self::One(server) => Self::One(Box::new(server.anew())),
            Self::Cluster(seeds) => Self::Cluster(seeds.iter().map(Server::anew).collect()),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(server) => f.debug_tuple("One").field(server).finish(),
            Self::Cluster(seeds) => f.debug_tuple("Cluster").field(seeds).finish(),
        }
    }
}
