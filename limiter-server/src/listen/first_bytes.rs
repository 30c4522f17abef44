//! A connection whose client must send its first bytes within a time.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream whose reads fail if its first bytes do not come in time. Afterwards it is as the stream.
pub(crate) struct FirstBytes<S> {
    stream: S,
    missing: usize,
    /// `None` once they have come.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> FirstBytes<S> {
    /// Wraps a stream that must send `bytes` bytes within `time`.
    pub(crate) fn new(stream: S, bytes: usize, time: Duration) -> Self {
        Self { stream, missing: bytes, timer: Some(Box::pin(sleep(time))) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstBytes<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(context, buffer) {
            self.missing = self.missing.saturating_sub(buffer.filled().len() - before);
            if self.missing == 0 {
                self.timer = None;
            }
            return Poll::Ready(result);
        }
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into())),
            None => Poll::Pending,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstBytes<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_less_is_ended_and_one_that_has_sent_them_is_not() {
        let time = Duration::from_secs(10);
        for (sent, is_ended) in [(0, true), (23, true), (24, false)] {
            let (mut client, server) = duplex(64);
            client.write_all(&vec![0; sent]).await.expect("room");
            let mut stream = FirstBytes::new(server, 24, time);
            let read = async {
                let mut bytes = [0; 64];
                loop {
                    if let Err(error) = stream.read(&mut bytes).await {
                        return error.kind();
                    }
                }
            };
            let ended = tokio::time::timeout(2 * time, read).await;
            assert_eq!(ended.is_ok_and(|kind| kind == io::ErrorKind::TimedOut), is_ended, "{sent}");
        }
    }
}
