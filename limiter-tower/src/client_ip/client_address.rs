//! The address or the network by which a client counts.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// The address or the network by which a client counts.
///
/// `Display` shows a network as `2001:db8:1:2::/64`, and a network of one address as that address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientAddress {
    /// The network, without bits behind its prefix.
    network: IpNet,
}

impl ClientAddress {
    /// Creates the network of an address. A prefix beyond the address's length counts as that length.
    pub(super) fn new(address: IpAddr, prefix: u8) -> Self {
        let network = IpNet::new(address, prefix).unwrap_or_else(|_| address.into());
        Self { network: network.trunc() }
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.network.prefix_len() == self.network.max_prefix_len() {
            self.network.addr().fmt(f)
        } else {
            self.network.fmt(f)
        }
    }
}
