//! The client's address: the peer's, or that of one entry of one header.

mod client_address;
mod entries;
mod forwarded;
mod node;
mod trusted_networks;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::num::NonZeroUsize;

use http::header::{FORWARDED, HeaderName};
use http::request::Parts;
use limiter_core::Error;

use crate::header_name::header_name;
use crate::missing::Lack;
use crate::peer::Peer;
use crate::piece_name::PieceName;
pub(crate) use client_address::ClientAddress;
use trusted_networks::TrustedNetworks;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client's address as a key: the peer's, or the one that a proxy writes into a header.
///
/// Each constructor is for one set-up:
///
/// | set-up | constructor |
/// |---|---|
/// | clients connect to this service | [`peer`](ClientIp::peer), the default |
/// | `n` proxies, each of which appends to `X-Forwarded-For` | [`x_forwarded_for(n)`](ClientIp::x_forwarded_for) |
/// | `n` proxies, each of which appends to `Forwarded` (RFC 7239) | [`forwarded(n)`](ClientIp::forwarded) |
/// | a proxy that sets a header of one address | [`header(name)`](ClientIp::header) |
///
/// ```
/// # use limiter_tower as tower;
/// use tower::ClientIp;
///
/// // One nginx in front, with `proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;`.
/// let by_client = ClientIp::x_forwarded_for(1);
/// // A load balancer in front of that nginx, which is in a network of its own.
/// let by_client = ClientIp::x_forwarded_for(2).only_from(["10.20.0.0/16"])?;
/// # Ok::<(), limiter_core::Error>(())
/// ```
///
/// # The counted entry
/// One header counts, and one entry of it. Entries are counted from the right, over all lines of the header. The
/// proxies wrote the entries on the right, and a client can only write the entries to the left of these. So the counted
/// entry is the one that the first of the `n` proxies wrote. `n` must be the number of proxies on every way to the
/// service: on a shorter way the client writes the counted entry.
///
/// - An empty entry counts: `a,,b` has three. Otherwise an empty one of a proxy would move the count into the client's
///   part. Whitespace around an entry is ignored.
/// - The counted entry must be an address, with or without a port: `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`,
///   `[2001:db8::1]` or `[2001:db8::1]:4711`. The port may be obfuscated (`192.0.2.1:_a`). Zone ids are refused.
///   The entry has at most 64 bytes.
/// - The key is missing if that entry is empty, `unknown`, obfuscated (`_hidden`) or no address, and if there are too
///   few entries. Neither another entry nor the peer replaces it.
/// - Only the counted entry must be valid. Bytes to the left of it change nothing, valid or not.
///
/// # Trust
/// A header counts only if the peer is [trusted](ClientIp::only_from). Any other peer counts by its own address,
/// whatever headers it sends. If a trusted peer sends no such header, the key is missing. It is also missing if the
/// peer is not known: see [`Peer`].
///
/// # Networks
/// An IPv6 client counts by its network of 64 bits, because one subscriber has at least that many addresses. An IPv4
/// client counts by its address. Other prefixes can be set. An IPv4-mapped IPv6 address is an IPv4 address everywhere:
/// in peers, entries and networks.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientIp {
    source: AddressSource,
    trusted: TrustedNetworks,
    pub(crate) ipv4_prefix: u8,
    pub(crate) ipv6_prefix: u8,
    pub(crate) name: PieceName,
}

/// The place of the client's address in a request.
#[derive(Clone, Debug)]
enum AddressSource {
    Peer,
    /// The entry at this position from the right.
    XForwardedFor(NonZeroUsize),
    /// The element at this position from the right.
    Forwarded(NonZeroUsize),
    /// The whole value.
    Header(HeaderName),
}

impl Default for ClientIp {
    /// [`ClientIp::peer`].
    fn default() -> Self {
        Self::peer()
    }
}

impl ClientIp {
    /// The address of the peer: the other end of the connection.
    ///
    /// It is missing for the peer of a Unix socket, which has none. Headers do not matter.
    pub fn peer() -> Self {
        Self::new(AddressSource::Peer)
    }

    /// The entry of `X-Forwarded-For` at the position `hops` from the right: the number of proxies that append to it.
    ///
    /// 1 is the last entry, and 0 is the [peer](ClientIp::peer).
    pub fn x_forwarded_for(hops: usize) -> Self {
        Self::new(NonZeroUsize::new(hops).map_or(AddressSource::Peer, AddressSource::XForwardedFor))
    }

    /// The `for` of the element of `Forwarded` at the position `hops` from the right: the number of proxies that append
    /// to it.
    ///
    /// 1 is the last element, and 0 is the [peer](ClientIp::peer). The counted element must be as in RFC 7239 and have
    /// exactly one `for`; otherwise the key is missing. An IPv6 address without brackets is accepted, in quotes.
    ///
    /// Commas and semicolons in a quoted string separate nothing. Each line is read from its right end, and no quoted
    /// string goes on in another line. So a quote that a client leaves open hides no element that a proxy appends. The
    /// key is missing if a quote has no partner in the counted element, or to the right of it.
    pub fn forwarded(hops: usize) -> Self {
        Self::new(NonZeroUsize::new(hops).map_or(AddressSource::Peer, AddressSource::Forwarded))
    }

    /// The value of a header that holds one address, such as `cf-connecting-ip` or `x-real-ip`.
    ///
    /// The proxy must replace the header if a client sends it. The key is missing if the value is no address, or if the
    /// header has several lines.
    ///
    /// # Panics
    /// If `name` cannot be the name of a header. Create the value at the program's start.
    pub fn header(name: &str) -> Self {
        Self::new(AddressSource::Header(header_name(name)))
    }

    fn new(source: AddressSource) -> Self {
        Self {
            source,
            trusted: TrustedNetworks::default(),
            ipv4_prefix: 32,
            ipv6_prefix: 64,
            name: PieceName::new("ip"),
        }
    }

    /// Sets the networks of the peers whose header counts: those of the proxies in front of this service.
    ///
    /// Each is a network such as `10.0.0.0/8` or a single address. The list replaces the default one:
    ///
    /// - loopback: `127.0.0.0/8`, `::1`
    /// - private: `10.0.0.0/8`, `172.16.0.0/12`, `192.168.0.0/16`
    /// - link-local: `169.254.0.0/16`, `fe80::/10`
    /// - unique local: `fc00::/7`
    ///
    /// No client on the internet has such an address. So under the default list a client that reaches the service
    /// directly cannot choose its key. Write the networks of the proxies if clients connect from such networks too, or
    /// if the proxies have public addresses.
    ///
    /// Peers of Unix sockets are trusted under every list, also an empty one: no network leads to a Unix socket. An
    /// IPv6 network contains an IPv4 peer only if it is IPv4-mapped, such as `::ffff:10.0.0.0/104`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](limiter_core::ErrorKind::Config) for a text that is neither a network nor an address, and
    /// for a network with further bits behind its prefix, such as `10.0.0.1/8`.
    pub fn only_from(mut self, networks: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        self.trusted = TrustedNetworks::parse(networks)?;
        Ok(self)
    }

    /// Sets the bits of an IPv6 address by which clients count together: 64 by default.
    ///
    /// 128 counts each address by itself, and so does any greater number. 0 counts all IPv6 clients together.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }

    /// Sets the bits of an IPv4 address by which clients count together: 32 by default, which is the whole address.
    ///
    /// A number above 32 counts as 32. 0 counts all IPv4 clients together.
    pub fn ipv4_prefix(mut self, bits: u8) -> Self {
        self.ipv4_prefix = bits;
        self
    }

    /// Returns the address of a request's client, or the network by which it counts, or why it is missing.
    pub(crate) fn find(&self, parts: &Parts) -> Result<ClientAddress, Lack> {
        let address = self.address(parts)?;
        let prefix = if address.is_ipv4() { self.ipv4_prefix } else { self.ipv6_prefix };
        Ok(ClientAddress::new(address, prefix))
    }

    fn address(&self, parts: &Parts) -> Result<IpAddr, Lack> {
        let peer = Peer::of(parts).ok_or(Lack::NoPeer)?;
        let of_peer = || peer.ip().ok_or(Lack::PeerWithoutAddress);
        if !self.trusted.contains(peer) {
            return of_peer();
        }
        let lines = |name: &HeaderName| parts.headers.get_all(name).iter().map(|value| value.as_bytes());
        match &self.source {
            AddressSource::Peer => of_peer(),
            AddressSource::XForwardedFor(hops) => {
                let needed = hops.get();
                let too_few = || Lack::TooFewEntries {
                    header: X_FORWARDED_FOR,
                    found: entries::from_right(lines(&X_FORWARDED_FOR)).take(needed).count(),
                    needed,
                };
                let entry = entries::from_right(lines(&X_FORWARDED_FOR)).nth(needed - 1).ok_or_else(too_few)?;
                node::address(entry).ok_or(Lack::NoAddress(X_FORWARDED_FOR))
            }
            AddressSource::Forwarded(hops) => forwarded::address(lines(&FORWARDED), *hops),
            AddressSource::Header(name) => {
                let mut lines = lines(name);
                let line = lines.next().ok_or_else(|| Lack::NoHeader(name.clone()))?;
                if lines.next().is_some() {
                    return Err(Lack::SeveralLines(name.clone()));
                }
                node::address(entries::trim(line)).ok_or_else(|| Lack::NoAddress(name.clone()))
            }
        }
    }
}
