//! The networks by which a layer for services counts its clients.

use std::net::IpAddr;

/// The bits of an IPv6 address by which a layer counts a client, unless it sets others.
pub(crate) const IPV6_CLIENT_PREFIX: u8 = 64;

/// Returns the first address of the network with this prefix around an address.
pub(crate) fn first_address(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix.into())).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix.into())).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

/// Returns the network with this prefix around an address, as an override and a key have it.
pub(crate) fn network(address: IpAddr, prefix: u8) -> String {
    format!("{}/{prefix}", first_address(address, prefix))
}
