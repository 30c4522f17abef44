//! The id of this process, without a system call for each request.

/// Returns the id of this process. A thread makes the system call once, and again after a fork.
///
/// A child that was made without the handlers of `pthread_atfork`, as by `_Fork` or the raw system call, has the id of its
/// parent here.
#[cfg(feature = "redis")]
pub(crate) fn id() -> u32 {
    use std::cell::Cell;
    use std::process;

    use forkguard::Guard;

    struct Known {
        guard: Guard,
        id: u32,
    }

    // A thread that ends may still drop what compares ids.
    const { assert!(!std::mem::needs_drop::<Known>()) };

    thread_local! {
        static KNOWN: Cell<Option<Known>> = const { Cell::new(None) };
    }

    KNOWN.with(|known| {
        let Some(mut this) = known.take().or_else(|| Some(Known { guard: Guard::try_new().ok()?, id: process::id() }))
        else {
            return process::id();
        };
        if this.guard.detected_fork() {
            this.id = process::id();
        }
        let id = this.id;
        known.set(Some(this));
        id
    })
}

/// Returns the id of this process.
#[cfg(not(feature = "redis"))]
pub(crate) fn id() -> u32 {
    std::process::id()
}
