//! A script about limiters that live, on the server of their slot. A refusal ends its calls on that connection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use redis::{Cmd, Value};

use super::owner::{LiveServer, SendError};
use crate::store::redis::connection::managed::ManagedConnection;
use crate::store::redis::connection::server_connection::ServerConnection;
use crate::store::redis::notifier::notify;
use crate::store::redis::pipelined::ReplyBound;
use crate::{Error, ErrorKind};

/// The calls of one script by one limiter.
pub(super) struct LiveScript {
    pub(super) server: Rc<LiveServer>,
    source: &'static str,
    /// The digest of the script, once a server has loaded it.
    digest: RefCell<Option<Rc<str>>>,
    /// The connection on which the user lacks a permission.
    refused_on: RefCell<Option<ServerConnection>>,
    is_problem_logged: Cell<bool>,
}

impl LiveScript {
    pub(super) fn new(server: Rc<LiveServer>, source: &'static str) -> Self {
        let (digest, refused_on, is_problem_logged) = (RefCell::default(), RefCell::default(), Cell::default());
        Self { server, source, digest, refused_on, is_problem_logged }
    }

    /// The server, if it is connected and has not refused a call on this connection.
    pub(super) fn usable_node(&self) -> Option<Rc<ManagedConnection>> {
        let (node, connection) = self.server.connected()?;
        let mut refused_on = self.refused_on.borrow_mut();
        if refused_on.as_ref().is_some_and(|refused| refused.is_same(&connection)) {
            return None;
        }
        *refused_on = None;
        Some(node)
    }

    /// Runs the script, and loads it first if the server lacks it. `command` returns the call of a digest.
    pub(super) async fn run(
        &self,
        node: Rc<ManagedConnection>,
        command: impl Fn(&str) -> Cmd,
    ) -> Result<Value, SendError> {
        let known = self.digest.borrow().clone();
        if let Some(digest) = known {
            match self.server.send_from(Rc::clone(&node), &command(&digest), ReplyBound::Script).await {
                Err(SendError::Command(error, _)) if error.is_no_script() => {}
                sent => return sent,
            }
        }
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(self.source);
        let loaded = self.server.send_from(Rc::clone(&node), &load, ReplyBound::Script).await?;
        let digest: Rc<str> = match &loaded {
            Value::BulkString(digest) => String::from_utf8_lossy(digest).into(),
            Value::SimpleString(digest) => digest.as_str().into(),
            _ => return Ok(Value::Nil),
        };
        self.digest.replace(Some(Rc::clone(&digest)));
        self.server.send_from(node, &command(&digest), ReplyBound::Script).await
    }

    /// Logs the first error that lasts by `log`, which gets it with the prefix of the keys. Makes no further call on a
    /// connection whose user lacks a permission. Calls of the program report the other errors themselves.
    pub(super) fn report(&self, error: SendError, log: impl FnOnce(&Error, &str) + Send + 'static) {
        let SendError::Command(error, connection) = error else { return };
        let error = Error::from(error);
        match error.kind() {
            ErrorKind::Refused => drop(self.refused_on.replace(Some(connection))),
            ErrorKind::Protocol => {}
            _ => return,
        }
        if !self.is_problem_logged.replace(true) {
            let prefix = self.server.keys.prefix().to_owned();
            notify(move || log(&error, &prefix));
        }
    }
}
