//! Where calls go: to the one server, or to the node of a cluster that serves their slot.

use std::rc::Rc;
use std::sync::Arc;

use tokio::task::spawn_local;

use super::cluster::Cluster;
use super::failure::Redirect;
use super::link::{Link, Terms};
use super::routes::Routes;
use super::{Connected, Place};
use crate::Error;
use crate::store::Question;
use crate::store::naming::Naming;

pub(super) enum Nodes {
    One(Rc<Link>),
    Cluster(Rc<Cluster>, Arc<Naming>),
}

/// The questions of one decision that one script call can answer, by their places in it.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) slot: u16,
    pub(super) places: Vec<usize>,
}

impl Nodes {
    /// Begins to connect; tells whoever waits how that went.
    pub(super) fn start(
        place: Place,
        routes: Arc<Routes>,
        naming: Arc<Naming>,
        terms: &Rc<Terms>,
        connected: Option<Connected>,
    ) -> Self {
        match place {
            Place::One(server) => {
                let link = Rc::new(Link::new(*server, Rc::clone(terms), routes.first()));
                spawn_local(Rc::clone(&link).keep(connected));
                Self::One(link)
            }
            Place::Cluster(seeds) => {
                let cluster = Rc::new(Cluster::new(seeds, Rc::clone(terms), routes));
                spawn_local(Rc::clone(&cluster).keep(connected));
                Self::Cluster(cluster, naming)
            }
        }
    }

    /// Waits while very first connections are being made; gives why one is missing.
    pub(super) async fn ready(&self, parts: &[Part]) -> Result<(), Error> {
        for part in parts {
            self.serving(part.slot).await?.wire().await?;
        }
        Ok(())
    }

    /// The slot of what a question counts; there is only one where there is only one server.
    pub(super) fn slot(&self, question: &Question<'_>) -> u16 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(_, naming) => naming.slot(question),
        }
    }

    /// Who answers for a slot, if it can be asked just now.
    pub(super) fn up(&self, slot: u16) -> Option<Rc<Link>> {
        let link = match self {
            Self::One(link) => Rc::clone(link),
            Self::Cluster(cluster, _) => cluster.owner(slot)?,
        };
        link.is_up().then_some(link)
    }

    /// Who answers for a slot. Waits while nothing is known of the cluster yet, and never again.
    pub(super) async fn serving(&self, slot: u16) -> Result<Rc<Link>, Error> {
        match self {
            Self::One(link) => Ok(Rc::clone(link)),
            Self::Cluster(cluster, _) => cluster.serving(slot).await,
        }
    }

    pub(super) fn are_of_a_cluster(&self) -> bool {
        matches!(self, Self::Cluster(..))
    }

    /// Who is to be asked instead; `None` if nobody is, or not at once.
    pub(super) fn instead(&self, redirect: Redirect, said_by: &Link) -> Option<Rc<Link>> {
        match self {
            Self::One(_) => None,
            Self::Cluster(cluster, _) => cluster.instead(redirect, said_by),
        }
    }

    /// The parts of a decision, in the order of their first questions.
    pub(super) fn parts(&self, questions: &[Question<'_>]) -> Vec<Part> {
        let whole = Part { slot: 0, places: (0..questions.len()).collect() };
        let Self::Cluster(..) = self else { return vec![whole] };
        let mut parts = whole.split_by(|place| self.slot(&questions[place]));
        parts.iter_mut().for_each(|part| part.slot = self.slot(&questions[part.places[0]]));
        parts
    }
}

impl Part {
    /// Parts of the same slot, one for each value of `key_of`, in the order of their first questions.
    pub(super) fn split_by<K: PartialEq>(&self, key_of: impl Fn(usize) -> K) -> Vec<Self> {
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

    /// The questions of this part of a decision.
    pub(super) fn of<'a>(&self, questions: &[Question<'a>]) -> Vec<Question<'a>> {
        self.places.iter().map(|place| questions[*place]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_part_keep_its_slot_and_the_order_of_the_questions() {
        let part = Part { slot: 7, places: vec![4, 1, 6, 3] };
        let parts = part.split_by(|place| place % 2);
        let parts: Vec<_> = parts.iter().map(|part| (part.slot, &part.places[..])).collect();
        assert_eq!(parts, [(7, &[4, 6][..]), (7, &[1, 3][..])]);
    }
}
