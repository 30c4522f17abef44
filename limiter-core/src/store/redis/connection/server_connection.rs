//! A connection that is up: sends commands, loads the script, and knows when it is of no use any more.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::{Mutex, Notify};
use tokio::task::{spawn_local, yield_now};
use tokio::time::{Instant, sleep, timeout};

use crate::store::redis::command_error::CommandError;
use crate::store::redis::script::Program;
use crate::{Error, ErrorKind};

/// A connection that is, or was, up. Clones are the same one.
#[derive(Clone)]
pub(crate) struct ServerConnection {
    connection: MultiplexedConnection,
    shared: Rc<ConnectionState>,
}

struct ConnectionState {
    /// The connection is of no use any more.
    lost: Arc<Notify>,
    /// Why, where it was given up before it broke.
    cause: RefCell<Option<Error>>,
    /// When the server last said anything.
    heard: Cell<Instant>,
    /// Of the programs, in their order.
    digests: RefCell<[String; 2]>,
    /// How often the scripts were loaded, so that of many calls that miss one a single one loads them.
    loads: Cell<u64>,
    loading: Mutex<()>,
    /// Whether it is being found out if it is of use.
    in_doubt: Cell<bool>,
    /// Whether a probe is under way.
    probed: Cell<bool>,
    /// It was given up, so that nobody waits for what is under way on it.
    gone: Cell<bool>,
    went: Notify,
}

/// What is on its way through this process has arrived by then.
const TO_READ: Duration = Duration::from_millis(25);

impl ServerConnection {
    pub(crate) fn new(connection: MultiplexedConnection, lost: Arc<Notify>) -> Self {
        let shared = ConnectionState {
            lost,
            cause: RefCell::default(),
            heard: Cell::new(Instant::now()),
            digests: RefCell::default(),
            loads: Cell::new(0),
            loading: Mutex::new(()),
            in_doubt: Cell::new(false),
            probed: Cell::new(false),
            gone: Cell::new(false),
            went: Notify::new(),
        };
        Self { connection, shared: Rc::new(shared) }
    }

    /// Waits until it is of no use any more; why, where that was decided here.
    pub(crate) async fn lost(&self) -> Option<Error> {
        self.shared.lost.notified().await;
        self.shared.cause.take()
    }

    /// Asks for the time, which a limiter's user may do, to hear whether anybody answers.
    pub(crate) async fn probe(&self) -> Result<(), Error> {
        self.send(redis::cmd("TIME")).await.map(drop).map_err(Error::from)
    }

    /// Sends a command that a node of a cluster is to serve although it does not own the slot yet.
    pub(crate) async fn send_asking(&self, command: Cmd) -> Result<Value, CommandError> {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command);
        let mut connection = self.connection.clone();
        let result = self.unless_gone(connection.send_packed_commands(&pipeline, 1, 1)).await;
        self.answer(result.map(|mut values| values.pop().unwrap_or(Value::Nil)))
    }

    pub(crate) async fn send(&self, command: Cmd) -> Result<Value, CommandError> {
        let mut connection = self.connection.clone();
        let result = self.unless_gone(connection.send_packed_command(&command)).await;
        self.answer(result)
    }

    /// Waits for an answer as long as one may come.
    async fn unless_gone<T>(&self, answer: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        let (mut answer, mut went) = (pin!(answer), pin!(self.shared.went.notified()));
        poll_fn(|context| match answer.as_mut().poll(context) {
            Poll::Pending if self.shared.gone.get() || went.as_mut().poll(context).is_ready() => {
                Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()))
            }
            answer => answer,
        })
        .await
    }

    fn answer(&self, result: RedisResult<Value>) -> Result<Value, CommandError> {
        let result = match result {
            // One that is a part of the answer is the reader's.
            Ok(error @ Value::ServerError(_)) => error.extract_error(),
            result => result,
        };
        let result = result.map_err(CommandError::from);
        if !matches!(&result, Err(refusal) if refusal.is_connection_lost()) {
            self.shared.heard.set(Instant::now());
        }
        result
    }

    /// What the server calls a script.
    pub(crate) fn digest(&self, program: Program) -> String {
        self.shared.digests.borrow()[program as usize].clone()
    }

    pub(crate) fn loads(&self) -> u64 {
        self.shared.loads.get()
    }

    /// Loads the scripts, unless somebody has since they were loaded `seen` times.
    pub(crate) async fn reload(&self, seen: u64, sources: &[String; 2]) -> Result<(), Error> {
        let _loading = self.shared.loading.lock().await;
        if self.shared.loads.get() == seen {
            for (program, source) in sources.iter().enumerate() {
                let mut load = redis::cmd("SCRIPT");
                load.arg("LOAD").arg(source);
                let digest = redis::from_redis_value(self.send(load).await?)
                    // Not what it gave: the client's error repeats all of that.
                    .map_err(|_| Error::new(ErrorKind::Protocol, "SCRIPT LOAD gave no digest"))?;
                self.shared.digests.borrow_mut()[program] = digest;
            }
            self.shared.loads.set(seen + 1);
        }
        Ok(())
    }

    /// A call was not answered in time. If nothing else was either, the server is gone, however open the connection: unless
    /// it is this thread that was late, and an answer lies here unread.
    pub(crate) fn unanswered_since(&self, asked: Instant) {
        if self.shared.heard.get() > asked || self.shared.in_doubt.replace(true) {
            return;
        }
        let wire = self.clone();
        spawn_local(async move {
            sleep(TO_READ).await;
            for _ in 0..4 {
                // From the socket to the client's task, to the caller's.
                yield_now().await;
            }
            wire.shared.in_doubt.set(false);
            if wire.shared.heard.get() <= asked {
                wire.give_up(Error::new(ErrorKind::Unavailable, "Redis has stopped answering"));
            }
        });
    }

    /// A call had less time than a server may take, so its silence proves nothing: that to a probe does.
    pub(crate) fn probe_within(&self, longest: Duration) {
        if self.shared.probed.replace(true) {
            return;
        }
        let (wire, asked) = (self.clone(), Instant::now());
        spawn_local(async move {
            let silent = timeout(longest, wire.probe()).await.is_err();
            wire.shared.probed.set(false);
            if silent {
                wire.unanswered_since(asked);
            }
        });
    }

    /// Gives the connection up for errors that no later call on it would be spared.
    pub(crate) fn failed(&self, error: &Error) {
        if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::ReadOnly) {
            self.give_up(error.clone());
        }
    }

    fn give_up(&self, cause: Error) {
        self.shared.cause.replace(Some(cause));
        self.shared.lost.notify_one();
        self.shared.gone.set(true);
        self.shared.went.notify_waiters();
    }
}
