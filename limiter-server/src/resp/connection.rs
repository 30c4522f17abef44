//! One connection: it reads commands, decides them in their order, and writes the replies of a pipeline at once.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{io, mem};

use arc_swap::Guard;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{self, sleep_until, timeout};

use super::calls::{CALL_NAMES, CallKind, Decided, ReadCall, write_result};
use super::commands::{Command, CommandSpec, Refusal, find};
use super::parser::{Arguments, MAX_COMMAND_BYTES, Parser};
use super::reply::{Protocol, Replies};
use super::session::{Next, ServerFacts, Session};
use crate::listen::{Phase, TimedWrites};
use crate::reports::{OUTCOME_COUNT, Outcome, ProtocolReports};
use crate::service::{Catalog, DecisionService, Problem};

/// The longest time from the first bytes of a command to its end, and from the start of a connection to its password.
const MAX_COMMAND_TIME: Duration = Duration::from_secs(10);
/// The longest time in which a client takes nothing of its replies.
const MAX_STALL: Duration = Duration::from_secs(20);
/// The bytes of replies after which they are written before the next command.
const MAX_REPLY_BYTES: usize = 64 << 10;
/// The most calls of one pipeline that wait for the store at once.
const MAX_OPEN_CALLS: usize = 128;
/// The most commands of a connection before others have their turn.
const MAX_TURN: usize = 128;
/// The most bytes and the longest time for what a client sends after its last reply.
const MAX_DISCARDED_BYTES: usize = 1 << 20;
const MAX_DISCARD_TIME: Duration = Duration::from_secs(1);
/// The bytes that a connection has for commands and for replies while it is idle.
const IDLE_BYTES: usize = 4 << 10;

/// A connection of a client.
pub(super) struct Connection<'s, S> {
    stream: TimedWrites<S>,
    service: &'s DecisionService,
    facts: &'s ServerFacts,
    /// The bytes that were received and not read.
    received: Vec<u8>,
    parser: Parser,
    session: Session,
    replies: Replies,
    /// The most bytes of the next read.
    read_bytes: usize,
    /// The last calls had no decision at once, so the next calls of a pipeline are decided together.
    decides_later: bool,
    started: time::Instant,
    /// The time of the first bytes of a command that has not ended.
    command_began: Option<time::Instant>,
}

/// The next step of a connection after its replies were written.
enum Step {
    /// More commands were received than replies are kept for.
    Answer,
    /// No whole command is left.
    Receive,
    /// The last command was a call that may wait, with so many bytes.
    Wait {
        length: usize,
    },
    Close,
}

/// A call of a pipeline whose reply has its turn after those of earlier calls.
struct OpenCall<'c> {
    kind: CallKind,
    state: OpenState<'c>,
}

#[expect(clippy::large_enum_variant, reason = "nearly each becomes the large one")]
enum OpenState<'c> {
    Running(Pin<Box<dyn Future<Output = Result<Decided, Problem>> + Send + 'c>>),
    Done(Result<Decided, Problem>),
}

impl<'s, S: AsyncRead + AsyncWrite + Unpin + Send> Connection<'s, S> {
    /// Creates the connection with this number.
    pub(super) fn new(stream: S, service: &'s DecisionService, facts: &'s ServerFacts, id: u64) -> Self {
        Self {
            stream: TimedWrites::new(stream, MAX_STALL),
            service,
            facts,
            received: Vec::with_capacity(IDLE_BYTES),
            parser: Parser::default(),
            session: Session::new(id, facts),
            replies: Replies::default(),
            read_bytes: IDLE_BYTES,
            decides_later: false,
            started: time::Instant::now(),
            command_began: None,
        }
    }

    /// Serves the connection until its client ends it, breaks the protocol or is too slow, or the server closes. A server that
    /// closes first answers the commands that it has received.
    ///
    /// # Errors
    /// Those of the stream.
    pub(super) async fn serve(mut self, mut phase: watch::Receiver<Phase>) -> io::Result<()> {
        let mut closing = pin!(async move {
            // A server that is gone has closed.
            let _ = phase.wait_for(|phase| *phase == Phase::Closing).await;
        });
        let mut step = Step::Receive;
        loop {
            match step {
                Step::Receive => {
                    if !self.receive(closing.as_mut()).await? {
                        return self.close().await;
                    }
                }
                // The turn of other connections.
                Step::Answer => yield_now().await,
                Step::Wait { length } => {
                    if !self.wait(length).await? {
                        return Ok(());
                    }
                }
                Step::Close => return self.close().await,
            }
            let was_trusted = self.session.is_trusted();
            step = self.answer().await;
            if was_trusted && !self.session.is_trusted() {
                // The password of a session that was reset has its time again.
                self.started = time::Instant::now();
            }
            self.send().await?;
        }
    }

    /// Receives more bytes. Returns `false` if the connection ends.
    async fn receive(&mut self, closing: Pin<&mut impl Future<Output = ()>>) -> io::Result<bool> {
        self.command_began = self.parser.is_inside().then(|| self.command_began.unwrap_or_else(time::Instant::now));
        if self.received.is_empty() {
            self.received.shrink_to(self.read_bytes);
        }
        let since = if self.session.is_trusted() { self.command_began } else { Some(self.started) };
        let read = read_more(&mut self.stream, &mut self.received, &mut self.read_bytes);
        let Some(since) = since else {
            return tokio::select! {
                biased;
                count = read => Ok(count? > 0),
                () = closing => Ok(false),
            };
        };
        tokio::select! {
            biased;
            count = read => Ok(count? > 0),
            () = closing => Ok(false),
            () = sleep_until(since + MAX_COMMAND_TIME) => {
                let what = if self.session.is_trusted() { "a command must end" } else { "a password must be sent" };
                let limit = MAX_COMMAND_TIME.as_secs();
                self.replies.error(format_args!("ERR Protocol error: {what} within {limit} seconds"));
                self.send().await?;
                Ok(false)
            }
        }
    }

    /// Answers the commands that were received, up to the next step.
    async fn answer(&mut self) -> Step {
        let Self { service, facts, received, parser, session, replies, .. } = self;
        let (service, facts, decides_later) = (*service, *facts, self.decides_later);
        // What all commands of the turn need is read once.
        let (began, rules) = (Instant::now(), Guard::into_inner(service.catalog()));
        let (mut read, mut open, mut was_late, mut turn) = (0, VecDeque::new(), false, 0);
        let mut answered = AnsweredCalls::default();
        let step = loop {
            if replies.bytes().len() >= MAX_REPLY_BYTES || turn >= MAX_TURN {
                break Step::Answer;
            }
            turn += 1;
            let rest = &received[read..];
            let length = match parser.read(rest) {
                Ok(Some(length)) => length,
                Ok(None) => break Step::Receive,
                Err(error) => {
                    finish(&mut open, session.protocol(), replies, &mut answered).await;
                    replies.error(format_args!("ERR Protocol error: {error}"));
                    break Step::Close;
                }
            };
            let array = parser.array(&rest[..length]);
            if let Some(arguments) = array.filter(|_| decides_later)
                && let Ok(Request::Call(call)) = Request::read(arguments, session, facts, &rules)
                && call.is_joint()
            {
                let call = OpenCall::begin(call, service).await;
                was_late |= matches!(call.state, OpenState::Running(_));
                open.push_back(call);
                read += length;
                if open.len() == MAX_OPEN_CALLS {
                    finish(&mut open, session.protocol(), replies, &mut answered).await;
                }
                continue;
            }
            finish(&mut open, session.protocol(), replies, &mut answered).await;
            let arguments = array.unwrap_or_else(|| parser.line());
            match Request::read(arguments, session, facts, &rules) {
                Ok(Request::Nothing) => {}
                Ok(Request::Call(call)) if call.may_wait() => break Step::Wait { length },
                Ok(Request::Call(call)) => {
                    let mut decided = pin!(call.decide(service));
                    let decided = match poll_once(decided.as_mut()).await {
                        Poll::Ready(decided) => decided,
                        Poll::Pending => {
                            was_late = true;
                            decided.await
                        }
                    };
                    answered.add(call.kind, write_result(call.kind, &decided, replies, session.protocol()));
                }
                Ok(Request::Own(spec)) => {
                    if session.run(spec.command, arguments, facts, replies) == Next::Close {
                        break Step::Close;
                    }
                }
                Err(refusal) => replies.error(format_args!("{refusal}")),
            }
            read += length;
        };
        finish(&mut open, session.protocol(), replies, &mut answered).await;
        drop(open);
        received.drain(..read);
        answered.record(&facts.reports, began.elapsed());
        // A pipeline of calls that all had their decision at once needs no place for each.
        self.decides_later = was_late;
        step
    }

    /// Decides the call at the start of the received bytes, which may wait. Returns `false` if the client has gone: that ends the
    /// wait.
    async fn wait(&mut self, length: usize) -> io::Result<bool> {
        let parser = mem::take(&mut self.parser);
        let command: Vec<u8> = self.received.drain(..length).collect();
        let arguments = parser.array(&command).unwrap_or_else(|| parser.line());
        let rules = Guard::into_inner(self.service.catalog());
        let call = match Request::read(arguments, &self.session, self.facts, &rules) {
            Ok(Request::Call(call)) => call,
            // The rules have changed since.
            Ok(Request::Nothing | Request::Own(_)) => return Ok(true),
            Err(refusal) => {
                self.replies.error(format_args!("{refusal}"));
                return Ok(true);
            }
        };
        let began = Instant::now();
        let mut decided = pin!(call.decide(self.service));
        let decided = loop {
            // The commands behind it stay in the socket from here on.
            let has_room = self.received.len() < MAX_COMMAND_BYTES;
            tokio::select! {
                biased;
                decided = &mut decided => break decided,
                count = read_more(&mut self.stream, &mut self.received, &mut self.read_bytes), if has_room => {
                    if count? == 0 {
                        return Ok(false);
                    }
                }
            }
        };
        let outcome = write_result(call.kind, &decided, &mut self.replies, self.session.protocol());
        self.facts.reports.record(call.kind as usize, outcome, began.elapsed());
        Ok(true)
    }

    /// Sends all replies. A client that takes none for a time has lost them.
    async fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(self.replies.bytes()).await?;
        self.replies.clear(IDLE_BYTES);
        Ok(())
    }

    /// Ends the connection, so that its client can read the last reply: bytes that were not received would discard it.
    async fn close(mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let discard = async {
            let mut discarded = 0;
            while discarded < MAX_DISCARDED_BYTES {
                self.received.clear();
                match read_more(&mut self.stream, &mut self.received, &mut self.read_bytes).await? {
                    0 => break,
                    count => discarded += count,
                }
            }
            io::Result::Ok(())
        };
        timeout(MAX_DISCARD_TIME, discard).await.unwrap_or(Ok(()))
    }
}

/// A command that may run.
enum Request<'b> {
    /// An empty line or array, which has no reply.
    Nothing,
    Call(ReadCall<'b>),
    /// A command about the connection.
    Own(&'static CommandSpec),
}

impl<'b> Request<'b> {
    fn read(
        arguments: Arguments<'_, 'b>,
        session: &Session,
        facts: &ServerFacts,
        rules: &'b Catalog,
    ) -> Result<Self, Refusal> {
        if arguments.len() == 0 {
            return Ok(Self::Nothing);
        }
        let spec = find(arguments)?;
        session.check(spec, facts)?;
        match spec.command {
            Command::Call(kind) => Ok(Self::Call(ReadCall::read(kind, arguments, rules)?)),
            _ => Ok(Self::Own(spec)),
        }
    }
}

impl<'c> OpenCall<'c> {
    /// Begins a call. What it takes is decided in the order of the calls.
    async fn begin(call: ReadCall<'c>, service: &'c DecisionService) -> Self {
        let kind = call.kind;
        let mut decided: Pin<Box<dyn Future<Output = _> + Send + 'c>> =
            Box::pin(async move { call.decide(service).await });
        let state = match poll_once(decided.as_mut()).await {
            Poll::Ready(decided) => OpenState::Done(decided),
            Poll::Pending => OpenState::Running(decided),
        };
        Self { kind, state }
    }

    /// Returns whether it has its decision.
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        if let OpenState::Running(decided) = &mut self.state {
            match decided.as_mut().poll(context) {
                Poll::Ready(decided) => self.state = OpenState::Done(decided),
                Poll::Pending => return false,
            }
        }
        true
    }
}

/// Waits for the decisions of all calls, and writes their replies in order.
async fn finish(
    open: &mut VecDeque<OpenCall<'_>>,
    protocol: Protocol,
    replies: &mut Replies,
    answered: &mut AnsweredCalls,
) {
    if open.is_empty() {
        return;
    }
    // Each is polled each time: one may send a batch in which others are.
    let mut poll_all =
        |context: &mut Context<'_>| open.iter_mut().map(|call| usize::from(!call.poll(context))).sum::<usize>() == 0;
    poll_fn(|context| if poll_all(context) { Poll::Ready(()) } else { Poll::Pending }).await;
    for call in open.drain(..) {
        if let OpenState::Done(decided) = call.state {
            answered.add(call.kind, write_result(call.kind, &decided, replies, protocol));
        }
    }
}

/// The calls of a turn that have their replies, by kind and outcome. Their replies are sent together, so all have one time.
#[derive(Default)]
struct AnsweredCalls([[usize; OUTCOME_COUNT]; CALL_NAMES.len()]);

impl AnsweredCalls {
    fn add(&mut self, kind: CallKind, outcome: Outcome) {
        self.0[kind as usize][outcome as usize] += 1;
    }

    /// Records the calls in the series, with the time from the start of the turn to its end.
    fn record(&self, reports: &ProtocolReports, duration: Duration) {
        for (kind, counts) in self.0.iter().enumerate() {
            reports.record_all(kind, counts, duration);
        }
    }
}

/// Reads once, up to `read_bytes`, which follow the lengths of what arrives.
async fn read_more(
    stream: &mut (impl AsyncRead + Unpin),
    received: &mut Vec<u8>,
    read_bytes: &mut usize,
) -> io::Result<usize> {
    received.reserve(*read_bytes);
    let count = stream.take(u64::try_from(*read_bytes).unwrap_or(u64::MAX)).read_buf(received).await?;
    if count == *read_bytes {
        *read_bytes = MAX_COMMAND_BYTES.min(*read_bytes * 2);
    } else if count < *read_bytes / 8 {
        *read_bytes = IDLE_BYTES.max(*read_bytes / 2);
    }
    Ok(count)
}

/// Polls a future once.
async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}
