//! Values that belong to one process, and locks that a fork may leave taken.
//!
//! A child of `fork` has one thread. The other threads of its parent do not exist in it, but memory stays as it was. So
//! a worker does not reply, and a lock that another thread held is never released.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex as StdMutex, MutexGuard as StdMutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use std::{fmt, mem, thread};

use once_cell::sync::OnceCell;

use crate::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::{Error, ErrorKind};

/// A value for each process. After a fork the child makes its own, and never changes or drops those of its ancestors.
pub(crate) struct PerProcess<T>(Next<T>);

/// The values of a process and of its descendants, up to this one.
struct Next<T> {
    /// The lock that is held while the value is made.
    making: StdMutex<()>,
    /// The process of the lock's last holder.
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

    /// Creates a `PerProcess` that already has the value of this process.
    pub(crate) fn with_value(value: T) -> Self {
        let this = Self::new();
        this.0.set(id(), value);
        this
    }

    /// Returns the latest value, which may be an ancestor's.
    pub(crate) fn latest(&self) -> Option<&T> {
        let mut latest = self.0.node.get()?;
        while let Some(next) = latest.next.node.get() {
            latest = next;
        }
        Some(&latest.value)
    }

    /// Returns the value of this process, and makes it if there is none.
    ///
    /// # Errors
    /// The error of `make`, or [`ErrorKind::Forked`] if another thread was making one when this process was forked.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> Result<T, Error>) -> Result<&T, Error> {
        let here = id();
        match self.find(here) {
            Ok(value) => Ok(value),
            Err(next) => {
                let _making = next.lock_to_make(here).ok_or_else(forked)?;
                match self.find(here) {
                    Ok(value) => Ok(value),
                    Err(next) => Ok(next.set(here, make()?)),
                }
            }
        }
    }

    /// Returns the value of a process, or the end of the list, where it is to be added.
    fn find(&self, process: u32) -> Result<&T, &Next<T>> {
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

    /// Locks `making`. `None` if another thread was making the value when this process was forked.
    fn lock_to_make(&self, here: u32) -> Option<StdMutexGuard<'_, ()>> {
        let guard = retry_until(MAKING_TIMEOUT, || match self.making.try_lock() {
            // The maker is a thread of this process, so it will finish.
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

/// A value that only the process that made it drops. In a child of `fork` the drop would write to what the parent
/// shares with it, or wait for a thread that does not exist.
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

    /// Returns the value in the process that made it.
    pub(crate) fn get_at_home(&mut self) -> Option<&mut T> {
        self.value.as_mut().filter(|_| is_this(self.process))
    }

    /// Returns the process that made the value.
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

/// Returns true if this process has the given id.
pub(crate) fn is_this(process: u32) -> bool {
    id() == process
}

/// Returns the error of a limiter that cannot be used in this process.
#[cold]
pub(crate) fn forked() -> Error {
    let problem = "this process was forked while another thread of its parent was inside the limiter: build a limiter \
                   here, or fork before others use it";
    Error::new(ErrorKind::Forked, problem)
}

/// The longest wait for a lock whose holder may be a thread of another process. A thread of this process holds it for a
/// short time, unless the machine stops.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_millis(100);
/// The longest wait for a lock for which an earlier wait has timed out.
pub(crate) const ORPHANED_LOCK_TIMEOUT: Duration = Duration::from_millis(1);
/// The longest wait for a thread that makes a value and may be of another process.
const MAKING_TIMEOUT: Duration = Duration::from_millis(100);
const RETRY_INTERVAL: Duration = Duration::from_micros(100);

/// Locks a mutex of the process `home` that another thread holds. `None` in another process, if the lock is not
/// released in time: then another thread of the parent held it at the fork.
pub(crate) fn lock_contended<T>(mutex: &Mutex<T>, home: u32, max_wait: Duration) -> Option<MutexGuard<'_, T>> {
    if cfg!(all(test, limiter_loom)) || is_this(home) {
        // No code of the program runs under the lock, and a panic under it leaves a valid value.
        return Some(mutex.lock().unwrap_or_else(PoisonError::into_inner));
    }
    retry_until(max_wait, || unless_blocked(mutex.try_lock()))
}

/// Locks a mutex of the process `home`, as [`lock_contended`] does if another thread holds it.
pub(crate) fn lock<T>(mutex: &Mutex<T>, home: u32) -> Option<MutexGuard<'_, T>> {
    unless_blocked(mutex.try_lock()).or_else(|| lock_contended(mutex, home, LOCK_TIMEOUT))
}

/// Locks data that a worker shares with its callers. `None` in a child of the process `home`, if the lock is taken: the
/// child no longer uses that data.
#[cfg(feature = "redis")]
pub(crate) fn lock_at_home<T>(mutex: &Mutex<T>, home: u32) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(_) => lock_contended(mutex, home, Duration::ZERO),
    }
}

/// Locks data that a worker shares with its callers for reading. `None` as in `lock_at_home`.
pub(crate) fn read_at_home<T>(lock: &RwLock<T>, home: u32) -> Option<RwLockReadGuard<'_, T>> {
    if let Ok(guard) = lock.try_read() {
        return Some(guard);
    }
    (cfg!(all(test, limiter_loom)) || is_this(home)).then(|| lock.read().unwrap_or_else(PoisonError::into_inner))
}

/// Locks data that a worker shares with its callers for writing. `None` as in `lock_at_home`.
pub(crate) fn write_at_home<T>(lock: &RwLock<T>, home: u32) -> Option<RwLockWriteGuard<'_, T>> {
    if let Ok(guard) = lock.try_write() {
        return Some(guard);
    }
    (cfg!(all(test, limiter_loom)) || is_this(home)).then(|| lock.write().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the guard of an attempt to lock, unless another thread holds the lock.
pub(crate) fn unless_blocked<G>(attempt: Result<G, TryLockError<G>>) -> Option<G> {
    match attempt {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Repeats an attempt until it succeeds, or for `max_wait`. The number of attempts must correspond to that time too,
/// because the process itself may have been stopped meanwhile.
fn retry_until<T>(max_wait: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let (began, mut attempts) = (Instant::now(), 0);
    loop {
        if let Some(value) = attempt() {
            return Some(value);
        }
        attempts += 1;
        if began.elapsed() >= max_wait && RETRY_INTERVAL * attempts >= max_wait {
            return None;
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

// The id of this process, without a system call for each request.

/// Returns the id of this process. A thread makes the system call once, and again after a fork.
///
/// A child that was created without the handlers of `pthread_atfork`, as by `_Fork` or the raw system call, gets the id
/// of its parent.
#[cfg(feature = "redis")]
pub(crate) fn id() -> u32 {
    use std::cell::Cell;
    use std::process;

    use forkguard::Guard;

    struct CachedId {
        guard: Guard,
        id: u32,
    }

    // The thread-local must stay usable while a thread ends, because destructors compare ids.
    const { assert!(!mem::needs_drop::<CachedId>()) };

    thread_local! {
        static CACHED: Cell<Option<CachedId>> = const { Cell::new(None) };
    }

    CACHED.with(|cached| {
        let Some(mut this) =
            cached.take().or_else(|| Some(CachedId { guard: Guard::try_new().ok()?, id: process::id() }))
        else {
            return process::id();
        };
        if this.guard.detected_fork() {
            this.id = process::id();
        }
        let id = this.id;
        cached.set(Some(this));
        id
    })
}

/// Returns the id of this process.
#[cfg(not(feature = "redis"))]
pub(crate) fn id() -> u32 {
    std::process::id()
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// An id that no process has.
    const NO_PROCESS: u32 = 0;

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
            assert_eq!(values.get_or_make(make).expect("made"), &1);
        }
        // A child of `fork` inherits the value of its parent.
        let inherited = PerProcess::new();
        inherited.0.set(NO_PROCESS, 7);
        assert_eq!(inherited.latest(), Some(&7));
        assert_eq!(inherited.get_or_make(make).expect("made"), &2);
        assert_eq!(inherited.latest(), Some(&2));
    }

    #[test]
    fn a_value_that_is_never_finished_is_an_error() {
        let values = PerProcess::<u32>::new();
        let _making = values.0.making.lock().expect("no panic");
        let error = values.get_or_make(|| Ok(1)).expect_err("another thread makes it");
        assert_eq!(error.kind(), ErrorKind::Forked);
    }

    #[test]
    fn a_lock_is_awaited_at_home_and_times_out_elsewhere() {
        let mutex = Mutex::new(());
        let held = mutex.lock().expect("no panic");
        assert!(lock_contended(&mutex, NO_PROCESS, ORPHANED_LOCK_TIMEOUT).is_none());
        thread::scope(|scope| {
            let waits = scope.spawn(|| lock_contended(&mutex, id(), Duration::ZERO).is_some());
            drop(held);
            assert!(waits.join().expect("no panic"));
        });
        assert!(lock_contended(&mutex, NO_PROCESS, ORPHANED_LOCK_TIMEOUT).is_some());
    }

    #[test]
    fn a_value_of_another_process_is_not_dropped() {
        let counted = std::sync::Arc::new(());
        let mut foreign = DroppedAtHome::new(std::sync::Arc::clone(&counted));
        assert!(foreign.get_at_home().is_some());
        foreign.process = NO_PROCESS;
        assert!(foreign.get_at_home().is_none());
        drop(foreign);
        assert_eq!(std::sync::Arc::strong_count(&counted), 2);
        drop(DroppedAtHome::new(std::sync::Arc::clone(&counted)));
        assert_eq!(std::sync::Arc::strong_count(&counted), 2);
    }
}
