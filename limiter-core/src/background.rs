//! Threads of the process that run futures without a caller that waits.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::{io, thread};

use once_cell::sync::OnceCell;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

use crate::run::block_on;
use crate::sync::process::{AtHome, PerProcess};
use crate::sync::{Mutex, lock};

/// The futures of the process that are not done, and the thread that runs them.
#[derive(Default)]
struct Background {
    thread: OnceCell<Handle>,
    /// Their number, of those that are done too.
    begun: AtomicU64,
    /// The numbers of those that are not done. They begin in the order of their numbers.
    open: Mutex<BTreeSet<u64>>,
    /// Tells that a future is done.
    done: Notify,
}

/// A future that is not done until this is dropped.
struct OpenFuture {
    number: u64,
}

static BACKGROUND: PerProcess<Background> = PerProcess::new();

/// Runs a future to its end, also if its caller is gone. It is polled once before this returns, on this thread, and then on
/// a thread that all limiters of the process share.
pub(crate) fn run_in_background(future: impl Future<Output = ()> + Send + 'static) {
    let mut future = Box::pin(future);
    if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
        return;
    }
    let thread = || start_runtime("rate-limited-settle", &mut Builder::new_current_thread());
    match BACKGROUND.here().thread.get_or_try_init(thread) {
        Ok(background) => {
            let open = OpenFuture::new();
            drop(background.spawn(async move {
                let _open = open;
                future.await;
            }));
        }
        // Without a thread its caller's runs it.
        Err(_) => block_on(future),
    }
}

/// Waits until all futures are done that run in the background now. Returns at once on the thread that runs them, and in a
/// child of the process that began the wait.
pub(crate) async fn flush() {
    // The error is that of a child, whose futures are others.
    let _ = AtHome::new(Box::pin(wait_for_open())).await;
}

async fn wait_for_open() {
    let background = BACKGROUND.here();
    let runs_them = |thread: &Handle| Handle::try_current().is_ok_and(|this| this.id() == thread.id());
    if background.thread.get().is_some_and(runs_them) {
        return;
    }
    let last = background.begun.load(Ordering::Relaxed);
    loop {
        // It is told from here on, so no end is missed.
        let done = background.done.notified();
        if lock(&background.open).first().is_none_or(|first| *first > last) {
            return;
        }
        done.await;
    }
}

impl OpenFuture {
    fn new() -> Self {
        let background = BACKGROUND.here();
        let mut open = lock(&background.open);
        let number = background.begun.fetch_add(1, Ordering::Relaxed) + 1;
        open.insert(number);
        Self { number }
    }
}

impl Drop for OpenFuture {
    fn drop(&mut self) {
        let background = BACKGROUND.here();
        lock(&background.open).remove(&self.number);
        background.done.notify_waiters();
    }
}

/// Starts a thread that runs the tasks of a runtime until the process ends.
///
/// # Errors
/// The system cannot start a thread.
pub(crate) fn start_runtime(thread: &str, runtime: &mut Builder) -> io::Result<Handle> {
    let runtime = runtime.build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name(thread.to_owned()).spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}
