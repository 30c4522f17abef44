//! A stream whose writes fail when its reader stands still.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream with the longest time of a write in which nothing is taken.
pub(crate) struct TimedWrites<S> {
    stream: S,
    max_stall: Duration,
    stall: Pin<Box<Sleep>>,
    is_stalled: bool,
}

impl<S: AsyncWrite + Unpin> TimedWrites<S> {
    pub(crate) fn new(stream: S, max_stall: Duration) -> Self {
        Self { stream, max_stall, stall: Box::pin(sleep(max_stall)), is_stalled: false }
    }

    fn timed<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(result) = poll(Pin::new(&mut self.stream), context) {
            self.is_stalled = false;
            return Poll::Ready(result);
        }
        if !self.is_stalled {
            self.is_stalled = true;
            self.stall.as_mut().reset(Instant::now() + self.max_stall);
        }
        ready!(self.stall.as_mut().poll(context));
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
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const MAX_STALL: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_when_its_reader_takes_nothing() {
        let (near, _far) = duplex(8);
        let (mut stream, began) = (TimedWrites::new(near, MAX_STALL), Instant::now());
        let error = stream.write_all(&[0; 64]).await.expect_err("no reader");
        assert_eq!((error.kind(), began.elapsed().as_secs()), (io::ErrorKind::TimedOut, 20));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_to_a_slow_reader_ends() {
        let (near, mut far) = duplex(8);
        let mut stream = TimedWrites::new(near, MAX_STALL);
        let reader = tokio::spawn(async move {
            let mut taken = [0; 8];
            for _ in 0..8 {
                sleep(MAX_STALL / 2).await;
                far.read_exact(&mut taken).await.expect("bytes");
            }
        });
        stream.write_all(&[0; 64]).await.expect("the reader takes some each time");
        reader.await.expect("no panic");
    }
}
