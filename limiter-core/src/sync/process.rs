//! Values and futures that a child of `fork` must not share with its parent.
//!
//! A child of `fork` has one thread, the one that forked. Memory stays as it was, so a lock that another thread held is
//! never released, and a thread of the parent never replies. So nothing with a lock or a thread is used in a child. It
//! stands in a [`ProcessValue`] or in a [`PerProcess`], of which the child makes its own, and that of the parent is
//! forgotten without a drop. A future that was under way fails in the child: see [`AtHome`].

use std::mem;
use std::pin::Pin;
use std::sync::{PoisonError, RwLock};
use std::task::{Context, Poll};

use forkguard::Guard;
use once_cell::race::OnceBox;
use once_cell::sync::OnceCell;

use crate::sync::unless_blocked;
use crate::{Error, ErrorKind};

/// The identity of a process among its ancestors and its children.
#[derive(Clone, Debug)]
pub(crate) enum Process {
    /// The number of forks on the way to the process. It is compared without a system call.
    Forks(Guard),
    /// The id, where the system has no memory to count forks.
    Id(u32),
}

impl Process {
    /// Returns this process.
    ///
    /// A child that was created without the handlers of `pthread_atfork`, as by `_Fork` or the raw system call, counts as
    /// its parent.
    pub(crate) fn current() -> Self {
        Guard::try_new().map_or_else(|_| Self::Id(std::process::id()), Self::Forks)
    }

    /// Returns whether this is the process that runs.
    #[inline(always)]
    pub(crate) fn is_this(&self) -> bool {
        match self {
            Self::Forks(guard) => !guard.clone().detected_fork(),
            Self::Id(id) => *id == std::process::id(),
        }
    }

    /// Checks that a call which this process has begun goes on.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`] in a child of this process.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_this() { Ok(()) } else { Err(forked()) }
    }
}

/// Returns the error of a call that a parent of this process has begun.
#[cold]
fn forked() -> Error {
    let problem = "this call was under way when the process forked, and belongs to the parent: drop it, and call again";
    Error::new(ErrorKind::Forked, problem)
}

// Values of which each process has its own.

/// A value of one process. A child of `fork` makes its own at its first use, and never locks, changes or drops that of its
/// parent.
#[derive(Debug)]
pub(crate) struct ProcessValue<T> {
    process: Process,
    /// Empty while a thread of `process` makes it.
    value: OnceCell<T>,
    /// The values of children, of which each has at most one.
    of_children: PerProcess<T>,
}

impl<T> ProcessValue<T> {
    /// Creates the value of this process.
    pub(crate) fn new(value: T) -> Self {
        Self::with(OnceCell::with_value(value))
    }

    fn with(value: OnceCell<T>) -> Self {
        Self { process: Process::current(), value, of_children: PerProcess::new() }
    }

    /// Returns the value of this process. A child makes it from the latest one of its parents, once.
    #[inline(always)]
    pub(crate) fn get(&self, in_child: impl FnOnce(&T) -> T) -> &T {
        match self.value.get() {
            Some(value) if self.process.is_this() => value,
            value => self.get_in_child(value, in_child),
        }
    }

    #[cold]
    #[inline(never)]
    fn get_in_child<'a>(&'a self, value: Option<&'a T>, in_child: impl FnOnce(&T) -> T) -> &'a T {
        // A value that was made with the first one has a parent.
        self.of_children.find(value, |parent| in_child(parent.expect("`new` has a value")))
    }

    /// Makes it what a child of this process inherits.
    #[cfg(test)]
    pub(crate) fn inherit(&mut self) {
        self.process = Process::Id(0);
    }

    /// Returns the value that was made first.
    #[cfg(test)]
    pub(crate) fn of_parent(&self) -> &T {
        self.value.get().expect("`new` has a value")
    }
}

impl<T> Drop for ProcessValue<T> {
    fn drop(&mut self) {
        if !self.process.is_this() {
            mem::forget(self.value.take());
        }
    }
}

/// A value of which each process makes its own at its first use, for statics.
#[derive(Debug)]
pub(crate) struct PerProcess<T>(OnceBox<ProcessValue<T>>);

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceBox::new())
    }

    /// Returns the value of this process. `make` gets the latest one of its parents, if they have any, and must not lock
    /// anything of it.
    #[inline]
    pub(crate) fn get(&self, make: impl FnOnce(Option<&T>) -> T) -> &T {
        match self.0.get().and_then(|first| first.value.get().filter(|_| first.process.is_this())) {
            Some(value) => value,
            None => self.find(None, make),
        }
    }

    /// Returns the value of this process, which begins as the default one.
    #[inline]
    pub(crate) fn here(&self) -> &T
    where
        T: Default,
    {
        self.get(|_| T::default())
    }

    /// Finds the value of this process behind those of its parents, or makes it. No lock of another process is taken: the
    /// place of the value is added by one atomic write, and the lock under which the value is made belongs to the place.
    #[cold]
    fn find<'a>(&'a self, parent: Option<&'a T>, make: impl FnOnce(Option<&T>) -> T) -> &'a T {
        let (mut parent, mut next) = (parent, self);
        loop {
            let place = next.0.get_or_init(|| Box::new(ProcessValue::with(OnceCell::new())));
            if place.process.is_this() {
                return place.value.get_or_init(|| make(parent));
            }
            parent = place.value.get().or(parent);
            next = &place.of_children;
        }
    }
}

/// Copies of a value that a child of `fork` may read, whatever the threads of its parent did at the fork.
///
/// One thread at a time changes it, and one copy after the other. So at the fork at most one of them was locked.
#[derive(Debug)]
pub(crate) struct ForChildren<T>([RwLock<T>; 2]);

impl<T: Clone> ForChildren<T> {
    pub(crate) fn new(value: T) -> Self {
        Self([RwLock::new(value.clone()), RwLock::new(value)])
    }

    /// Replaces the value. The caller has the lock of the original.
    pub(crate) fn set(&self, value: &T) {
        for copy in &self.0 {
            *copy.write().unwrap_or_else(PoisonError::into_inner) = value.clone();
        }
    }

    /// Returns the value, or the one before the change that was under way at the fork.
    pub(crate) fn get(&self) -> T {
        loop {
            if let Some(value) = self.0.iter().find_map(|copy| unless_blocked(copy.try_read())) {
                return value.clone();
            }
        }
    }
}

// Futures that belong to the process that began them.

/// A future that is polled and dropped in the process that made it alone. In a child of `fork` the thread that would wake
/// it does not exist, and a poll or a drop could wait for a lock of that thread, or write to what both processes share.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub(crate) struct AtHome<F> {
    process: Process,
    future: Option<F>,
}

impl<F> AtHome<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { process: Process::current(), future: Some(future) }
    }

    /// Returns it as a child of this process has it.
    #[cfg(test)]
    pub(crate) fn in_a_child(self) -> Self {
        let mut of_parent = self;
        of_parent.process = Process::Id(0);
        of_parent
    }
}

impl<F: Future + Unpin> Future for AtHome<F> {
    type Output = Result<F::Output, Error>;

    /// [`ErrorKind::Forked`] in a child of the process that made it.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let is_at_home = self.process.is_this();
        match &mut self.future {
            Some(future) if is_at_home => Pin::new(future).poll(context).map(Ok),
            _ => Poll::Ready(Err(forked())),
        }
    }
}

impl<F> Drop for AtHome<F> {
    fn drop(&mut self) {
        if !self.process.is_this() {
            mem::forget(self.future.take());
        }
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use std::future::pending;

    use super::*;

    /// A process that is never this one.
    const ANOTHER: Process = Process::Id(0);

    /// Panics when it is dropped.
    #[derive(Debug)]
    struct KeptForEver(u32);

    impl Drop for KeptForEver {
        fn drop(&mut self) {
            assert_eq!(self.0, 0, "a value of another process was dropped");
        }
    }

    /// Returns the value as a child of its process inherits it.
    fn inherited<T>(value: Option<T>) -> ProcessValue<T> {
        let value = value.map_or_else(OnceCell::new, OnceCell::with_value);
        ProcessValue { process: ANOTHER, value, of_children: PerProcess::new() }
    }

    #[test]
    fn a_process_makes_its_value_once() {
        let value = ProcessValue::new(7);
        assert_eq!(value.get(|_| unreachable!("it has one")), &7);
        let values = PerProcess::new();
        assert_eq!(values.get(|parent| parent.map_or(1, |_: &u32| 2)), &1);
        assert_eq!(values.get(|_| unreachable!("it has one")), &1);
    }

    #[test]
    fn a_child_makes_its_value_from_the_latest_of_its_parents() {
        let grandparent = inherited(Some(KeptForEver(1)));
        let parent = inherited(Some(KeptForEver(2)));
        assert!(grandparent.of_children.0.set(Box::new(parent)).is_ok());
        let in_child = |parent: &KeptForEver| {
            assert_eq!(parent.0, 2);
            KeptForEver(0)
        };
        assert_eq!(grandparent.get(in_child).0, 0);
        assert_eq!(grandparent.get(|_| unreachable!("it has one")).0, 0);
    }

    /// The lock of a parent's thread, which made its value at the fork, is not taken.
    #[test]
    fn a_child_does_not_wait_for_a_value_that_its_parent_was_making() {
        let grandparent = inherited(Some(1));
        assert!(grandparent.of_children.0.set(Box::new(inherited(None))).is_ok());
        assert_eq!(grandparent.get(|parent| parent + 1), &2);
    }

    #[test]
    fn a_copy_is_readable_while_the_other_one_is_locked() {
        let copies = ForChildren::new(1);
        copies.set(&2);
        for copy in &copies.0 {
            let _locked = copy.write().expect("no panic");
            assert_eq!(copies.get(), 2);
        }
    }

    #[test]
    fn a_future_of_another_process_fails_and_is_not_dropped() {
        let waits = |_: &KeptForEver| pending::<()>();
        let kept = KeptForEver(1);
        let mut future = AtHome { process: ANOTHER, future: Some(Box::pin(async move { waits(&kept).await })) };
        let polled = Pin::new(&mut future).poll(&mut Context::from_waker(std::task::Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Err(error)) if error.kind() == ErrorKind::Forked));
    }
}
