//! Blocking jobs, at most one at a time for each key.

use std::collections::BTreeMap;
use std::io;
use std::process;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;

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
    flights: Mutex<BTreeMap<K, Flight<T>>>,
}

/// A job that runs, or whose result no caller has taken yet.
#[derive(Debug)]
struct Flight<T> {
    /// The process that started the job. A forked child has a copy of this entry, but not the thread.
    process: u32,
    result: Receiver<T>,
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

/// The most attempts to take the lock. A running thread holds it for less than a microsecond.
const MAX_LOCK_ATTEMPTS: u32 = 1000;

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
        if let Some(mut flights) = self.lock() {
            flights.retain(|_, flight| flight.is_usable(self.result_ttl));
            if let Some(flight) = flights.get(key) {
                return Ok(flight.result.clone());
            }
            if flights.len() >= MAX_JOBS {
                return Err(io::Error::other(format!("{MAX_JOBS} other jobs are running")));
            }
            flights.insert(key.clone(), Flight { process: process::id(), result: result.clone() });
        }
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
        if let Some(mut flights) = self.lock()
            && flights.get(key).is_some_and(|flight| flight.result.same_channel(result))
        {
            flights.remove(key);
        }
    }

    /// Returns `None` if the lock stays taken. That happens in a forked child, if a thread of the parent held the lock
    /// at the fork. Then each caller runs its own job.
    fn lock(&self) -> Option<MutexGuard<'_, BTreeMap<K, Flight<T>>>> {
        for _ in 0..MAX_LOCK_ATTEMPTS {
            match self.flights.try_lock() {
                Ok(flights) => return Some(flights),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        }
        None
    }
}

impl<T> Flight<T> {
    /// Returns true if the job is running, or its result is younger than `result_ttl`.
    fn is_usable(&self, result_ttl: Duration) -> bool {
        // The process is compared first: in a forked child the channel's lock may never be released.
        self.process == process::id()
            && match &*self.result.borrow() {
                Some((at, _)) => at.elapsed() < result_ttl,
                None => self.result.has_changed().is_ok(),
            }
    }
}

#[cfg(test)]
mod tests;
