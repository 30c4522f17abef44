//! The thread: takes calls, puts them to Redis, answers each by its deadline.

use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;
use crate::local::LocalState;
use crate::local::denial_cache::DenialCache;
use crate::local::standby::{Precheck, Standby};
use crate::request::{CountedReply, StoreFailure};
use crate::request::{Request, StoreReply};
use crate::store::naming::Naming;
use crate::store::redis::connection::breaker_table::BreakerTable;
use crate::store::redis::connection::context::ConnectionContext;
use crate::store::redis::connection::managed::ManagedConnection;
use crate::store::redis::connection::script_call::ScriptCall;
use crate::store::redis::connection::topology::Topology;
use crate::store::redis::script::Script;
use crate::store::redis::worker::call::{Action, Call, Deadline, Reply};
use crate::store::redis::worker::deadlines::Deadlines;
use crate::store::redis::worker::multi_slot::DecisionReply;
use crate::store::redis::worker::pending_call::PendingCall;
use crate::store::redis::{Endpoint, Options, ReadySignal};
use crate::{Error, ErrorKind};

pub(crate) mod call;
pub(crate) mod batch;
pub(crate) mod batch_queue;
mod deadlines;
pub(crate) mod in_flight;
mod multi_slot;
mod pending_call;

/// The settings of one thread.
pub(crate) struct Settings {
    naming: Arc<Naming>,
    deadline: Duration,
    clock: Clock,
    local: LocalState,
}

impl Settings {
    pub(crate) fn of(options: &Options, local: &LocalState) -> Self {
        let Options { naming, deadline, clock, .. } = options;
        Self { naming: Arc::clone(naming), deadline: *deadline, clock: clock.clone(), local: local.clone() }
    }
}

/// Starts the thread that serves `calls` until nobody can send any more.
pub(crate) fn spawn(
    place: Endpoint,
    routes: Arc<BreakerTable>,
    settings: Settings,
    calls: mpsc::UnboundedReceiver<Call>,
    connected: Option<ReadySignal>,
) -> Result<(), Error> {
    let failed = |error| Error::with_source(ErrorKind::Unavailable, "the thread for Redis cannot be started", error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let serve = move || {
        LocalSet::new().block_on(&runtime, async {
            let driver = Rc::new(Worker::start(place, routes, settings, connected));
            driver.serve(calls).await;
        });
        // An attempt to connect may be reading certificates: nobody waits for it.
        runtime.shutdown_background();
    };
    thread::Builder::new().name("rate-limited".to_owned()).spawn(serve).map(drop).map_err(failed)
}

pub(crate) struct Worker {
    terms: Rc<ConnectionContext>,
    nodes: Rc<Topology>,
    script: Script,
    deadlines: Rc<Deadlines>,
}

/// Calls that are taken in before the first of them is sent.
const AT_ONCE: usize = 256;

impl Worker {
    fn start(place: Endpoint, routes: Arc<BreakerTable>, settings: Settings, connected: Option<ReadySignal>) -> Self {
        let Settings { naming, deadline, clock, local } = settings;
        let script = Script::new(Arc::clone(&naming), clock);
        let deadlines = Rc::new(Deadlines::new(&local.standby));
        let terms = Rc::new(ConnectionContext::new(script.sources(), deadline, local));
        let nodes = Rc::new(Topology::start(place, routes, naming, &terms, connected));
        Self { terms, nodes, script, deadlines }
    }

    /// What is under way when nobody can call any more ends with the thread's other tasks.
    async fn serve(self: Rc<Self>, mut calls: mpsc::UnboundedReceiver<Call>) {
        let deadlines = Rc::clone(&self.deadlines);
        spawn_local(async move { deadlines.keep().await });
        let (mut arrived, mut links) = (Vec::new(), Vec::<Rc<ManagedConnection>>::new());
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
    fn line_up(self: &Rc<Self>, call: Call) -> Option<Rc<ManagedConnection>> {
        let link = call.asked.first().and_then(|asked| self.nodes.up(self.nodes.slot(&asked.as_request())));
        let call = match (link, call) {
            (Some(link), call) if call.can_be_grouped() => {
                let call = PendingCall::of(call, Rc::downgrade(&link));
                self.deadlines.watch(&call);
                link.lane().push(call);
                return Some(link);
            }
            (_, call) => call,
        };
        spawn_local(Rc::clone(self).answer(call));
        None
    }

    pub(crate) fn standby(&self) -> &Standby {
        &self.terms.local.standby
    }

    pub(crate) fn denied(&self) -> &DenialCache {
        &self.terms.local.denials
    }

    pub(crate) fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    pub(crate) fn terms(&self) -> &Rc<ConnectionContext> {
        &self.terms
    }

    pub(crate) fn nodes(&self) -> &Rc<Topology> {
        &self.nodes
    }

    pub(crate) fn script(&self) -> &Script {
        &self.script
    }

    async fn answer(self: Rc<Self>, call: Call) {
        let reply = self.reply(&call).await;
        // The caller may have been dropped meanwhile.
        let _ = call.reply.send(reply);
    }

    async fn reply(self: &Rc<Self>, call: &Call) -> Reply {
        let requests = call.requests();
        let failed = |error, reservation| {
            self.standby().call_failed(&requests);
            Err(StoreFailure { error, reservation })
        };
        let parts = self.nodes.parts(&requests);
        match timeout_at(call.until.instant, self.nodes.ready(&parts)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return failed(error, None),
            Err(_) => return failed(call.until.late(), None),
        }
        if call.reply.is_closed() {
            // Nobody waits for it, so nothing is asked, and nothing has failed.
            return Err(StoreFailure { error: call.until.late(), reservation: None });
        }
        if Instant::now() >= call.until.instant {
            // It has waited here, behind too many others: sent now it would only count where nobody runs.
            return failed(call.until.late(), None);
        }
        let standby = self.standby();
        let mut reservation = None;
        match &call.action {
            Action::Take { max_wait } => match standby.reserve(&requests, *max_wait) {
                Precheck::Skip => {}
                Precheck::Reserved(answer) => reservation = Some(answer),
                Precheck::Denied(answer) => return Ok(CountedReply::from_standby(answer)),
            },
            Action::Peek => {
                if let Some(answer) = standby.peek_denial(&requests) {
                    return Ok(CountedReply::from_standby(answer));
                }
            }
            // The store may not have these permits any more: it would take others off in their place.
            Action::Refund(granted) if standby.may_be_lost(&requests, granted.mirror_stamp) => {
                standby.refund(&requests, granted.mirror_stamp);
                self.denied().invalidate(&requests);
                return Ok(CountedReply::from_store(StoreReply::ALLOWED, 0));
            }
            Action::Refund(_) | Action::Reset => {}
        }
        let version = requests.first().and_then(|request| self.denied().version(request));
        let DecisionReply { mut answer, stamps } = match self.decide(call, &requests, parts).await {
            Ok(reply) => reply,
            Err(error) => return failed(error, reservation),
        };
        let mut mirror_stamp = 0;
        match &call.action {
            Action::Take { max_wait } => {
                // Also if the stand-in denies it after all.
                match &requests[..] {
                    requests if answer.allowed => self.denied().invalidate(requests),
                    // Who waits for a turn may be denied one that another gets.
                    [request] if max_wait.is_zero() => self.denied().update(request, version, false, Some(&answer)),
                    _ => {}
                }
                mirror_stamp = match standby.reconcile(&requests, *max_wait, reservation.as_ref(), &answer) {
                    Ok(stamp) => stamp,
                    Err(denial) => return Ok(CountedReply::from_standby(denial)),
                };
                // Of two queues, the longer one.
                answer.delay = reservation.map_or(answer.delay, |reservation| answer.delay.max(reservation.delay));
            }
            // Here and not only by the caller, who may be gone.
            Action::Refund(granted) => {
                standby.refund(&requests, granted.mirror_stamp);
                self.denied().invalidate(&requests);
            }
            Action::Reset => self.denied().invalidate(&requests),
            Action::Peek => {}
        }
        Ok(CountedReply { stamps, ..CountedReply::from_store(answer, mirror_stamp) })
    }

    /// Makes one script call, about requests of one slot.
    pub(crate) async fn ask(
        &self,
        action: &Action,
        requests: &[Request<'_>],
        slot: u16,
        until: Deadline,
    ) -> Result<StoreReply, ScriptCallError> {
        let command = self.script.command(action, requests);
        let exchange = ScriptCall::new(&self.terms, &self.nodes);
        let answer = match timeout_at(until.instant, exchange.call(&command, slot)).await {
            Ok(reply) => reply.and_then(|reply| command.read(&reply)),
            Err(_) => {
                exchange.late();
                Err(until.late())
            }
        };
        answer.map_err(|error| if exchange.is_torn() { ScriptCallError::Torn } else { ScriptCallError::Failed(error) })
    }
}

/// Why a script call has no answer.
pub(crate) enum ScriptCallError {
    /// It was refused, because its slot is moving and no node has all of its keys. Nothing ran.
    Torn,
    Failed(Error),
}
