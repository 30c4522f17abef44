//! Free TCP ports.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Below what systems give to connections and to port 0: nobody takes a port by chance while its server restarts.
const PORTS: Range<u16> = 20_000..32_768;

/// How much higher a node of a cluster listens for the other nodes.
pub(crate) const BUS_OFFSET: u16 = 10_000;

/// What this process has been given: the port of a server that is dead for a while looks free, but must stay its own.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port of 127.0.0.1 that was free a moment ago. Another process may take it before it is used.
pub(super) fn free_port() -> u16 {
    free_with(&[0])
}

/// The same with the port that a node of a cluster takes beside it, `BUS_OFFSET` above. That one is in `PORTS`.
pub(crate) fn free_port_with_bus() -> u16 {
    free_with(&[BUS_OFFSET, 0]) - BUS_OFFSET
}

/// A port that is free together with those so far below it.
fn free_with(below: &[u16]) -> u16 {
    let count = u64::from(PORTS.end - PORTS.start);
    loop {
        let offset = RandomState::new().hash_one(()) % count;
        let port = PORTS.start + u16::try_from(offset).expect("below the length of a range of u16");
        let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
        if below.iter().all(|below| !given.contains(&(port - below)) && is_free(port - below)) {
            given.extend(below.iter().map(|below| port - below));
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
        assert!(PORTS.contains(&(with_bus + BUS_OFFSET)));
    }

    /// By chance it would be, in all but one of a million runs.
    #[test]
    fn no_port_is_given_twice() {
        let ports: Vec<_> = (0..600).map(|_| free_port()).collect();
        let distinct: BTreeSet<_> = ports.iter().collect();
        assert_eq!(distinct.len(), ports.len());
    }
}
