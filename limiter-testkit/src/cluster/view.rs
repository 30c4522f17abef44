//! The cluster as seen by one node.

use std::ops::RangeInclusive;

use super::Cluster;

/// The parsed reply to `CLUSTER NODES`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View(Vec<NodeLine>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct NodeLine {
    name: String,
    flags: Vec<String>,
    master: Option<String>,
    slots: Vec<RangeInclusive<u16>>,
}

/// The name, slots and master of each node.
pub(super) type Roles = Vec<(String, Vec<RangeInclusive<u16>>, Option<String>)>;

impl View {
    /// Parses the reply. Slots in brackets are being moved, and are skipped.
    ///
    /// A line is `name address flags master ping pong epoch link slot…`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let node = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let [name, _address, flags, master, _ping, _pong, _epoch, _link, slots @ ..] = &words[..] else {
                return None;
            };
            let stable = slots.iter().filter(|slots| !slots.starts_with('['));
            Some(NodeLine {
                name: (*name).to_owned(),
                flags: flags.split(',').map(str::to_owned).collect(),
                master: (*master != "-").then(|| (*master).to_owned()),
                slots: stable.map(|slots| parse_range(slots)).collect::<Option<_>>()?,
            })
        };
        text.lines().map(node).collect::<Option<_>>().map(Self)
    }

    /// Returns the names of all nodes that have joined.
    pub(super) fn known(&self) -> impl Iterator<Item = &str> {
        let met = self.0.iter().filter(|node| !node.has("handshake"));
        met.map(|node| &*node.name)
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&str> {
        self.0.iter().find(|node| node.slots.iter().any(|slots| slots.contains(&slot))).map(|node| &*node.name)
    }

    pub(super) fn slots(&self, name: &str) -> &[RangeInclusive<u16>] {
        self.0.iter().find(|node| node.name == name).map_or(&[], |node| &node.slots)
    }

    /// Returns the names of the nodes with slots, by their first slot.
    pub(super) fn owners(&self) -> Vec<String> {
        let mut owners: Vec<_> =
            self.0.iter().filter_map(|node| Some((*node.slots.first()?.start(), node.name.clone()))).collect();
        owners.sort();
        owners.into_iter().map(|(_, name)| name).collect()
    }

    /// Returns the role of each node, in the same order for every view.
    pub(super) fn roles(&self) -> Roles {
        let mut roles: Roles =
            self.0.iter().map(|node| (node.name.clone(), node.slots.clone(), node.master.clone())).collect();
        roles.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        roles
    }

    /// Returns the number of slots that have an owner.
    pub(super) fn owned_slots(&self) -> usize {
        self.0.iter().flat_map(|node| &node.slots).map(ExactSizeIterator::len).sum()
    }

    /// Returns the replicas, each with its master.
    pub(super) fn replicas(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|node| Some((&*node.name, node.master.as_deref()?)))
    }

    /// Returns true if the node of this view considers itself a master.
    pub(super) fn is_a_masters_view(&self) -> bool {
        self.0.iter().any(|node| node.has("myself") && node.has("master"))
    }
}

impl NodeLine {
    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }
}

/// Parses a range of slots: `5-9`, or `7` alone.
fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

impl Cluster {
    /// Returns the cluster as seen by the first running node.
    pub(super) fn view(&self) -> View {
        let (_, server) = self.nodes.running().next().expect("a node that runs");
        View::parse(&server.command(&["CLUSTER", "NODES"]).text()).expect("lines of `CLUSTER NODES`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_masters_replicas_and_moving_slots() {
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
        assert!(view.is_a_masters_view());
        assert_eq!(View::parse("a1 127.0.0.1:1@2 master"), None);
    }
}
