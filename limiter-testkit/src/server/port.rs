//! Free TCP ports.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

/// Below what systems give to connections and to port 0: nobody takes a port by chance while its server restarts.
const PORTS: Range<u16> = 20_000..32_768;

/// A port of 127.0.0.1 that was free a moment ago. Another process may take it before it is used.
pub(super) fn free_port() -> u16 {
    let count = u64::from(PORTS.end - PORTS.start);
    loop {
        let offset = RandomState::new().hash_one(()) % count;
        let port = PORTS.start + u16::try_from(offset).expect("below the length of a range of u16");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_can_be_bound() {
        let port = free_port();
        assert!(PORTS.contains(&port));
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    }
}
