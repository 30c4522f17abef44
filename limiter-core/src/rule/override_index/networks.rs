//! Overrides by networks: a part matches if its text is an address in the network, or a smaller network.

use std::net::IpAddr;

use super::nested_sets::Nested;
use crate::key::AddressPrefixes;

/// A network of addresses, or one address. It is before those in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Network {
    is_ipv4: bool,
    /// The bits of the prefix, from the highest one on. The others are 0.
    bits: u128,
    prefix: u8,
}

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
    pub(super) fn of_override(text: &str) -> Option<Self> {
        let is_usual = text.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().to_string() == text);
        Self::parse(text).filter(|_| !is_usual)
    }

    /// Parses the outline of a part, in which `:` and `/` are escaped.
    pub(super) fn of_outline(outline: &[u8]) -> Option<Self> {
        usual_ipv4(outline).or_else(|| usual_ipv6(outline)).or_else(|| Self::of_unusual_outline(outline))
    }

    #[cold]
    fn of_unusual_outline(outline: &[u8]) -> Option<Self> {
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

    /// The number of bits that all its addresses have.
    pub(super) fn prefix(self) -> u8 {
        self.prefix
    }
}

// The parsers of usual outlines take a fraction of the time of the standard library's. They leave other texts to it.

/// Parses an IPv4 address.
fn usual_ipv4(outline: &[u8]) -> Option<Network> {
    let mut address = 0;
    let mut octets = outline.split(|byte| *byte == b'.');
    for _ in 0..4 {
        let octet = decimal(octets.next()?).filter(|octet| *octet <= 255)?;
        address = address << 8 | u128::from(octet);
    }
    octets.next().is_none().then_some(Network { is_ipv4: true, bits: address << 96, prefix: 32 })
}

/// Parses an IPv6 address or network, but none that is IPv4-mapped.
fn usual_ipv6(outline: &[u8]) -> Option<Network> {
    let (mut bits, mut groups, mut groups_before_gap) = (0_u128, 0_u32, None);
    let mut rest = outline;
    let prefix = loop {
        let len = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, after) = rest.split_at_checked(len).filter(|_| len <= 4)?;
        if len > 0 {
            let digit = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or(0);
            bits = bits << 16 | u128::from(digits.iter().fold(0, |group, byte| group << 4 | digit(byte)));
            groups += 1;
        }
        match after.strip_prefix(b"%3A") {
            Some(after_colon) => match after_colon.strip_prefix(b"%3A") {
                Some(after_gap) if groups_before_gap.is_none() && (len > 0 || groups == 0) => {
                    groups_before_gap = Some(groups);
                    rest = after_gap;
                }
                None if len > 0 && after_colon.first()?.is_ascii_hexdigit() => rest = after_colon,
                _ => return None,
            },
            None if after.is_empty() => break 128,
            None => break decimal(after.strip_prefix(b"%2F")?).filter(|prefix| *prefix <= 128)?,
        }
    };
    let bits = match groups_before_gap {
        None if groups == 8 => bits,
        Some(before) if groups < 8 => {
            let behind = 16 * (groups - before);
            let head = (bits >> behind).checked_shl(128 - 16 * before).unwrap_or(0);
            head | bits & !u128::MAX.checked_shl(behind).unwrap_or(0)
        }
        _ => return None,
    };
    let whole = Network { is_ipv4: false, bits, prefix: 128 };
    let network = whole.truncated(u8::try_from(prefix).ok()?).filter(|network| network.bits == bits)?;
    (bits >> 32 != 0xffff).then_some(network)
}

/// Parses a number of one to three digits, without a zero before others.
fn decimal(digits: &[u8]) -> Option<u32> {
    let is_number = digits.iter().all(u8::is_ascii_digit) && (digits.len() == 1 || digits.first() != Some(&b'0'));
    let number = || digits.iter().fold(0, |number, digit| number * 10 + u32::from(*digit & 15));
    (is_number && (1..=3).contains(&digits.len())).then(number)
}

impl Nested for Network {
    #[inline]
    fn contains(&self, inner: &Self) -> bool {
        self.is_ipv4 == inner.is_ipv4 && inner.truncated(self.prefix).is_some_and(|outer| outer.bits == self.bits)
    }

    /// The family and the first 63 bits.
    #[inline]
    fn lead(&self) -> u64 {
        u64::from(self.is_ipv4) << 63 | u64::try_from(self.bits >> 65).unwrap_or(0)
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
    use std::array;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use limiter_testkit::{Random, full_or};

    use super::super::outline_parts::part_outline;
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
    fn an_outline_is_the_network_of_its_text() {
        let mut random = Random::new(40);
        let (mut networks, mut usual) = (0, 0);
        let rounds = full_or(1_000_000, 100_000);
        for _ in 0..rounds {
            let address = if random.below(2) == 0 {
                Ipv4Addr::from(u32::try_from(random.below(1 << 32)).unwrap_or(0)).to_string()
            } else {
                let groups: [u16; 8] = array::from_fn(|_| match random.below(4) {
                    0 => u16::try_from(random.below(1 << 16)).unwrap_or(0),
                    1 => 0xffff,
                    _ => 0,
                });
                Ipv6Addr::from(groups).to_string()
            };
            let mut text = match random.below(3) {
                0 => format!("{address}/{}", random.below(135)),
                1 => format!("{address}/128"),
                _ => address,
            };
            if random.below(2) == 0 {
                let at = usize::try_from(random.below(1 + u64::try_from(text.len()).unwrap_or(0))).unwrap_or(0);
                let other =
                    [":", "::", "/", ".", "0", "f", "1", "g", "+", "%"][usize::try_from(random.below(10)).unwrap_or(0)];
                text.replace_range(at..text.len().min(at + usize::from(random.below(2) == 0)), other);
            }
            let expected = Network::parse(&text);
            let outline = part_outline(&text);
            assert_eq!(Network::of_outline(&outline), expected, "{text}");
            networks += usize::from(expected.is_some());
            usual += usize::from(usual_ipv4(&outline).or_else(|| usual_ipv6(&outline)).is_some());
        }
        assert!(networks > rounds / 4 && usual > networks / 2, "{networks} and {usual} of {rounds}");
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
