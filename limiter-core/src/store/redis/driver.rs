//! The thread: takes calls, puts them to Redis, answers each by its deadline.

use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, timeout_at};

use super::call::{Action, Call, Reply};
use super::link::{Link, Wire};
use super::script::Script;
use super::{Connected, Options, Server};
use crate::guard::{Failure, Settled};
use crate::standby::{Before, Standby};
use crate::store::Answer;
use crate::{Error, ErrorKind};

/// Starts the thread that serves `calls` until nobody can send any more.
pub(super) fn spawn(
    server: Server,
    options: Options,
    calls: mpsc::UnboundedReceiver<Call>,
    connected: Option<Connected>,
) -> Result<(), Error> {
    let failed = |error| Error::with_source(ErrorKind::Unavailable, "the thread for Redis cannot be started", error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let serve = move || {
        LocalSet::new().block_on(&runtime, serve(server, options, calls, connected));
        // Look-ups of host names may still be under way; nobody waits for them.
        runtime.shutdown_background();
    };
    thread::Builder::new().name("rate-limited".to_owned()).spawn(serve).map(drop).map_err(failed)
}

async fn serve(
    server: Server,
    options: Options,
    mut calls: mpsc::UnboundedReceiver<Call>,
    connected: Option<Connected>,
) {
    let Options { prefix, deadline, clock, standby } = options;
    let script = Script::sliding_window(prefix, clock);
    let link = Rc::new(Link::new(server, script.source(), Arc::clone(&standby)));
    let keeper = spawn_local(Rc::clone(&link).keep(connected));
    let driver = Rc::new(Driver { link, script, standby, deadline });
    while let Some(call) = calls.recv().await {
        spawn_local(Rc::clone(&driver).answer(call));
    }
    keeper.abort();
}

struct Driver {
    link: Rc<Link>,
    script: Script,
    standby: Arc<Standby>,
    deadline: Duration,
}

impl Driver {
    async fn answer(self: Rc<Self>, call: Call) {
        let reply = self.reply(&call).await;
        // The caller may have been dropped meanwhile.
        let _ = call.reply.send(reply);
    }

    async fn reply(&self, call: &Call) -> Reply {
        let wire = match timeout_at(call.deadline, self.link.wire()).await {
            Ok(Ok(wire)) => wire,
            Ok(Err(error)) => return Err(self.failed(error, None)),
            Err(_) => return Err(self.failed(self.late(), None)),
        };
        if Instant::now() >= call.deadline {
            // It has waited here, behind too many others: sent now it would only count where nobody runs.
            return Err(self.failed(self.late(), None));
        }
        let mut held = None;
        match call.action {
            Action::Take => match self.standby.before(call.question()) {
                Before::StoreAlone => {}
                Before::Held(answer) => held = Some(answer),
                Before::Denied(answer) => return Ok(Settled::by_standby(answer)),
            },
            Action::Peek => {
                if let Some(answer) = self.standby.objection(call.question()) {
                    return Ok(Settled::by_standby(answer));
                }
            }
            Action::Reset => {}
        }
        match self.ask(&wire, call).await {
            Ok(answer) => {
                if call.action == Action::Take {
                    self.standby.after(call.question(), held.as_ref(), &answer);
                }
                Ok(Settled::by_store(answer))
            }
            Err(error) => Err(self.failed(error, held)),
        }
    }

    /// One script call. What may have been applied is never sent again: only NOSCRIPT proves that nothing was.
    async fn ask(&self, wire: &Wire, call: &Call) -> Result<Answer, Error> {
        let asked = Instant::now();
        let command = self.script.command(call);
        let exchange = async {
            loop {
                let loads = wire.loads();
                match wire.send(command.with(&wire.sha())).await {
                    Err(error) if error.is_no_script() => wire.reload(loads, self.script.source()).await?,
                    Err(error) => return Err(error.into()),
                    Ok(value) => return command.read(&value),
                }
            }
        };
        let result = timeout_at(call.deadline, exchange).await.unwrap_or_else(|_| {
            // Less says more of how busy this thread is.
            if asked.elapsed() >= self.deadline / 2 {
                wire.unanswered_since(asked);
            }
            Err(self.late())
        });
        if let Err(error) = &result {
            wire.failed(error);
        }
        result
    }

    fn failed(&self, error: Error, held: Option<Answer>) -> Failure {
        self.standby.call_failed(&error);
        Failure { error, held }
    }

    fn late(&self) -> Error {
        Error::new(ErrorKind::Timeout, format!("no answer from Redis within {:?}", self.deadline))
    }
}
