//! Free TCP ports.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The range of ports. It is below the ports that systems assign by themselves, so that no other process takes a
/// server's port while it restarts.
const PORT_RANGE: Range<u16> = 20_000..32_768;

/// The offset from a cluster node's port to its port for the other nodes.
pub(crate) const BUS_OFFSET: u16 = 10_000;

/// The ports that were returned already. The port of a stopped server looks free but must stay reserved.
static RESERVED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Returns a port of 127.0.0.1 that was free a moment ago. Another process may take it before it is used.
pub(super) fn free_port() -> u16 {
    reserve_free_port(&[0])
}

/// Returns a free port whose bus port, `BUS_OFFSET` above it, is free too. The bus port is in `PORT_RANGE`.
pub(crate) fn free_port_with_bus() -> u16 {
    reserve_free_port(&[BUS_OFFSET, 0]) - BUS_OFFSET
}

/// Returns a port that is free together with the ports at these offsets below it.
fn reserve_free_port(below: &[u16]) -> u16 {
    let count = u64::from(PORT_RANGE.end - PORT_RANGE.start);
    loop {
        let offset = RandomState::new().hash_one(()) % count;
        let port = PORT_RANGE.start + u16::try_from(offset).expect("below the length of a range of u16");
        let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
        if below.iter().all(|below| !reserved.contains(&(port - below)) && is_free(port - below)) {
            reserved.extend(below.iter().map(|below| port - below));
            return port;
        }
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_can_be_bound() {
        let with_bus = free_port_with_bus();
        for port in [free_port(), with_bus, with_bus + BUS_OFFSET] {
            assert!(is_free(port), "{port}");
        }
        assert!(PORT_RANGE.contains(&(with_bus + BUS_OFFSET)));
    }

    /// The ports are random: without the reservation, all but one of a million runs would fail.
    #[test]
    fn no_port_is_returned_twice() {
        let ports: Vec<_> = (0..600).map(|_| free_port()).collect();
        let distinct: BTreeSet<_> = ports.iter().collect();
        assert_eq!(distinct.len(), ports.len());
    }
}
