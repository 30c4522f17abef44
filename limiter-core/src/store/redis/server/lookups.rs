//! DNS lookups, which may hang: at most one at a time for each host name.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::store::redis::server::single_flight::{JobError, SingleFlight};

/// The longest time for which a result is kept if no attempt to connect waits for it any more.
const RESULT_TTL: Duration = Duration::from_secs(5);

/// The lookups in flight in this process, by host. All limiters share them.
static LOOKUPS: Lookups = SingleFlight::new("rate-limited-dns", RESULT_TTL);

type Lookups = SingleFlight<String, LookupResult>;

/// The result of a lookup. All callers that wait for it share it, so the error is in an `Arc`.
type LookupResult = Result<Vec<SocketAddr>, Arc<io::Error>>;

/// Returns the addresses of a host, at least one, or an error after `time_limit`. A numeric address needs no lookup.
pub(super) async fn resolve(host: &str, port: u16, time_limit: Duration) -> io::Result<Vec<SocketAddr>> {
    look_up(&LOOKUPS, |host| (host, 0).to_socket_addrs().map(Iterator::collect), host, port, time_limit).await
}

async fn look_up(
    lookups: &Lookups,
    resolver: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    host: &str,
    port: u16,
    time_limit: Duration,
) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let name = host.to_owned();
    let lookup = lookups.run(host.to_owned(), move || resolver(&name).map_err(Arc::new));
    let mut addresses = match timeout(time_limit, lookup).await {
        Ok(Ok(Ok(addresses))) => addresses,
        Ok(Ok(Err(error))) => return Err(io::Error::new(error.kind(), error.to_string())),
        Ok(Err(JobError::NoResult)) => {
            return Err(io::Error::other("the lookup of the host name panicked, or its thread could not be started"));
        }
        Ok(Err(JobError::NotStarted(error))) => {
            let problem = format!("cannot start the lookup of the host name: {error}");
            return Err(io::Error::new(error.kind(), problem));
        }
        Err(_) => {
            let problem = format!("the lookup of the host name did not end within {time_limit:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
        }
    };
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host name has no address"));
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
    /// Too short for any lookup.
    const NO_TIME: Duration = Duration::ZERO;

    type Resolver = fn(&str) -> io::Result<Vec<SocketAddr>>;

    fn address(last: u8) -> SocketAddr {
        (Ipv4Addr::new(192, 0, 2, last), 0).into()
    }

    #[tokio::test]
    async fn a_hanging_lookup_is_shared_and_delays_no_other_name() {
        let lookups = SingleFlight::new("test-dns", RESULT_TTL);
        let counts = Arc::new(Mutex::new(HashMap::<String, u32>::new()));
        let (release, released) = channel();
        let released = Arc::new(Mutex::new(released));
        let resolver = || {
            let (counts, released) = (Arc::clone(&counts), Arc::clone(&released));
            move |host: &str| {
                *counts.lock().expect("no panic").entry(host.to_owned()).or_default() += 1;
                if host == "hangs" {
                    released.lock().expect("no panic").recv().expect("released");
                }
                Ok(vec![address(1), address(2)])
            }
        };
        for _ in 0..40 {
            let error = look_up(&lookups, resolver(), "hangs", 6379, NO_TIME).await.expect_err("it hangs");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            let other = look_up(&lookups, resolver(), "other", 7, LONG).await.expect("two addresses");
            assert_eq!(other.iter().map(SocketAddr::port).collect::<Vec<_>>(), [7, 7]);
        }
        release.send(()).expect("it waits");
        let addresses = look_up(&lookups, resolver(), "hangs", 6379, LONG).await.expect("two addresses");
        assert_eq!(addresses.len(), 2);
        let counts = counts.lock().expect("no panic");
        assert_eq!((counts["hangs"], counts["other"]), (1, 40));
    }

    #[tokio::test]
    async fn numeric_addresses_are_not_looked_up() {
        let lookups = SingleFlight::new("test-dns", RESULT_TTL);
        for (host, expected) in [("127.0.0.1", "127.0.0.1:6379"), ("::1", "[::1]:6379")] {
            let resolver = |host: &str| panic!("{host} is looked up");
            let addresses = look_up(&lookups, resolver, host, 6379, NO_TIME).await.expect("an address");
            assert_eq!(addresses, [expected.parse().expect("an address")]);
        }
    }

    #[tokio::test]
    async fn a_lookup_without_an_address_is_an_error() {
        let lookups = SingleFlight::new("test-dns", RESULT_TTL);
        let failing: [Resolver; 3] = [
            |_| Ok(Vec::new()),
            |_| Err(io::Error::other("failed to lookup address information: Name or service not known")),
            |_| panic!("the system's own fault"),
        ];
        for (fails, expected) in failing.into_iter().zip(["has no address", "Name or service", "panicked"]) {
            let error = look_up(&lookups, fails, "host", 6379, LONG).await.expect_err("no address");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[tokio::test]
    async fn resolves_localhost_by_the_system() {
        let addresses = resolve("localhost", 6379, LONG).await.expect("an address");
        assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 6379), "{addresses:?}");
    }
}
