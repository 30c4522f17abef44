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
        if let Some(bits) = ipv4_bits(outline) {
            return Some(Self { is_ipv4: true, bits: u128::from(bits) << 96, prefix: 32 });
        }
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

/// Parses an IPv4 address, in a fraction of the time of the standard library's parser of both families.
fn ipv4_bits(text: &[u8]) -> Option<u32> {
    let mut bits = 0;
    let mut octets = text.split(|byte| *byte == b'.');
    for _ in 0..4 {
        let digits = octets.next().filter(|digits| (1..=3).contains(&digits.len()))?;
        let is_number = digits.iter().all(u8::is_ascii_digit) && (digits.len() == 1 || digits.first() != Some(&b'0'));
        let octet = digits.iter().fold(0, |octet, digit| octet * 10 + u32::from(*digit & 15));
        bits = bits << 8 | Some(octet).filter(|octet| is_number && *octet <= 255)?;
    }
    octets.next().is_none().then_some(bits)
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
        for text in
            ["1.2.3.4", "255.0.10.1", "256.0.0.1", "1.2.3", "1.2.3.4.5", "1.2.3.", "01.2.3.4", "1.2.3.1000", "1..3.4"]
        {
            assert_eq!(Network::of_outline(text.as_bytes()), Network::parse(text), "{text}");
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
