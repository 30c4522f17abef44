//! A connection with the longest times of its client: to send a head, to be idle, and to take an answer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::timed_writes::TimedWrites;

/// The longest times of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamTimes {
    /// The time from the first byte of a request to the end of its head.
    pub(crate) head: Duration,
    /// The time from an answer to the first byte of the next request.
    pub(crate) idle: Duration,
    /// A write in which nothing is taken.
    pub(crate) stall: Duration,
}

/// The turns of a connection: an even number while it waits for a request, an odd one while it answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct TurnCount(Arc<AtomicU64>);

impl TurnCount {
    /// Begins the answer to a request, whose head has been read, or ends it.
    pub(crate) fn turn(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of turns so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A stream whose reads and writes fail when its client is too slow.
pub(crate) struct TimedStream<S> {
    stream: TimedWrites<S>,
    times: StreamTimes,
    turns: TurnCount,
    /// The turn of `since`.
    turn: u64,
    /// The instant at which the client was idle in this turn, or began a head.
    since: Instant,
    is_in_head: bool,
    /// The timer fires at the end of this head's time.
    is_armed: bool,
    /// Fires at the end of a head's time, and now and then while the client is idle.
    timer: Pin<Box<Sleep>>,
}

impl<S> TimedStream<S> {
    pub(crate) fn new(stream: S, times: StreamTimes, turns: TurnCount) -> Self {
        let (since, timer) = (Instant::now(), Box::pin(sleep(times.head)));
        // The first head has the time of a head from the connection on.
        let stream = TimedWrites::new(stream, times.stall);
        Self { stream, times, turns, turn: 0, since, is_in_head: true, is_armed: true, timer }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let turn = this.turns.get();
        let is_waiting = turn.is_multiple_of(2);
        if let Poll::Ready(result) = Pin::new(&mut this.stream).poll_read(context, buffer) {
            if is_waiting && (turn != this.turn || !this.is_in_head) {
                (this.turn, this.since, this.is_in_head) = (turn, Instant::now(), true);
                // Most heads come in one piece and need no timer.
                this.is_armed = false;
            }
            return Poll::Ready(result);
        }
        if is_waiting && turn != this.turn {
            (this.turn, this.since, this.is_in_head) = (turn, Instant::now(), false);
        }
        if is_waiting && this.is_in_head && !this.is_armed {
            this.is_armed = true;
            this.timer.as_mut().reset(this.since + this.times.head);
        }
        loop {
            ready!(this.timer.as_mut().poll(context));
            let now = Instant::now();
            let end = this.since + if this.is_in_head { this.times.head } else { this.times.idle };
            if is_waiting && now >= end {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let next = now + this.times.head;
            this.timer.as_mut().reset(if is_waiting { end.min(next) } else { next });
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const TIMES: StreamTimes =
        StreamTimes { head: Duration::from_secs(10), idle: Duration::from_secs(180), stall: Duration::from_secs(20) };

    fn stream() -> (TimedStream<DuplexStream>, DuplexStream, TurnCount) {
        let ((near, far), turns) = (duplex(64), TurnCount::default());
        (TimedStream::new(near, TIMES, turns.clone()), far, turns)
    }

    /// Reads until an error, and returns the seconds until then.
    async fn seconds_to_error(stream: &mut TimedStream<DuplexStream>) -> u64 {
        let began = Instant::now();
        let mut buffer = [0; 16];
        while stream.read(&mut buffer).await.map_err(|error| assert_eq!(error.kind(), io::ErrorKind::TimedOut)).is_ok()
        {
        }
        began.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_comes_byte_by_byte_has_its_time() {
        let (mut stream, mut far, _turns) = stream();
        let slow = tokio::spawn(async move {
            while far.write_all(b"a").await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
        assert_eq!(seconds_to_error(&mut stream).await, 10);
        drop(stream);
        slow.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_stays_for_its_time_after_an_answer() {
        let (mut stream, mut far, turns) = stream();
        for _ in 0..2 {
            far.write_all(b"head").await.expect("room");
            let mut buffer = [0; 16];
            assert_eq!(stream.read(&mut buffer).await.expect("the head"), 4);
            // An answer may take any time.
            turns.turn();
            assert!(tokio::time::timeout(Duration::from_secs(60), stream.read(&mut buffer)).await.is_err());
            turns.turn();
            assert!(tokio::time::timeout(Duration::from_secs(179), stream.read(&mut buffer)).await.is_err());
        }
        assert_eq!(seconds_to_error(&mut stream).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_head_has_the_time_of_a_head() {
        let (mut stream, mut far, turns) = stream();
        let mut buffer = [0; 16];
        far.write_all(b"head").await.expect("room");
        assert_eq!(stream.read(&mut buffer).await.expect("the head"), 4);
        turns.turn();
        turns.turn();
        assert!(tokio::time::timeout(Duration::from_secs(100), stream.read(&mut buffer)).await.is_err());
        far.write_all(b"he").await.expect("room");
        assert_eq!(stream.read(&mut buffer).await.expect("a part"), 2);
        assert_eq!(seconds_to_error(&mut stream).await, 10);
    }
}
