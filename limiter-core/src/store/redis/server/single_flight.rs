//! Blocking jobs, at most one at a time for each key.

use std::collections::BTreeMap;
use std::io;
use std::process;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Runs blocking jobs on threads of their own, at most one at a time for each key. A caller that comes while the job of
/// its key runs gets the result of that job.
///
/// So a job that hangs costs one thread, however many callers have given up waiting for it, and delays no other key. The
/// threads belong to no runtime: a job may outlive the runtimes of all its callers.
#[derive(Debug)]
pub(super) struct SingleFlight<K, T> {
    thread_name: &'static str,
    /// The longest time for which a result is kept that had no caller left when it came.
    kept: Duration,
    flights: Mutex<BTreeMap<K, Flight<T>>>,
}

/// A job that runs, or whose result nobody has taken yet.
#[derive(Debug)]
struct Flight<T> {
    /// The process that started the job. A forked child has a copy of this entry, and not the thread.
    process: u32,
    result: Receiver<T>,
}

/// The result and when it came. Closed without one if the job panicked.
type Receiver<T> = watch::Receiver<Option<(Instant, T)>>;

/// The reason why a job gave no result.
#[derive(Debug)]
pub(super) enum JobError {
    /// It panicked, or its thread could not be started for the caller who came first.
    Ended,
    /// Its thread cannot be started.
    NotStarted(io::Error),
}

/// Jobs under way at the same time.
const MAX_JOBS: usize = 256;

/// Attempts to take the lock, which is held for less than a microsecond by a thread that runs.
const LOCK_ATTEMPTS: u32 = 1000;

impl<K, T> SingleFlight<K, T>
where
    K: Clone + Ord,
    T: Clone + Send + Sync + 'static,
{
    pub(super) const fn new(thread_name: &'static str, kept: Duration) -> Self {
        Self { thread_name, kept, flights: Mutex::new(BTreeMap::new()) }
    }

    /// Runs a job, or waits for the one of the same key that runs already.
    ///
    /// # Cancel safety
    ///
    /// A job that was started goes on. Its result is kept for the next caller, if that comes soon enough.
    pub(super) async fn run(&self, key: K, job: impl FnOnce() -> T + Send + 'static) -> Result<T, JobError> {
        let mut result = self.join(&key, job).map_err(JobError::NotStarted)?;
        let done = result.wait_for(Option::is_some).await.ok().and_then(|done| done.clone());
        self.finish(&key, &result);
        done.map(|(_, value)| value).ok_or(JobError::Ended)
    }

    fn join(&self, key: &K, job: impl FnOnce() -> T + Send + 'static) -> io::Result<Receiver<T>> {
        let (sender, result) = watch::channel(None);
        if let Some(mut flights) = self.lock() {
            flights.retain(|_, flight| flight.is_of_use(self.kept));
            if let Some(flight) = flights.get(key) {
                return Ok(flight.result.clone());
            }
            if flights.len() >= MAX_JOBS {
                return Err(io::Error::other(format!("{MAX_JOBS} others are under way")));
            }
            flights.insert(key.clone(), Flight { process: process::id(), result: result.clone() });
        }
        let run = move || {
            // A panic drops the sender, which ends the job for all callers that wait.
            let value = job();
            sender.send_replace(Some((Instant::now(), value)));
        };
        thread::Builder::new().name(self.thread_name.to_owned()).spawn(run)?;
        Ok(result)
    }

    /// Forgets a job whose result has been taken.
    fn finish(&self, key: &K, result: &Receiver<T>) {
        if let Some(mut flights) = self.lock()
            && flights.get(key).is_some_and(|flight| flight.result.same_channel(result))
        {
            flights.remove(key);
        }
    }

    /// Returns `None` if the lock stays taken: by a thread of the parent process, at the moment of a fork. Then each
    /// caller has a job of its own.
    fn lock(&self) -> Option<MutexGuard<'_, BTreeMap<K, Flight<T>>>> {
        for _ in 0..LOCK_ATTEMPTS {
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
    /// Whether the job may still give a result, or has given one that is not too old.
    fn is_of_use(&self, kept: Duration) -> bool {
        // First the process: in a child even the channel may be locked for ever.
        self.process == process::id()
            && match &*self.result.borrow() {
                Some((at, _)) => at.elapsed() < kept,
                None => self.result.has_changed().is_ok(),
            }
    }
}

#[cfg(test)]
mod tests;
