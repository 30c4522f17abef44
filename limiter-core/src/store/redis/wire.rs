//! A connection that is up: sends commands, loads the script, and knows when it is of no use any more.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use super::failure::Refusal;
use crate::{Error, ErrorKind};

/// A connection that is, or was, up. Clones are the same one.
#[derive(Clone)]
pub(super) struct Wire {
    connection: MultiplexedConnection,
    shared: Rc<Shared>,
}

struct Shared {
    /// The connection is of no use any more.
    lost: Arc<Notify>,
    /// Why, where it was given up before it broke.
    cause: RefCell<Option<Error>>,
    /// When the server last said anything.
    heard: Cell<Instant>,
    sha: RefCell<String>,
    /// How often the script was loaded, so that of many calls that miss it one loads it.
    loads: Cell<u64>,
    loading: Mutex<()>,
}

impl Wire {
    pub(super) fn new(connection: MultiplexedConnection, lost: Arc<Notify>) -> Self {
        let shared = Shared {
            lost,
            cause: RefCell::default(),
            heard: Cell::new(Instant::now()),
            sha: RefCell::default(),
            loads: Cell::new(0),
            loading: Mutex::new(()),
        };
        Self { connection, shared: Rc::new(shared) }
    }

    /// Waits until it is of no use any more; why, where that was decided here.
    pub(super) async fn lost(&self) -> Option<Error> {
        self.shared.lost.notified().await;
        self.shared.cause.take()
    }

    /// Asks for the time, which a limiter's user may do, to hear whether anybody answers.
    pub(super) async fn probe(&self) -> Result<(), Error> {
        self.send(redis::cmd("TIME")).await.map(drop).map_err(Error::from)
    }

    /// Sends a command that a node of a cluster is to serve although it does not own the slot yet.
    pub(super) async fn send_asking(&self, command: Cmd) -> Result<Value, Refusal> {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command);
        let result = self.connection.clone().send_packed_commands(&pipeline, 1, 1).await;
        let value = result.and_then(|mut values| values.pop().unwrap_or(Value::Nil).extract_error());
        self.heard(value.map_err(Refusal::from))
    }
    pub(super) async fn send(&self, command: Cmd) -> Result<Value, Refusal> {
        let result = self.connection.clone().send_packed_command(&command).await;
        self.heard(result.and_then(Value::extract_error).map_err(Refusal::from))
    }

    fn heard(&self, result: Result<Value, Refusal>) -> Result<Value, Refusal> {
        if !matches!(&result, Err(refusal) if refusal.is_broken()) {
            self.shared.heard.set(Instant::now());
        }
        result
    }

    pub(super) fn sha(&self) -> String {
        self.shared.sha.borrow().clone()
    }

    pub(super) fn loads(&self) -> u64 {
        self.shared.loads.get()
    }

    /// Loads the script, unless somebody has since it was loaded `seen` times.
    pub(super) async fn reload(&self, seen: u64, script: &str) -> Result<(), Error> {
        let _loading = self.shared.loading.lock().await;
        if self.shared.loads.get() == seen {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(script);
            let sha = self.send(load).await?;
            let sha = redis::from_redis_value(sha)
                .map_err(|error| Error::with_source(ErrorKind::Protocol, "SCRIPT LOAD gave no digest", error))?;
            self.shared.sha.replace(sha);
            self.shared.loads.set(seen + 1);
        }
        Ok(())
    }

    /// A call was not answered in time. If nothing else was either, the server is gone, however open the connection.
    pub(super) fn unanswered_since(&self, asked: Instant) {
        if self.shared.heard.get() <= asked {
            self.give_up(Error::new(ErrorKind::Unavailable, "Redis has stopped answering"));
        }
    }

    /// Gives the connection up for errors that no later call on it would be spared.
    pub(super) fn failed(&self, error: &Error) {
        if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::ReadOnly) {
            self.give_up(error.clone());
        }
    }

    fn give_up(&self, cause: Error) {
        self.shared.cause.replace(Some(cause));
        self.shared.lost.notify_one();
    }
}
