//! The result of the first attempt to connect.

use std::future::poll_fn;
use std::pin::Pin;

use tokio::sync::oneshot;
use tokio::task::unconstrained;

use crate::{Error, ErrorKind};

/// Sends the result of the first attempt to connect to the caller that waits for it.
#[derive(Debug)]
pub(crate) struct ReadySignal(oneshot::Sender<Result<(), Error>>);

impl ReadySignal {
    /// Creates a signal and the future of its result. The future returns an error if the signal is dropped.
    pub(crate) fn channel() -> (Self, impl Future<Output = Result<(), Error>>) {
        let (sender, receiver) = oneshot::channel();
        // As for a call, tokio's budget does not apply.
        let mut receiver = unconstrained(receiver);
        let result = poll_fn(move |context| {
            let received = Pin::new(&mut receiver).poll(context);
            received.map(|result| result.unwrap_or_else(|_| Err(worker_stopped())))
        });
        (Self(sender), result)
    }

    pub(crate) fn send(self, result: Result<(), Error>) {
        // The waiting caller may have been dropped, and with it the store.
        let _ = self.0.send(result);
    }
}

/// The error of a worker whose thread has ended.
pub(crate) fn worker_stopped() -> Error {
    Error::new(ErrorKind::Unavailable, "the thread for Redis has stopped")
}
