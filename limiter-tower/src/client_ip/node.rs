//! The address of one entry.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str;

/// The length of the longest entry that is accepted, in bytes. An address with brackets and a port has at most 53.
pub(super) const MAX_NODE_BYTES: usize = 64;

/// Returns the address of an entry without its port and brackets; `None` if it is none. A zone id makes it none.
pub(super) fn address(node: &[u8]) -> Option<IpAddr> {
    if node.len() > MAX_NODE_BYTES {
        return None;
    }
    let node = str::from_utf8(node).ok()?;
    let (address, port): (IpAddr, _) = if let Some(rest) = node.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        (address.parse::<Ipv6Addr>().ok()?.into(), port)
    } else if let Ok(address) = node.parse::<Ipv6Addr>() {
        (address.into(), "")
    } else {
        let (address, port) = node.split_at(node.find(':').unwrap_or(node.len()));
        (address.parse::<Ipv4Addr>().ok()?.into(), port)
    };
    is_port_or_empty(port).then(|| address.to_canonical())
}

/// Returns whether a text is empty, or a colon and a port. The port may be obfuscated as in RFC 7239, section 6.3.
fn is_port_or_empty(text: &str) -> bool {
    if text.is_empty() {
        return true;
    }
    match text.strip_prefix(':').map(str::as_bytes) {
        Some([b'_', name @ ..]) => {
            !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte))
        }
        Some(digits) => (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit),
        None => false,
    }
}
