//! DNS lookups, which may hang: at most one at a time for each host name.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use std::{io, thread};

use redis::{RedisError, RedisResult};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::sync::process::PerProcess;

/// The longest time for which a result is kept if no attempt to connect waits for it any more.
const RESULT_TTL: Duration = Duration::from_secs(5);

/// The lookups in flight in this process, by host. All limiters share them.
static LOOKUPS: PerProcess<Lookups> = PerProcess::new();

type Lookups = SingleFlight<String, LookupResult>;

/// The result of a lookup. All callers that wait for it share it, so the error is in an `Arc`.
type LookupResult = Result<Vec<SocketAddr>, Arc<io::Error>>;

/// Returns the addresses of a host, at least one, or an error after `time_limit`. A numeric address needs no lookup.
pub(super) async fn resolve(host: &str, port: u16, time_limit: Duration) -> io::Result<Vec<SocketAddr>> {
    let lookups = LOOKUPS.get(|_| SingleFlight::new("rate-limited-dns", RESULT_TTL));
    look_up(lookups, |host| (host, 0).to_socket_addrs().map(Iterator::collect), host, port, time_limit).await
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

// Blocking jobs, at most one at a time for each key.

/// Runs each blocking job on its own thread, at most one job at a time for each key. A caller whose key has a running
/// job gets the result of that job.
///
/// A hanging job occupies one thread, however many callers have given up on it, and delays no other key. The threads
/// belong to no runtime, so a job may outlive the runtimes of all its callers.
#[derive(Debug)]
pub(super) struct SingleFlight<K, T> {
    thread_name: &'static str,
    /// The longest time for which a result is kept if no caller waits for it any more.
    result_ttl: Duration,
    /// The jobs that run, or whose result no caller has taken yet.
    flights: Mutex<BTreeMap<K, Receiver<T>>>,
}

/// Receives the result and the time at which it was ready. Closed without a result if the job panicked.
type Receiver<T> = watch::Receiver<Option<(Instant, T)>>;

/// The reason why a job has no result.
#[derive(Debug)]
pub(super) enum JobError {
    /// The job panicked, or the first caller could not start its thread.
    NoResult,
    /// This caller cannot start a thread for the job.
    NotStarted(io::Error),
}

/// The most jobs that may be in flight at the same time.
const MAX_JOBS: usize = 256;

impl<K, T> SingleFlight<K, T>
where
    K: Clone + Ord,
    T: Clone + Send + Sync + 'static,
{
    pub(super) const fn new(thread_name: &'static str, result_ttl: Duration) -> Self {
        Self { thread_name, result_ttl, flights: Mutex::new(BTreeMap::new()) }
    }

    /// Runs a job, or waits for the running job of the same key.
    ///
    /// # Cancel safety
    ///
    /// If this future is dropped, the job continues. Its result is kept for the next caller, for at most `result_ttl`.
    pub(super) async fn run(&self, key: K, job: impl FnOnce() -> T + Send + 'static) -> Result<T, JobError> {
        let mut result = self.join(&key, job).map_err(JobError::NotStarted)?;
        let done = result.wait_for(Option::is_some).await.ok().and_then(|done| done.clone());
        self.finish(&key, &result);
        done.map(|(_, value)| value).ok_or(JobError::NoResult)
    }

    fn join(&self, key: &K, job: impl FnOnce() -> T + Send + 'static) -> io::Result<Receiver<T>> {
        let (sender, result) = watch::channel(None);
        let mut flights = self.lock();
        flights.retain(|_, result| is_usable(result, self.result_ttl));
        if let Some(result) = flights.get(key) {
            return Ok(result.clone());
        }
        if flights.len() >= MAX_JOBS {
            return Err(io::Error::other(format!("{MAX_JOBS} other jobs are running")));
        }
        flights.insert(key.clone(), result.clone());
        drop(flights);
        let run = move || {
            // A panic drops the sender, and all waiting callers get `NoResult`.
            let value = job();
            sender.send_replace(Some((Instant::now(), value)));
        };
        thread::Builder::new().name(self.thread_name.to_owned()).spawn(run)?;
        Ok(result)
    }

    /// Removes a job whose result has been taken.
    fn finish(&self, key: &K, result: &Receiver<T>) {
        let mut flights = self.lock();
        if flights.get(key).is_some_and(|present| present.same_channel(result)) {
            flights.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Receiver<T>>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if the job is running, or its result is younger than `result_ttl`.
fn is_usable<T>(result: &Receiver<T>, result_ttl: Duration) -> bool {
    match &*result.borrow() {
        Some((at, _)) => at.elapsed() < result_ttl,
        None => result.has_changed().is_ok(),
    }
}

// Futures whose polls may block.

/// Runs a future whose polls may block. Each poll is a job for the runtime's blocking pool, and between two polls no
/// thread is occupied.
///
/// A poll may outlive the runtime, which does not wait for it. Sockets and tasks then return errors. Only a timer would
/// panic, so the future must have none.
pub(super) async fn poll_on_blocking_threads<T, F>(future: F) -> RedisResult<T>
where
    T: Send + 'static,
    F: Future<Output = RedisResult<T>> + Send + 'static,
{
    let woken = Arc::new(NotifyWaker(Notify::new()));
    let mut future = Box::pin(future);
    loop {
        let waker = Waker::from(Arc::clone(&woken));
        let poll = move || {
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            (polled, future)
        };
        let (polled, unfinished) = spawn_blocking(poll).await.map_err(|_| interrupted())?;
        if let Poll::Ready(output) = polled {
            return output;
        }
        future = unfinished;
        woken.0.notified().await;
    }
}

/// Wakes the task that submits polls to the blocking threads.
struct NotifyWaker(Notify);

impl Wake for NotifyWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// The error of a future whose poll panicked, or was dropped with the runtime.
fn interrupted() -> RedisError {
    io::Error::from(io::ErrorKind::Interrupted).into()
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

#[cfg(test)]
mod single_flight_tests;
