//! Futures that end although their caller is dropped, as that of a request whose client has left.

use std::fmt::{self, Debug};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::background::run_in_background;
use crate::sync::process::Process;

/// A future that is polled by its caller. If that is dropped before, it is done in the background.
///
/// The end of the process does not wait for such futures. A child of `fork` does not go on with those of
/// its parent.
#[must_use = "a future does nothing unless it is polled or dropped"]
pub struct UntilDone {
    process: Process,
    /// `None` once it is done.
    future: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl UntilDone {
    /// Creates the future. It must run no code of the program that may block.
    pub fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { process: Process::current(), future: Some(Box::pin(future)) }
    }
}

impl Future for UntilDone {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Taken out, so that one that panics is not polled again.
        let Some(mut future) = self.future.take() else { return Poll::Ready(()) };
        if future.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        self.future = Some(future);
        Poll::Pending
    }
}

impl Drop for UntilDone {
    fn drop(&mut self) {
        let Some(future) = self.future.take() else { return };
        if !self.process.is_this() {
            mem::forget(future);
            return;
        }
        run_in_background(future);
    }
}

impl Debug for UntilDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntilDone").field("is_done", &self.future.is_none()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use std::sync::mpsc::channel;
    use std::task::Waker;
    use std::thread;
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    fn poll_once(future: &mut UntilDone) -> Poll<()> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_future_that_is_dropped_before_it_is_done_goes_on() {
        let (sender, ends) = channel();
        let until_done = |released: oneshot::Receiver<u32>| {
            let sender = sender.clone();
            UntilDone::new(async move {
                let number = released.await.expect("released");
                sender.send((number, thread::current().id())).expect("the test waits");
            })
        };
        for number in 0..3 {
            let (release, released) = oneshot::channel();
            let mut future = until_done(released);
            // Dropped before its first poll, and after it.
            if number > 0 {
                assert!(poll_once(&mut future).is_pending());
            }
            drop(future);
            release.send(number).expect("it goes on");
            let (ended, thread) = ends.recv_timeout(Duration::from_secs(60)).expect("it is done");
            assert!(ended == number && thread != thread::current().id());
        }
        // One that is done runs once.
        let (release, released) = oneshot::channel();
        release.send(7).expect("it is polled");
        let mut future = until_done(released);
        assert!(poll_once(&mut future).is_ready());
        drop(future);
        drop(sender);
        let rest: Vec<_> = ends.iter().collect();
        assert_eq!(rest, [(7, thread::current().id())]);
    }

    #[test]
    fn a_child_of_fork_does_not_go_on_with_a_future_of_its_parent() {
        let (_release, released) = oneshot::channel::<u32>();
        let mut future = UntilDone::new(async move { drop(released.await) });
        future.process = Process::Id(0);
        drop(future);
        // Nothing has dropped the receiver.
        assert!(!_release.is_closed());
    }
}
