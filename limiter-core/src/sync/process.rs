//! Values that belong to one process, and locks that a fork may leave taken.
//!
//! A child of `fork` has one thread. The other threads of its parent are gone, but what they held stays as it was: a worker is
//! not there to answer, and a lock that one of them held is never released.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex as StdMutex, MutexGuard as StdMutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use crate::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::{Error, ErrorKind};

mod id;

pub(crate) use id::id;

/// A value for each process: after a fork the child makes its own. The values of its ancestors are never touched again.
pub(crate) struct PerProcess<T>(Next<T>);

/// The values of a process and of its descendants, up to this one.
struct Next<T> {
    /// Held while the value is made.
    making: StdMutex<()>,
    /// The process that holds it, or held it last.
    maker: AtomicU32,
    node: OnceCell<Box<Node<T>>>,
}

struct Node<T> {
    process: u32,
    value: T,
    next: Next<T>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(Next::new())
    }

    /// With the value of this process.
    pub(crate) fn with(value: T) -> Self {
        let this = Self::new();
        this.0.set(id(), value);
        this
    }

    /// The latest value. It may be that of an ancestor.
    pub(crate) fn latest(&self) -> Option<&T> {
        let mut latest = self.0.node.get()?;
        while let Some(next) = latest.next.node.get() {
            latest = next;
        }
        Some(&latest.value)
    }

    /// The value of this process, which is made if there is none.
    ///
    /// # Errors
    /// That of `make`, or [`ErrorKind::Forked`] if another thread was making one when this process was forked.
    pub(crate) fn of_this_process(&self, make: impl FnOnce() -> Result<T, Error>) -> Result<&T, Error> {
        let here = id();
        match self.of(here) {
            Ok(value) => Ok(value),
            Err(next) => {
                let _making = next.lock_to_make(here).ok_or_else(forked)?;
                match self.of(here) {
                    Ok(value) => Ok(value),
                    Err(next) => Ok(next.set(here, make()?)),
                }
            }
        }
    }

    /// The value of a process, or where it will be.
    fn of(&self, process: u32) -> Result<&T, &Next<T>> {
        let mut next = &self.0;
        while let Some(node) = next.node.get() {
            if node.process == process {
                return Ok(&node.value);
            }
            next = &node.next;
        }
        Err(next)
    }
}

impl<T> Next<T> {
    const fn new() -> Self {
        Self { making: StdMutex::new(()), maker: AtomicU32::new(0), node: OnceCell::new() }
    }

    /// `None` if another thread was making the value when this process was forked.
    fn lock_to_make(&self, here: u32) -> Option<StdMutexGuard<'_, ()>> {
        let guard = in_time(MAKING, || match self.making.try_lock() {
            // A thread of this process: it will be done.
            Err(TryLockError::WouldBlock) if self.maker.load(Ordering::Relaxed) == here => {
                Some(self.making.lock().unwrap_or_else(PoisonError::into_inner))
            }
            attempt => unless_blocked(attempt),
        });
        if guard.is_some() {
            self.maker.store(here, Ordering::Relaxed);
        }
        guard
    }

    fn set(&self, process: u32, value: T) -> &T {
        &self.node.get_or_init(|| Box::new(Node { process, value, next: Self::new() })).value
    }
}

impl<T: fmt::Debug> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PerProcess").field(&self.latest()).finish()
    }
}

/// A value that only the process that made it may drop: dropping it would write to what its parent shares with it, or wait for
/// a thread that is gone.
#[derive(Debug)]
pub(crate) struct DroppedAtHome<T> {
    process: u32,
    value: Option<T>,
}

impl<T> DroppedAtHome<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: id(), value: Some(value) }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// The process that made it.
    #[cfg(feature = "redis")]
    pub(crate) fn process(&self) -> u32 {
        self.process
    }
}

impl<T> Drop for DroppedAtHome<T> {
    fn drop(&mut self) {
        if self.process != id() {
            mem::forget(self.value.take());
        }
    }
}

/// Whether this is the process of that id.
pub(crate) fn is_this(process: u32) -> bool {
    id() == process
}

/// The error of a limiter that cannot be used in this process.
#[cold]
pub(crate) fn forked() -> Error {
    let problem = "this process was forked while another thread of its parent was inside the limiter: build a limiter here, or \
                   fork before others use it";
    Error::new(ErrorKind::Forked, problem)
}

/// Longest wait for a lock that a thread of another process may hold for ever. In this process none is held for longer than
/// the machine stands still.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);
/// The same for a lock that was waited for in vain before.
pub(crate) const SHORT_PATIENCE: Duration = Duration::from_millis(1);
/// Longest wait for another thread that makes a value, where it is not known to be of this process.
const MAKING: Duration = Duration::from_millis(100);
const BETWEEN_ATTEMPTS: Duration = Duration::from_micros(100);

/// Locks a mutex that another thread holds, and that was made in the process `home`. `None` in another process, if the lock is
/// not released in time: a thread that is not here held it at the fork.
pub(crate) fn lock_contended<T>(mutex: &Mutex<T>, home: u32, max_wait: Duration) -> Option<MutexGuard<'_, T>> {
    if cfg!(all(test, limiter_loom)) || is_this(home) {
        // A panic under the lock would be one of ours, and leave a value that is whole.
        return Some(mutex.lock().unwrap_or_else(PoisonError::into_inner));
    }
    in_time(max_wait, || unless_blocked(mutex.try_lock()))
}

/// Locks what a worker shares with its callers. `None` in a child of the process `home`, if the lock is taken: that value is not
/// used there any more.
#[cfg(feature = "redis")]
pub(crate) fn lock_at_home<T>(mutex: &Mutex<T>, home: u32) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(_) => lock_contended(mutex, home, Duration::ZERO),
    }
}

/// Locks for reading what a worker shares with its callers. `None` as for a mutex.
pub(crate) fn read_at_home<T>(lock: &RwLock<T>, home: u32) -> Option<RwLockReadGuard<'_, T>> {
    if let Ok(guard) = lock.try_read() {
        return Some(guard);
    }
    (cfg!(all(test, limiter_loom)) || is_this(home)).then(|| lock.read().unwrap_or_else(PoisonError::into_inner))
}

/// Locks for writing what a worker shares with its callers. `None` as for a mutex.
pub(crate) fn write_at_home<T>(lock: &RwLock<T>, home: u32) -> Option<RwLockWriteGuard<'_, T>> {
    if let Ok(guard) = lock.try_write() {
        return Some(guard);
    }
    (cfg!(all(test, limiter_loom)) || is_this(home)).then(|| lock.write().unwrap_or_else(PoisonError::into_inner))
}

fn unless_blocked<G>(attempt: Result<G, TryLockError<G>>) -> Option<G> {
    match attempt {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Tries until it succeeds, or for so long. Counts attempts too: time in which this process itself stood still is no time that
/// a lock was held.
fn in_time<T>(max_wait: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let (began, mut attempts) = (Instant::now(), 0);
    loop {
        if let Some(value) = attempt() {
            return Some(value);
        }
        attempts += 1;
        if began.elapsed() >= max_wait && BETWEEN_ATTEMPTS * attempts >= max_wait {
            return None;
        }
        thread::sleep(BETWEEN_ATTEMPTS);
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// No process has this id.
    const NOBODY: u32 = 0;

    #[test]
    fn a_value_is_made_once_for_each_process() {
        let values = PerProcess::new();
        assert!(values.latest().is_none());
        let made = Cell::new(0);
        let make = || {
            made.set(made.get() + 1);
            Ok(made.get())
        };
        for _ in 0..3 {
            assert_eq!(values.of_this_process(make).expect("made"), &1);
        }
        // As a child sees the value of its parent.
        let inherited = PerProcess::new();
        inherited.0.set(NOBODY, 7);
        assert_eq!(inherited.latest(), Some(&7));
        assert_eq!(inherited.of_this_process(make).expect("made"), &2);
        assert_eq!(inherited.latest(), Some(&2));
    }

    #[test]
    fn a_value_that_is_being_made_for_ever_is_a_failure() {
        let values = PerProcess::<u32>::new();
        let _making = values.0.making.lock().expect("no panic");
        let error = values.of_this_process(|| Ok(1)).expect_err("another thread makes it");
        assert_eq!(error.kind(), ErrorKind::Forked);
    }

    #[test]
    fn a_lock_is_waited_for_at_home_and_given_up_elsewhere() {
        let mutex = Mutex::new(());
        let held = mutex.lock().expect("no panic");
        assert!(lock_contended(&mutex, NOBODY, SHORT_PATIENCE).is_none());
        thread::scope(|scope| {
            let waits = scope.spawn(|| lock_contended(&mutex, id(), Duration::ZERO).is_some());
            drop(held);
            assert!(waits.join().expect("no panic"));
        });
        assert!(lock_contended(&mutex, NOBODY, SHORT_PATIENCE).is_some());
    }

    #[test]
    fn what_another_process_made_is_not_dropped() {
        let counted = std::sync::Arc::new(());
        let mut foreign = DroppedAtHome::new(std::sync::Arc::clone(&counted));
        foreign.process = NOBODY;
        drop(foreign);
        assert_eq!(std::sync::Arc::strong_count(&counted), 2);
        drop(DroppedAtHome::new(std::sync::Arc::clone(&counted)));
        assert_eq!(std::sync::Arc::strong_count(&counted), 2);
    }
}
