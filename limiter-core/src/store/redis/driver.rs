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
use crate::store::{Answer, Question};
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
    let script = Script::new(prefix, clock);
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
            Err(_) => return Err(self.failed(late(call), None)),
        };
        if call.reply.is_closed() {
            // Nobody waits for it, so nothing is asked, and nothing has failed.
            return Err(Failure { error: late(call), held: None });
        }
        if Instant::now() >= call.deadline {
            // It has waited here, behind too many others: sent now it would only count where nobody runs.
            return Err(self.failed(late(call), None));
        }
        let questions = call.questions();
        let mut held = None;
        match call.action {
            Action::Take { patience } => match self.standby.before(&questions, patience) {
                Before::StoreAlone => {}
                Before::Held(answer) => held = Some(answer),
                Before::Denied(answer) => return Ok(Settled::by_standby(answer)),
            },
            Action::Peek => {
                if let Some(answer) = self.standby.objection(&questions) {
                    return Ok(Settled::by_standby(answer));
                }
            }
            Action::Refund(_) | Action::Reset => {}
        }
        let mut answer = match self.ask(&wire, call, &questions).await {
            Ok(answer) => answer,
            Err(error) => return Err(self.failed(error, held)),
        };
        let mut mirrored = 0;
        match call.action {
            Action::Take { patience } => {
                mirrored = match self.standby.after(&questions, patience, held.as_ref(), &answer) {
                    Ok(stamp) => stamp,
                    Err(denial) => return Ok(Settled::by_standby(denial)),
                };
                // Of two queues, the longer one.
                answer.delay = held.map_or(answer.delay, |held| answer.delay.max(held.delay));
            }
            Action::Refund(granted) => self.standby.refund(&questions, granted.mirrored),
            Action::Peek | Action::Reset => {}
        }
        Ok(Settled::by_store(answer, mirrored))
    }

    /// One script call. What may have been applied is never sent again: only NOSCRIPT proves that nothing was.
    async fn ask(&self, wire: &Wire, call: &Call, questions: &[Question<'_>]) -> Result<Answer, Error> {
        let asked = Instant::now();
        let command = self.script.command(call.action, questions);
        let exchange = async {
            loop {
                let loads = wire.loads();
                match wire.send(command.with(&wire.sha())).await {
                    Err(error) if error.is_no_script() => {
                        // A server that was restarted or replaced behind this connection forgets its scripts, too.
                        self.standby.store_failed();
                        wire.reload(loads, self.script.source()).await?;
                    }
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
            Err(late(call))
        });
        if let Err(error) = &result {
            wire.failed(error);
        }
        result
    }

    fn failed(&self, error: Error, held: Option<Answer>) -> Failure {
        self.standby.store_failed();
        Failure { error, held }
    }
}

fn late(call: &Call) -> Error {
    Error::new(ErrorKind::Timeout, format!("no answer from Redis within {:?}", call.within))
}
