//! Futures whose polls may block.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use redis::{RedisError, RedisResult};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

/// Runs a future whose polls may block. Each poll is a job for the runtime's blocking pool, and between two polls no
/// thread is occupied.
///
/// A poll may outlive the runtime, which does not wait for it. Sockets and tasks then return errors. Only a timer would
/// panic, so the future must have none.
pub(super) async fn poll_on_blocking_threads<T, F>(future: F) -> RedisResult<T>
where
    T: Send + 'static,
    F: Future<Output = RedisResult<T>> + Send + 'static,
{
    let woken = Arc::new(NotifyWaker(Notify::new()));
    let mut future = Box::pin(future);
    loop {
        let waker = Waker::from(Arc::clone(&woken));
        let poll = move || {
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            (polled, future)
        };
        let (polled, unfinished) = spawn_blocking(poll).await.map_err(|_| interrupted())?;
        if let Poll::Ready(output) = polled {
            return output;
        }
        future = unfinished;
        woken.0.notified().await;
    }
}

/// Wakes the task that submits polls to the blocking threads.
struct NotifyWaker(Notify);

impl Wake for NotifyWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// The error of a future whose poll panicked, or was dropped with the runtime.
fn interrupted() -> RedisError {
    io::Error::from(io::ErrorKind::Interrupted).into()
}
