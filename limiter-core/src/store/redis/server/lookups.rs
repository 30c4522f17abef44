//! Addresses of hosts: look-ups that may hang, one at a time for each name.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::store::redis::server::single_flight::{JobError, SingleFlight};

/// The longest time for which an answer is kept that came between two attempts to connect.
const KEPT: Duration = Duration::from_secs(5);

/// Look-ups under way in this process, by host. All limiters share them.
static FLIGHTS: Flights = SingleFlight::new("rate-limited-dns", KEPT);

type Flights = SingleFlight<String, Answer>;

/// The answer of a resolver, which all share who wait for it: so its error is in an `Arc`.
type Answer = Result<Vec<SocketAddr>, Arc<io::Error>>;

/// Returns the addresses of a host, at least one, or an error after the given time. A numeric address is not looked up.
pub(super) async fn addresses(host: &str, port: u16, longest: Duration) -> io::Result<Vec<SocketAddr>> {
    look_up(&FLIGHTS, |host| (host, 0).to_socket_addrs().map(Iterator::collect), host, port, longest).await
}

async fn look_up(
    flights: &Flights,
    resolver: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    host: &str,
    port: u16,
    longest: Duration,
) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let name = host.to_owned();
    let look_up = flights.run(host.to_owned(), move || resolver(&name).map_err(Arc::new));
    let mut addresses = match timeout(longest, look_up).await {
        Ok(Ok(Ok(addresses))) => addresses,
        Ok(Ok(Err(error))) => return Err(io::Error::new(error.kind(), error.to_string())),
        Ok(Err(JobError::Ended)) => {
            return Err(io::Error::other("the look-up of the host's name has panicked, or its thread did not start"));
        }
        Ok(Err(JobError::NotStarted(error))) => {
            let problem = format!("the look-up of the host's name cannot be started: {error}");
            return Err(io::Error::new(error.kind(), problem));
        }
        Err(_) => {
            let problem = format!("the look-up of the host's name has not ended within {longest:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
        }
    };
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host's name has no address"));
    }
    addresses.iter_mut().for_each(|address| address.set_port(port));
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::Ipv4Addr;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::*;

    /// Longer than any test takes.
    const LONG: Duration = Duration::from_secs(60);
    /// Over before a look-up can end.
    const NO_TIME: Duration = Duration::ZERO;

    type Resolver = fn(&str) -> io::Result<Vec<SocketAddr>>;

    fn address(last: u8) -> SocketAddr {
        (Ipv4Addr::new(192, 0, 2, last), 0).into()
    }

    #[tokio::test]
    async fn a_name_that_hangs_has_one_look_up_and_delays_no_other_name() {
        let flights = SingleFlight::new("test-dns", KEPT);
        let counts = Arc::new(Mutex::new(HashMap::<String, u32>::new()));
        let (end, ends) = channel();
        let ends = Arc::new(Mutex::new(ends));
        let resolver = || {
            let (counts, ends) = (Arc::clone(&counts), Arc::clone(&ends));
            move |host: &str| {
                *counts.lock().expect("no panic").entry(host.to_owned()).or_default() += 1;
                if host == "hangs" {
                    ends.lock().expect("no panic").recv().expect("told to end");
                }
                Ok(vec![address(1), address(2)])
            }
        };
        for _ in 0..40 {
            let error = look_up(&flights, resolver(), "hangs", 6379, NO_TIME).await.expect_err("it hangs");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            let other = look_up(&flights, resolver(), "other", 7, LONG).await.expect("two addresses");
            assert_eq!(other.iter().map(SocketAddr::port).collect::<Vec<_>>(), [7, 7]);
        }
        end.send(()).expect("it waits");
        let addresses = look_up(&flights, resolver(), "hangs", 6379, LONG).await.expect("two addresses");
        assert_eq!(addresses.len(), 2);
        let counts = counts.lock().expect("no panic");
        assert_eq!((counts["hangs"], counts["other"]), (1, 40));
    }

    #[tokio::test]
    async fn numeric_addresses_are_not_looked_up() {
        let flights = SingleFlight::new("test-dns", KEPT);
        for (host, expected) in [("127.0.0.1", "127.0.0.1:6379"), ("::1", "[::1]:6379")] {
            let resolver = |host: &str| panic!("{host} is looked up");
            let addresses = look_up(&flights, resolver, host, 6379, NO_TIME).await.expect("an address");
            assert_eq!(addresses, [expected.parse().expect("an address")]);
        }
    }

    #[tokio::test]
    async fn a_look_up_without_an_address_is_an_error() {
        let flights = SingleFlight::new("test-dns", KEPT);
        let failing: [Resolver; 3] = [
            |_| Ok(Vec::new()),
            |_| Err(io::Error::other("failed to lookup address information: Name or service not known")),
            |_| panic!("the system's own fault"),
        ];
        for (fails, expected) in failing.into_iter().zip(["has no address", "Name or service", "has panicked"]) {
            let error = look_up(&flights, fails, "host", 6379, LONG).await.expect_err("no address");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[tokio::test]
    async fn the_system_knows_this_host() {
        let addresses = addresses("localhost", 6379, LONG).await.expect("an address");
        assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 6379), "{addresses:?}");
    }
}
