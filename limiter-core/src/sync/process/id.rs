//! The id of this process, without a system call for each request.

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
    const { assert!(!std::mem::needs_drop::<CachedId>()) };

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
