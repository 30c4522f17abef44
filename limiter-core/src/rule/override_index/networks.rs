//! Overrides by networks: a part matches if its text is an address in the network, or a smaller network.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

use super::outline_parts::{OutlineParts, PART_MARK, part_outline};
use super::{MatchTable, MatchText};
use crate::key::{AddressPrefixes, MAX_OUTLINE_PARTS};
use crate::sync::seed;

/// A network of addresses, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    is_ipv4: bool,
    /// The bits of the prefix, from the highest one on. The others are 0.
    bits: u128,
    prefix: u8,
}

/// The bytes of a network in a text that overrides are found by.
type NetworkBytes = [u8; 18];

/// The longest text of a network: eight groups of four digits, and a prefix.
const MAX_NETWORK_TEXT: usize = 49;

impl Network {
    /// Parses a text such as `10.0.0.0/8`, or an address. An IPv4-mapped one is IPv4.
    ///
    /// `None` for another text, and for a network with further bits behind its prefix.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().ok()?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = match prefix {
            None => longest,
            Some(digits) if digits.starts_with('+') || digits.len() > 1 && digits.starts_with('0') => return None,
            Some(digits) => digits.parse().ok().filter(|prefix| *prefix <= longest)?,
        };
        let mapped = match address {
            IpAddr::V4(address) => Some((address, prefix)),
            IpAddr::V6(address) => address.to_ipv4_mapped().zip(prefix.checked_sub(96)),
        };
        let whole = match (mapped, address) {
            (Some((address, prefix)), _) => Self { is_ipv4: true, bits: u128::from(address.to_bits()) << 96, prefix },
            (None, IpAddr::V6(address)) => Self { is_ipv4: false, bits: address.to_bits(), prefix },
            (None, IpAddr::V4(_)) => return None,
        };
        whole.truncated(whole.prefix).filter(|network| network.bits == whole.bits)
    }

    /// Parses the text of an override that is not only the usual text of one address, which matches as a text.
    fn of_override(text: &str) -> Option<Self> {
        let is_usual = text.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().to_string() == text);
        Self::parse(text).filter(|_| !is_usual)
    }

    /// Parses the outline of a part, in which `:` and `/` are escaped.
    fn of_outline(outline: &[u8]) -> Option<Self> {
        let mut text = [0; MAX_NETWORK_TEXT];
        let mut len = 0;
        let mut bytes = outline.iter();
        while let Some(byte) = bytes.next() {
            *text.get_mut(len)? = match byte {
                b'%' => match (bytes.next()?, bytes.next()?) {
                    (b'3', b'A') => b':',
                    (b'2', b'F') => b'/',
                    _ => return None,
                },
                byte => *byte,
            };
            len += 1;
        }
        Self::parse(str::from_utf8(text.get(..len)?).ok()?)
    }

    /// Returns the network of this prefix that contains this one. `None` if this one has a shorter prefix.
    fn truncated(self, prefix: u8) -> Option<Self> {
        let mask = u128::MAX.checked_shl(u32::from(128_u8.checked_sub(prefix)?)).unwrap_or(0);
        (prefix <= self.prefix).then_some(Self { bits: self.bits & mask, prefix, ..self })
    }

    fn bytes(self) -> NetworkBytes {
        let mut bytes = [0; 18];
        let [family, prefix, bits @ ..] = &mut bytes;
        (*family, *prefix) = (u8::from(self.is_ipv4), self.prefix);
        bits.copy_from_slice(&self.bits.to_be_bytes());
        bytes
    }
}

/// The reason why no key of a layer has a value of its override.
#[derive(Debug, PartialEq, Eq)]
enum AddressProblem {
    NoAddress,
    /// The layer counts clients by shorter prefixes.
    TooLong {
        prefix: u8,
        longest: u8,
    },
}

/// Checks a value of a part whose values are networks of these prefixes.
fn check_address(value: &str, prefixes: AddressPrefixes) -> Result<(), AddressProblem> {
    let Network { is_ipv4, prefix, .. } = Network::parse(value).ok_or(AddressProblem::NoAddress)?;
    let longest = if is_ipv4 { prefixes.ipv4 } else { prefixes.ipv6 };
    if prefix <= longest { Ok(()) } else { Err(AddressProblem::TooLong { prefix, longest }) }
}

/// The overrides of one rule that have a network as the value of a part.
///
/// A look-up takes a hash for each set of parts and length of prefixes that the overrides have.
#[derive(Default)]
pub(super) struct NetworkIndex {
    /// The most specific first.
    groups: Vec<NetworkGroup>,
    /// The positions of all parts with networks.
    positions: Vec<usize>,
}

/// The overrides that name the same parts, with networks of the same family and prefix.
struct NetworkGroup {
    parts: Vec<GroupPart>,
    rank: Rank,
    table: MatchTable,
}

/// A part that a group names: its position, and the family and prefix of its networks.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct GroupPart {
    position: usize,
    network: Option<(bool, u8)>,
}

/// The order of matching overrides: by their parts, then by those with an exact value, then by the bits of networks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    parts: usize,
    exact: usize,
    bits: u32,
}

impl Rank {
    fn new(parts: &[GroupPart]) -> Self {
        let networks = parts.iter().filter_map(|part| part.network);
        Self {
            parts: parts.len(),
            exact: parts.len() - networks.clone().count(),
            bits: networks.map(|(_, prefix)| u32::from(prefix)).sum(),
        }
    }
}

/// The overrides with networks so far.
#[derive(Default)]
pub(super) struct NetworkIndexBuilder(HashMap<Vec<GroupPart>, MatchTable>);

impl NetworkIndexBuilder {
    /// Adds an override with these values by position, if one of them is a network. Returns the index of an earlier one
    /// that matches the same keys, and then adds nothing.
    pub(super) fn add(&mut self, values: &[Option<&str>], index: u32) -> Option<u32> {
        let named = values.iter().enumerate().filter_map(|(position, value)| Some((position, (*value)?)));
        let named: Vec<_> = named.map(|(position, value)| (position, value, Network::of_override(value))).collect();
        if named.iter().all(|(_, _, network)| network.is_none()) {
            return None;
        }
        let mut parts = Vec::new();
        let mut text = Vec::new();
        for (position, value, network) in named {
            parts.push(GroupPart { position, network: network.map(|network| (network.is_ipv4, network.prefix)) });
            match network {
                Some(network) => text.extend(network.bytes()),
                None => {
                    text.push(PART_MARK);
                    text.extend(part_outline(value));
                }
            }
        }
        let table = self.0.entry(parts).or_insert_with(|| MatchTable::with_hasher(seed()));
        match table.get(&text[..]) {
            Some(earlier) => Some(*earlier),
            None => {
                table.insert(MatchText::new(&text), index);
                None
            }
        }
    }

    pub(super) fn build(self) -> NetworkIndex {
        let group = |(parts, table): (Vec<GroupPart>, _)| NetworkGroup { rank: Rank::new(&parts), parts, table };
        let mut groups: Vec<_> = self.0.into_iter().map(group).collect();
        groups.sort_by_key(|group| Reverse(group.rank));
        let with_networks = groups.iter().flat_map(|group| &group.parts).filter(|part| part.network.is_some());
        let mut positions: Vec<_> = with_networks.map(|part| part.position).collect();
        positions.sort_unstable();
        positions.dedup();
        NetworkIndex { groups, positions }
    }
}

impl NetworkIndex {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the override with the most specific match, with the number of its parts. Among equals it is the first in
    /// the list.
    pub(super) fn find(&self, parts: &OutlineParts<'_>) -> Option<(u32, usize)> {
        let mut networks = [None; MAX_OUTLINE_PARTS];
        for position in &self.positions {
            *networks.get_mut(*position)? = Network::of_outline(parts.get(*position));
        }
        let mut found: Option<(u32, Rank)> = None;
        let mut text = Vec::new();
        for group in &self.groups {
            if found.is_some_and(|(_, rank)| rank > group.rank) {
                break;
            }
            if let Some(index) = group.find(parts, &networks, &mut text) {
                found = Some((found.map_or(index, |(first, _)| first.min(index)), group.rank));
            }
        }
        found.map(|(index, rank)| (index, rank.parts))
    }
}

impl NetworkGroup {
    fn find(
        &self,
        parts: &OutlineParts<'_>,
        networks: &[Option<Network>; MAX_OUTLINE_PARTS],
        text: &mut Vec<u8>,
    ) -> Option<u32> {
        let masked = |part: &GroupPart| {
            let (is_ipv4, prefix) = part.network?;
            let network = networks.get(part.position).copied().flatten()?;
            network.truncated(prefix).filter(|_| network.is_ipv4 == is_ipv4).map(Network::bytes)
        };
        if let [part] = &self.parts[..] {
            return self.table.get(&masked(part)?[..]).copied();
        }
        text.clear();
        for part in &self.parts {
            match part.network {
                Some(_) => text.extend(masked(part)?),
                None => {
                    text.push(PART_MARK);
                    text.extend(parts.get(part.position));
                }
            }
        }
        self.table.get(&text[..]).copied()
    }
}

/// Returns the message for a value that no part of this name has, whose values are networks of these prefixes. It does
/// not have the value, which may be personal data.
pub(super) fn address_problem(name: &str, value: &str, prefixes: AddressPrefixes) -> Option<String> {
    let problem = check_address(value, prefixes).err()?;
    Some(match problem {
        AddressProblem::NoAddress => format!(
            "`{name}` must be an address or a network, as in the keys of its layer, got another text: write one such as \
             `203.0.113.9`, `203.0.113.0/24` or `2001:db8::/48`, without further bits behind the prefix"
        ),
        AddressProblem::TooLong { prefix, longest } => format!(
            "`{name}` must have a prefix of at most {longest} bits, by which its layer counts such clients, got {prefix} \
             bits: write the network of {longest} bits around it, which ends in `/{longest}`"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_networks_and_addresses_of_both_families() {
        let network = |is_ipv4, bits, prefix| Some(Network { is_ipv4, bits, prefix });
        let ten = 10_u128 << 120;
        let cases = [
            ("10.0.0.0/8", network(true, ten, 8)),
            ("::ffff:10.0.0.0/104", network(true, ten, 8)),
            ("::ffff:10.0.0.0", network(true, ten, 32)),
            ("0.0.0.0/0", network(true, 0, 0)),
            ("::/0", network(false, 0, 0)),
            ("2001:db8::/32", network(false, 0x2001_0db8 << 96, 32)),
            ("2001:DB8:0::0/32", network(false, 0x2001_0db8 << 96, 32)),
            ("::1", network(false, 1, 128)),
            ("::1/128", network(false, 1, 128)),
        ];
        for (text, expected) in cases {
            assert_eq!(Network::parse(text), expected, "{text}");
            let outline = text.replace(':', "%3A").replace('/', "%2F");
            assert_eq!(Network::of_outline(outline.as_bytes()), expected, "{text}");
        }
        let others = [
            "",
            "/",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.1/8",
            "2001:db8::1/64",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "10.0.0.0/8/8",
            "010.0.0.0/8",
            "10.0.0",
            "fe80::1%eth0",
            "[::1]",
            "10.0.0.0 /8",
            "a",
            "+digest",
        ];
        for text in others {
            assert_eq!(Network::parse(text), None, "{text}");
        }
        assert_eq!(Network::of_outline(&[b'1'; 1_000]), None);
        assert_eq!(Network::of_outline(b"%3"), None);
    }

    #[test]
    fn a_layer_has_the_addresses_and_networks_that_it_counts_by() {
        let prefixes = AddressPrefixes { ipv4: 32, ipv6: 64 };
        for value in ["203.0.113.9", "203.0.113.0/24", "2001:db8::/64", "2001:db8::/48", "::ffff:10.0.0.1", "::/0"] {
            assert_eq!(check_address(value, prefixes), Ok(()), "{value}");
        }
        let too_long = |prefix, longest| Err(AddressProblem::TooLong { prefix, longest });
        let cases = [
            ("2001:db8::9", too_long(128, 64)),
            ("2001:db8::/80", too_long(80, 64)),
            ("203.0.113.009", Err(AddressProblem::NoAddress)),
            ("10.0.0.0/33", Err(AddressProblem::NoAddress)),
            ("10.0.0.1/8", Err(AddressProblem::NoAddress)),
            ("ann", Err(AddressProblem::NoAddress)),
        ];
        for (value, expected) in cases {
            assert_eq!(check_address(value, prefixes), expected, "{value}");
        }
        let by_network = AddressPrefixes { ipv4: 24, ipv6: 128 };
        assert_eq!(check_address("203.0.113.9", by_network), too_long(32, 24));
        assert_eq!(check_address("2001:db8::9", by_network), Ok(()));
    }
}
