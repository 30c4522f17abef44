//! Overrides with networks or beginnings of texts, found part by part.

use std::collections::HashMap;
use std::mem::take;

use super::match_table::{MatchTable, MatchText};
use super::nested_sets::NestedSets;
use super::networks::Network;
use super::outline_parts::{OutlineParts, part_outline};
use super::part_value::{Beginning, PartValue, Rank};
use crate::key::MAX_OUTLINE_PARTS;
use crate::sync::{Seed, seed};

/// The overrides that name the same parts, some of them by networks or beginnings of texts.
///
/// They are a tree: a node for each sequence of values that overrides have in the first parts. A look-up takes the first
/// path in the order of precedence. It goes back only from nodes without a match in the parts that follow.
pub(super) struct PatternGroup {
    parts: Vec<PatternPart>,
    /// The override of each node at the last part. If there is one part, its nodes are the overrides.
    overrides: Vec<u32>,
}

/// A part that a group names. Its values have numbers.
struct PatternPart {
    position: usize,
    exact: MatchTable,
    networks: NestedSets<Network>,
    beginnings: NestedSets<Beginning>,
    /// The nodes of this part, by the node before and the value. Those of the first part are its values.
    nodes: NodeTable,
}

type NodeTable = HashMap<(u32, u32), u32, Seed>;

/// The ranks of a match, part by part. Those of other matches with as many parts compare with them.
pub(super) type Ranks = [Rank; MAX_OUTLINE_PARTS];

impl PatternGroup {
    /// The number of parts that the overrides name.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Returns the override with the first match in the order of precedence.
    pub(super) fn find(&self, parts: &OutlineParts<'_>) -> Option<(Ranks, u32)> {
        let mut ranks = Ranks::default();
        let index = self.find_from(0, 0, parts, &mut ranks)?;
        Some((ranks, index))
    }

    /// Finds the override from a node on. `depth` is the number of parts before.
    fn find_from(&self, depth: usize, node: u32, parts: &OutlineParts<'_>, ranks: &mut Ranks) -> Option<u32> {
        let Some(part) = self.parts.get(depth) else {
            return if depth == 1 { Some(node) } else { self.overrides.get(usize::try_from(node).ok()?).copied() };
        };
        let text = parts.get(part.position);
        let network = if part.networks.is_empty() { None } else { Network::of_outline(text) };
        part.matching(text, network.as_ref()).find_map(|(rank, value)| {
            let next = if depth == 0 { value } else { *part.nodes.get(&(node, value))? };
            let found = self.find_from(depth + 1, next, parts, ranks)?;
            *ranks.get_mut(depth)? = rank;
            Some(found)
        })
    }
}

impl PatternPart {
    fn new(position: usize, values: HashMap<PartValue, u32>, nodes: NodeTable) -> Self {
        let mut exact = MatchTable::with_hasher(seed());
        let (mut networks, mut beginnings) = (Vec::new(), Vec::new());
        for (value, number) in values {
            match value {
                PartValue::Exact(text) => _ = exact.insert(MatchText::new(&part_outline(&text)), number),
                PartValue::Network(network) => networks.push((network, number)),
                PartValue::Beginning(beginning) => beginnings.push((beginning, number)),
            }
        }
        let (networks, beginnings) = (NestedSets::new::<Network>(networks), NestedSets::new::<[u8]>(beginnings));
        Self { position, exact, networks, beginnings, nodes }
    }

    /// Returns the values that match a text, in the order of precedence.
    fn matching<'a>(&'a self, text: &'a [u8], network: Option<&'a Network>) -> impl Iterator<Item = (Rank, u32)> {
        let exact = self.exact.get(text).map(|number| (Rank::EXACT, *number));
        let networks = network.into_iter().flat_map(|network| self.networks.containing(network));
        let beginnings = self.beginnings.containing(text);
        let networks = networks.map(|(network, number)| (Rank::of_network(*network), number));
        exact.into_iter().chain(networks).chain(beginnings.map(|(start, number)| (Rank::of_beginning(start), number)))
    }
}

/// The overrides of a group so far.
#[derive(Default)]
pub(super) struct PatternGroupBuilder {
    /// The values and the nodes of each part.
    parts: Vec<(HashMap<PartValue, u32>, NodeTable)>,
    overrides: Vec<u32>,
}

impl PatternGroupBuilder {
    /// Adds an override of these values. Returns an earlier one of the same values, and then adds nothing.
    pub(super) fn add(&mut self, values: &[&PartValue], index: u32) -> Option<u32> {
        self.parts.resize_with(values.len(), || (HashMap::new(), NodeTable::with_hasher(seed())));
        let mut node = 0;
        for (depth, (value, (numbers, nodes))) in values.iter().zip(&mut self.parts).enumerate() {
            let number = match numbers.get(*value) {
                Some(number) => *number,
                None => {
                    let next = count(numbers.len());
                    numbers.insert(PartValue::clone(value), next);
                    next
                }
            };
            let next = count(nodes.len());
            node = if depth == 0 { number } else { *nodes.entry((node, number)).or_insert(next) };
        }
        match self.overrides.get(usize::try_from(node).ok()?) {
            Some(earlier) => Some(*earlier),
            None => {
                self.overrides.push(index);
                None
            }
        }
    }

    /// Creates the group of these positions in the template.
    pub(super) fn build(mut self, positions: &[usize]) -> PatternGroup {
        if let [(values, _)] = &mut self.parts[..] {
            // One access to memory less, of which a look-up has few.
            let overrides = take(&mut self.overrides);
            for number in values.values_mut() {
                *number = usize::try_from(*number).ok().and_then(|at| overrides.get(at)).copied().unwrap_or(u32::MAX);
            }
        }
        let parts = positions.iter().zip(self.parts);
        let parts = parts.map(|(position, (values, nodes))| PatternPart::new(*position, values, nodes)).collect();
        PatternGroup { parts, overrides: self.overrides }
    }
}

/// The next number of a value or a node. Their number is bounded: see [`MAX_COMBINATIONS`](super::named_parts).
fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
