//! A stream whose writes fail when its client takes nothing for a time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream whose writes fail when its client takes nothing for a time.
pub(crate) struct TimedWrites<S> {
    stream: S,
    longest: Duration,
    /// Fires at the end of the time of a write that has begun to wait.
    stall: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedWrites<S> {
    /// Creates the stream. A write that waits for longer fails.
    pub(crate) fn new(stream: S, longest: Duration) -> Self {
        Self { stream, longest, stall: None }
    }

    fn timed<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>>
    where
        S: Unpin,
    {
        if let Poll::Ready(result) = poll(Pin::new(&mut self.stream), context) {
            self.stall = None;
            return Poll::Ready(result);
        }
        let longest = self.longest;
        ready!(self.stall.get_or_insert_with(|| Box::pin(sleep(longest))).as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedWrites<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedWrites<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.timed(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.timed(context, AsyncWrite::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.timed(context, AsyncWrite::poll_shutdown)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.timed(context, |stream, context| stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_when_its_reader_takes_nothing() {
        let (near, mut far) = duplex(64);
        let mut stream = TimedWrites::new(near, Duration::from_secs(20));
        let began = Instant::now();
        let reader = tokio::spawn(async move {
            // Each byte that is taken begins the time anew.
            for _ in 0..10 {
                sleep(Duration::from_secs(19)).await;
                far.read_u8().await.expect("a byte");
            }
            far
        });
        let error = stream.write_all(&[0; 100]).await.expect_err("no reader");
        assert_eq!((error.kind(), began.elapsed().as_secs()), (io::ErrorKind::TimedOut, 10 * 19 + 20));
        drop(reader.await);
    }
}
