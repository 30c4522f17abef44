//! How one node sees the cluster.

use std::ops::RangeInclusive;

use super::Cluster;

/// What `CLUSTER NODES` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View(Vec<Seen>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    name: String,
    flags: Vec<String>,
    master: Option<String>,
    slots: Vec<RangeInclusive<u16>>,
}

/// Of each node its name, slots and master.
pub(super) type Roles = Vec<(String, Vec<RangeInclusive<u16>>, Option<String>)>;

impl View {
    /// A line is `name address flags master ping pong epoch link slot…`; slots in brackets are on the move.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let seen = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let [name, _address, flags, master, _ping, _pong, _epoch, _link, slots @ ..] = &words[..] else {
                return None;
            };
            let settled = slots.iter().filter(|slots| !slots.starts_with('['));
            Some(Seen {
                name: (*name).to_owned(),
                flags: flags.split(',').map(str::to_owned).collect(),
                master: (*master != "-").then(|| (*master).to_owned()),
                slots: settled.map(|slots| range(slots)).collect::<Option<_>>()?,
            })
        };
        text.lines().map(seen).collect::<Option<_>>().map(Self)
    }

    /// The names of all nodes that have been met and are not forgotten.
    pub(super) fn known(&self) -> impl Iterator<Item = &str> {
        let met = self.0.iter().filter(|seen| !seen.has("handshake"));
        met.map(|seen| &*seen.name)
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&str> {
        self.0.iter().find(|seen| seen.slots.iter().any(|slots| slots.contains(&slot))).map(|seen| &*seen.name)
    }

    pub(super) fn slots(&self, name: &str) -> &[RangeInclusive<u16>] {
        self.0.iter().find(|seen| seen.name == name).map_or(&[], |seen| &seen.slots)
    }

    /// The names of those that have slots, by their first one.
    pub(super) fn owners(&self) -> Vec<String> {
        let mut owners: Vec<_> =
            self.0.iter().filter_map(|seen| Some((*seen.slots.first()?.start(), seen.name.clone()))).collect();
        owners.sort();
        owners.into_iter().map(|(_, name)| name).collect()
    }

    /// Who has which slots and who follows whom, in an order that is the same for every node.
    pub(super) fn roles(&self) -> Roles {
        let mut roles: Roles =
            self.0.iter().map(|seen| (seen.name.clone(), seen.slots.clone(), seen.master.clone())).collect();
        roles.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        roles
    }

    /// How many slots have an owner.
    pub(super) fn owned_slots(&self) -> usize {
        self.0.iter().flat_map(|seen| &seen.slots).map(ExactSizeIterator::len).sum()
    }

    /// Replicas, each with its master.
    pub(super) fn replicas(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|seen| Some((&*seen.name, seen.master.as_deref()?)))
    }

    /// Whether the node whose view this is takes itself for a master.
    pub(super) fn is_of_a_master(&self) -> bool {
        self.0.iter().any(|seen| seen.has("myself") && seen.has("master"))
    }
}

impl Seen {
    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }
}

/// `5-9`, or `7` alone.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

impl Cluster {
    /// As the first node that runs sees it.
    pub(super) fn view(&self) -> View {
        let (_, server) = self.nodes.running().next().expect("a node that runs");
        View::parse(&server.command(&["CLUSTER", "NODES"]).text()).expect("lines of `CLUSTER NODES`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_nodes_say() {
        let text = "\
b1 127.0.0.1:21000@31000 master - 0 1700000000000 2 connected 9 5-7 [8->-a1]\n\
a1 127.0.0.1:21001@31001,host myself,master - 0 0 1 connected 0-4\n\
c1 127.0.0.1:21002@31002 slave,fail? b1 0 0 2 disconnected\n\
d1 :0@0 handshake - 0 0 0 disconnected\n";
        let view = View::parse(text).expect("complete lines");
        assert_eq!(view.known().collect::<Vec<_>>(), ["b1", "a1", "c1"]);
        assert_eq!(
            [0, 4, 6, 9, 8].map(|slot| view.owner(slot)),
            [Some("a1"), Some("a1"), Some("b1"), Some("b1"), None]
        );
        assert_eq!(view.slots("b1"), [9..=9, 5..=7]);
        assert_eq!(view.owners(), ["a1", "b1"]);
        assert_eq!(view.replicas().collect::<Vec<_>>(), [("c1", "b1")]);
        assert!(view.is_of_a_master());
        assert_eq!(View::parse("a1 127.0.0.1:1@2 master"), None);
    }
}
