//! The networks of the peers whose headers count.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use limiter_core::Error;
use limiter_core::private::config_error;

use crate::Peer;

/// The networks that are not reached from the internet.
const LOCAL: [IpNet; 8] = [
    ipv4([127, 0, 0, 0], 8),
    ipv4([10, 0, 0, 0], 8),
    ipv4([172, 16, 0, 0], 12),
    ipv4([192, 168, 0, 0], 16),
    ipv4([169, 254, 0, 0], 16),
    ipv6(Ipv6Addr::LOCALHOST, 128),
    ipv6(Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 0), 10),
    ipv6(Ipv6Addr::new(0xFC00, 0, 0, 0, 0, 0, 0, 0), 7),
];

const fn ipv4([a, b, c, d]: [u8; 4], prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix))
}

const fn ipv6(address: Ipv6Addr, prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(address, prefix))
}

/// The networks of the peers whose headers count. Peers of Unix sockets are always among them.
#[derive(Clone, Debug)]
pub(super) struct TrustedNetworks {
    networks: Arc<[IpNet]>,
}

impl Default for TrustedNetworks {
    fn default() -> Self {
        Self { networks: LOCAL.into() }
    }
}

impl TrustedNetworks {
    pub(super) fn parse(networks: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        let networks: Result<_, _> = networks.into_iter().map(|text| network(text.as_ref())).collect();
        Ok(Self { networks: networks? })
    }

    /// Returns whether the headers of this peer count.
    pub(super) fn contains(&self, peer: Peer) -> bool {
        peer.ip().is_none_or(|address| self.networks.iter().any(|network| network.contains(&address)))
    }
}

/// Reads a network or a single address.
fn network(text: &str) -> Result<IpNet, Error> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network = canonical(network.map_err(|_| {
        config_error(format!(
            "`only_from` must be networks or addresses, got {text:?}: write them such as `10.0.0.0/8` or `2001:db8::1`"
        ))
    })?);
    let whole = network.trunc();
    if network != whole {
        return Err(config_error(format!(
            "`only_from` must be networks without bits behind the prefix, got {text:?}: write `{whole}`"
        )));
    }
    Ok(network)
}

/// Returns the IPv4 network of an IPv4-mapped one.
fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(mapped) = network else { return network };
    let ipv4 = mapped.addr().to_ipv4_mapped().zip(mapped.prefix_len().checked_sub(96));
    ipv4.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok()).map_or(network, IpNet::V4)
}
