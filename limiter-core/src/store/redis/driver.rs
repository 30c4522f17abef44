//! The thread: takes calls, puts them to Redis, answers each by its deadline.

use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, timeout_at};

use super::by_count::DecisionReply;
use super::call::{Action, Call, Reply, Until};
use super::deadlines::Deadlines;
use super::exchange::Exchange;
use super::link::{Link, Terms};
use super::nodes::Nodes;
use super::pending::Pending;
use super::routes::Routes;
use super::script::Script;
use super::{Connected, Options, Place};
use crate::clock::Clock;
use crate::denied_until::DeniedUntil;
use crate::guard::{Failure, Local, Settled};
use crate::standby::{Before, Standby};
use crate::store::naming::Naming;
use crate::store::{Answer, Question};
use crate::{Error, ErrorKind};

/// The settings of one thread.
pub(super) struct Settings {
    naming: Arc<Naming>,
    deadline: Duration,
    clock: Clock,
    local: Local,
}

impl Settings {
    pub(super) fn of(options: &Options, local: &Local) -> Self {
        let Options { naming, deadline, clock, .. } = options;
        Self { naming: Arc::clone(naming), deadline: *deadline, clock: clock.clone(), local: local.clone() }
    }
}

/// Starts the thread that serves `calls` until nobody can send any more.
pub(super) fn spawn(
    place: Place,
    routes: Arc<Routes>,
    settings: Settings,
    calls: mpsc::UnboundedReceiver<Call>,
    connected: Option<Connected>,
) -> Result<(), Error> {
    let failed = |error| Error::with_source(ErrorKind::Unavailable, "the thread for Redis cannot be started", error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let serve = move || {
        LocalSet::new().block_on(&runtime, async {
            let driver = Rc::new(Driver::start(place, routes, settings, connected));
            driver.serve(calls).await;
        });
        // An attempt to connect may be reading certificates: nobody waits for it.
        runtime.shutdown_background();
    };
    thread::Builder::new().name("rate-limited".to_owned()).spawn(serve).map(drop).map_err(failed)
}

pub(super) struct Driver {
    terms: Rc<Terms>,
    nodes: Rc<Nodes>,
    script: Script,
    deadlines: Rc<Deadlines>,
}

/// Calls that are taken in before the first of them is sent.
const AT_ONCE: usize = 256;

impl Driver {
    fn start(place: Place, routes: Arc<Routes>, settings: Settings, connected: Option<Connected>) -> Self {
        let Settings { naming, deadline, clock, local } = settings;
        let script = Script::new(Arc::clone(&naming), clock);
        let deadlines = Rc::new(Deadlines::new(&local.standby));
        let terms = Rc::new(Terms::new(script.sources(), deadline, local));
        let nodes = Rc::new(Nodes::start(place, routes, naming, &terms, connected));
        Self { terms, nodes, script, deadlines }
    }

    /// What is under way when nobody can call any more ends with the thread's other tasks.
    async fn serve(self: Rc<Self>, mut calls: mpsc::UnboundedReceiver<Call>) {
        let deadlines = Rc::clone(&self.deadlines);
        spawn_local(async move { deadlines.keep().await });
        let (mut arrived, mut links) = (Vec::new(), Vec::<Rc<Link>>::new());
        while calls.recv_many(&mut arrived, AT_ONCE).await > 0 {
            for call in arrived.drain(..) {
                if let Some(link) = self.line_up(call)
                    && !links.iter().any(|known| Rc::ptr_eq(known, &link))
                {
                    links.push(link);
                }
            }
            links.drain(..).for_each(|link| self.depart(&link));
        }
    }

    /// Lines a call up with others for the same server, which is given; or serves it by itself.
    fn line_up(self: &Rc<Self>, call: Call) -> Option<Rc<Link>> {
        let link = call.asked.first().and_then(|asked| self.nodes.up(self.nodes.slot(&asked.question())));
        let call = match (link, call) {
            (Some(link), call) if call.can_be_grouped() => {
                let call = Pending::of(call, Rc::downgrade(&link));
                self.deadlines.watch(&call);
                link.lane().push(call);
                return Some(link);
            }
            (_, call) => call,
        };
        spawn_local(Rc::clone(self).answer(call));
        None
    }

    pub(super) fn standby(&self) -> &Standby {
        &self.terms.local.standby
    }

    pub(super) fn denied(&self) -> &DeniedUntil {
        &self.terms.local.denied
    }

    pub(super) fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    pub(super) fn terms(&self) -> &Rc<Terms> {
        &self.terms
    }

    pub(super) fn nodes(&self) -> &Rc<Nodes> {
        &self.nodes
    }

    pub(super) fn script(&self) -> &Script {
        &self.script
    }

    async fn answer(self: Rc<Self>, call: Call) {
        let reply = self.reply(&call).await;
        // The caller may have been dropped meanwhile.
        let _ = call.reply.send(reply);
    }

    async fn reply(self: &Rc<Self>, call: &Call) -> Reply {
        let questions = call.questions();
        let failed = |error, held| {
            self.standby().call_failed(&questions);
            Err(Failure { error, held })
        };
        let parts = self.nodes.parts(&questions);
        match timeout_at(call.until.instant, self.nodes.ready(&parts)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return failed(error, None),
            Err(_) => return failed(call.until.late(), None),
        }
        if call.reply.is_closed() {
            // Nobody waits for it, so nothing is asked, and nothing has failed.
            return Err(Failure { error: call.until.late(), held: None });
        }
        if Instant::now() >= call.until.instant {
            // It has waited here, behind too many others: sent now it would only count where nobody runs.
            return failed(call.until.late(), None);
        }
        let standby = self.standby();
        let mut held = None;
        match &call.action {
            Action::Take { patience } => match standby.before(&questions, *patience) {
                Before::StoreAlone => {}
                Before::Held(answer) => held = Some(answer),
                Before::Denied(answer) => return Ok(Settled::by_standby(answer)),
            },
            Action::Peek => {
                if let Some(answer) = standby.objection(&questions) {
                    return Ok(Settled::by_standby(answer));
                }
            }
            // The store may not have these permits any more: it would take others off in their place.
            Action::Refund(granted) if standby.may_be_lost(&questions, granted.mirrored) => {
                standby.refund(&questions, granted.mirrored);
                self.denied().forget(&questions);
                return Ok(Settled::by_store(Answer::ALLOWED, 0));
            }
            Action::Refund(_) | Action::Reset => {}
        }
        let asked = questions.first().and_then(|question| self.denied().asked(question));
        let DecisionReply { mut answer, stamps } = match self.decide(call, &questions, parts).await {
            Ok(reply) => reply,
            Err(error) => return failed(error, held),
        };
        let mut mirrored = 0;
        match &call.action {
            Action::Take { patience } => {
                // Also if the stand-in denies it after all.
                match &questions[..] {
                    questions if answer.allowed => self.denied().forget(questions),
                    // Who waits for a turn may be denied one that another gets.
                    [question] if patience.is_zero() => self.denied().note(question, asked, false, Some(&answer)),
                    _ => {}
                }
                mirrored = match standby.after(&questions, *patience, held.as_ref(), &answer) {
                    Ok(stamp) => stamp,
                    Err(denial) => return Ok(Settled::by_standby(denial)),
                };
                // Of two queues, the longer one.
                answer.delay = held.map_or(answer.delay, |held| answer.delay.max(held.delay));
            }
            // Here and not only by the caller, who may be gone.
            Action::Refund(granted) => {
                standby.refund(&questions, granted.mirrored);
                self.denied().forget(&questions);
            }
            Action::Reset => self.denied().forget(&questions),
            Action::Peek => {}
        }
        Ok(Settled { stamps, ..Settled::by_store(answer, mirrored) })
    }

    /// Makes one script call, about questions of one slot.
    pub(super) async fn ask(
        &self,
        action: &Action,
        questions: &[Question<'_>],
        slot: u16,
        until: Until,
    ) -> Result<Answer, Unanswered> {
        let command = self.script.command(action, questions);
        let exchange = Exchange::new(&self.terms, &self.nodes);
        let answer = match timeout_at(until.instant, exchange.call(&command, slot)).await {
            Ok(reply) => reply.and_then(|reply| command.read(&reply)),
            Err(_) => {
                exchange.late();
                Err(until.late())
            }
        };
        answer.map_err(|error| if exchange.is_torn() { Unanswered::Torn } else { Unanswered::Failed(error) })
    }
}

/// Why a script call has no answer.
pub(super) enum Unanswered {
    /// It was refused, because its slot is moving and no node has all of its keys. Nothing ran.
    Torn,
    Failed(Error),
}
