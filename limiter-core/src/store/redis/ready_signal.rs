//! The result of the first attempt to connect.

use std::future::poll_fn;
use std::pin::Pin;

use tokio::sync::oneshot;

use crate::{Error, ErrorKind};

/// Tells whoever waits for a first connection how it went.
#[derive(Debug)]
pub(crate) struct ReadySignal(oneshot::Sender<Result<(), Error>>);

impl ReadySignal {
    pub(crate) fn channel() -> (Self, impl Future<Output = Result<(), Error>>) {
        let (sender, mut receiver) = oneshot::channel();
        let answer = poll_fn(move |context| {
            Pin::new(&mut receiver).poll(context).map(|told| told.unwrap_or_else(|_| Err(stopped())))
        });
        (Self(sender), answer)
    }

    pub(crate) fn send(self, result: Result<(), Error>) {
        // Whoever waited may have been dropped; then the store is, too.
        let _ = self.0.send(result);
    }
}

/// The error of a worker whose thread has ended.
pub(crate) fn stopped() -> Error {
    Error::new(ErrorKind::Unavailable, "the thread that talks to Redis has stopped")
}
