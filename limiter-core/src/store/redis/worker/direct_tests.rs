//! Direct calls of a worker on a server.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;

use limiter_testkit::{RedisServer, unique};
use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::call::{CallResult, Deadline, DirectCall};
use super::direct_sender::{CallerPoll, DirectSender};
use super::tests::settings;
use super::*;
use crate::local::StoreTicket;
use crate::request::{Request, SlottedRequests};
use crate::store::redis::connection::gate_table::ServerGate;
use crate::store::redis::connection::managed::ManagedConnection;
use crate::store::redis::naming::RedisKeys;
use crate::store::redis::server::Server;
use crate::sync::process::AtHome;
use crate::{Key, Limit};

const MAX: u32 = 100;
/// A deadline that no call reaches.
const LONG: Duration = Duration::from_secs(60);
const TAKE: Action = Action::TAKE_NOW;

/// A worker that is connected, the callers' side of it, and one key.
struct DirectWorker {
    worker: Rc<Worker>,
    sender: DirectSender,
    local: Arc<Local>,
    connection: Rc<ManagedConnection>,
    key: Key,
}

impl DirectWorker {
    async fn start() -> Self {
        Self::on(RedisServer::shared()).await
    }

    async fn on(server: &RedisServer) -> Self {
        let settings = WorkerSettings { deadline: LONG, ..settings(Clock::System) };
        let local = settings.local.clone();
        let server = Server::from_url(&server.url()).expect("a valid URL");
        let endpoint = Endpoint::Single(Box::new(server));
        let gates = Arc::new(GateTable::single());
        let worker = Rc::new(Worker::start(endpoint, Arc::clone(&gates), settings, None));
        let connection = worker.topology.owner_of(0).await.expect("one server");
        drop(connection.connected().await.expect("it accepts connections"));
        while !connection.is_up() {
            yield_now().await;
        }
        let sender = DirectSender::new(gates, Clock::System, local.clone(), BatchSizes::new());
        Self { worker, sender, local, connection, key: Key::new(unique("direct")) }
    }

    fn request(&self) -> Request<'_> {
        Request::new(&self.key, Limit::new(MAX, Duration::from_secs(3_600)).expect("a limit"), 1)
    }

    fn keys(&self) -> RedisKeys {
        RedisKeys::new(&[self.request()], &self.worker.context.naming).expect("no secret")
    }

    /// A call of the key, and the receiver of its reply.
    fn call(&self, action: &Action, deadline: Deadline) -> (Call, oneshot::Receiver<CallResult>) {
        let (reply_to, reply) = oneshot::channel();
        let requests = [self.request()];
        let ticket = StoreTicket::without_look_up(&requests);
        let call = Call::new(ticket, action.clone(), &requests, self.keys(), Duration::ZERO, reply_to);
        (Call { deadline, ..call }, reply)
    }

    /// Sends a call as its caller does. `None` if it is left to the worker.
    fn send(&self, action: &Action) -> Option<Box<DirectCall>> {
        let (mut call, _reply) = self.call(action, Deadline::after(LONG));
        self.sender.send(&mut call);
        call.direct
    }

    /// Makes lone calls until a caller can send one, and sends it so.
    async fn send_behind_lone_calls(&self) -> Option<Box<DirectCall>> {
        self.take(16).await;
        let direct = self.send(&TAKE);
        assert!(direct.is_some());
        direct
    }

    /// Breaks the connection.
    async fn lose_connection(&self) {
        let current = self.connection.current().expect("it is connected");
        current.close_after(&Error::new(ErrorKind::Unavailable, "a test"));
        while self.connection.is_up() {
            yield_now().await;
        }
    }

    fn is_standby_consulted(&self) -> bool {
        let slotted = SlottedRequests { requests: &[self.request()], slots: &[] };
        self.local.standby().is_consulted(slotted)
    }

    /// Gives a call to the worker, and has it send all calls.
    fn send_by_worker(&self, direct: Option<Box<DirectCall>>) -> oneshot::Receiver<CallResult> {
        let reply = self.enqueue(direct);
        self.worker.queues.borrow().iter().for_each(|(queue, _)| self.worker.send_batches(queue));
        reply
    }

    /// Gives a call to the worker.
    fn enqueue(&self, direct: Option<Box<DirectCall>>) -> oneshot::Receiver<CallResult> {
        let (call, reply) = self.call(&TAKE, Deadline::after(LONG));
        self.worker.enqueue(Call { direct, ..call });
        reply
    }

    /// Makes calls one after the other. Returns the permits that are left.
    async fn take(&self, calls: u32) -> u32 {
        let mut remaining = 0;
        for _ in 0..calls {
            remaining = remaining_of(self.send_by_worker(None).await);
        }
        remaining
    }
}

fn remaining_of(reply: Result<CallResult, oneshot::error::RecvError>) -> u32 {
    reply.expect("a reply").expect("no failure").reply.remaining
}

async fn run(test: impl AsyncFnOnce(DirectWorker)) {
    LocalSet::new().run_until(async { test(DirectWorker::start().await).await }).await;
}

#[tokio::test]
async fn callers_send_their_calls_after_many_lone_ones() {
    run(async |worker| {
        assert_eq!(worker.take(15).await, MAX - 15);
        assert!(worker.send(&TAKE).is_none(), "calls have not come one at a time for long");
        assert_eq!(worker.take(1).await, MAX - 16);
        for calls in 17..20 {
            let direct = worker.send(&TAKE);
            assert!(direct.is_some() && worker.send(&TAKE).is_none(), "one call at a time");
            assert_eq!(remaining_of(worker.enqueue(direct).await), MAX - calls);
        }
        let (first, second) = (worker.enqueue(None), worker.send_by_worker(None));
        assert_eq!((remaining_of(first.await), remaining_of(second.await)), (MAX - 20, MAX - 21));
        assert_eq!(worker.take(10).await, MAX - 31);
        assert!(worker.send(&TAKE).is_none(), "calls have come together since");
    })
    .await;
}

/// A caller that is woken by its reply.
struct WokenCaller {
    gate: Arc<ServerGate>,
    finds_the_connection_lent: AtomicBool,
}

impl Wake for WokenCaller {
    fn wake(self: Arc<Self>) {
        self.finds_the_connection_lent.store(self.gate.direct_writer.is_free(), Ordering::Relaxed);
    }
}

#[tokio::test]
async fn connection_is_lent_before_the_caller_has_its_reply() {
    run(async |worker| {
        worker.take(15).await;
        let gate = worker.connection.gate();
        let caller = Arc::new(WokenCaller { gate, finds_the_connection_lent: AtomicBool::new(false) });
        let mut reply = worker.send_by_worker(None);
        let waker = Waker::from(Arc::clone(&caller));
        assert!(Pin::new(&mut reply).poll(&mut Context::from_waker(&waker)).is_pending());
        while reply.try_recv().is_err() {
            yield_now().await;
        }
        assert!(caller.finds_the_connection_lent.load(Ordering::Relaxed));
    })
    .await;
}

#[tokio::test]
async fn other_calls_are_left_to_the_worker() {
    run(async |worker| {
        worker.take(16).await;
        assert!(worker.send(&Action::Peek).is_none() && worker.send(&Action::TakeWithReports).is_none());
        assert!(worker.send(&Action::Take { max_wait: Duration::ZERO, leases: true }).is_none());
        assert!(worker.send(&Action::Take { max_wait: Duration::from_secs(1), leases: false }).is_none());
        let direct = worker.send(&TAKE);
        assert!(direct.is_some(), "the connection is still lent");
        assert_eq!(remaining_of(worker.enqueue(direct).await), MAX - 17);
    })
    .await;
}

#[tokio::test]
async fn no_caller_sends_a_call_while_the_standby_limiter_is_consulted() {
    run(async |worker| {
        worker.take(16).await;
        worker.local.standby().server_failed(&[0..=0]);
        assert!(worker.send(&TAKE).is_none());
        assert_eq!(worker.take(1).await, MAX - 17, "nothing was written");
    })
    .await;
}

/// A caller that is about to write has found no failure. The worker waits until the call is written or not, and records
/// the failure afterwards.
#[tokio::test]
async fn failure_is_recorded_after_the_write_half_is_taken_back() {
    run(async |worker| {
        worker.take(16).await;
        let (gate, local, requests) = (worker.connection.gate(), Arc::clone(&worker.local), [worker.request()]);
        let is_consulted = || local.standby().is_consulted(SlottedRequests { requests: &requests, slots: &[0] });
        let has_lock = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let written = gate.direct_writer.write(|_| {
                    has_lock.wait();
                    // The worker would have recorded it by then.
                    thread::sleep(Duration::from_millis(50));
                    assert!(!is_consulted());
                    None
                });
                assert!(written.is_none());
            });
            has_lock.wait();
            worker.connection.report_data_loss();
        });
        assert!(is_consulted() && worker.send(&TAKE).is_none());
    })
    .await;
}

/// The server may have lost its counters since a caller has sent the call. The mirror has no room, so the call is
/// denied after all.
#[tokio::test]
async fn failure_behind_a_direct_call_is_considered() {
    run(async |worker| {
        let direct = worker.send_behind_lone_calls().await;
        worker.connection.report_data_loss();
        let request = Request { cost: MAX - 16, ..worker.request() };
        worker.local.standby().record(&[request]);
        let reply = worker.enqueue(direct).await.expect("a reply").expect("no failure");
        assert!(!reply.reply.allowed);
        assert!(worker.is_standby_consulted());
    })
    .await;
}

#[tokio::test]
async fn call_whose_connection_is_lost_fails_and_counts_as_a_failure() {
    run(async |worker| {
        let direct = worker.send_behind_lone_calls().await;
        worker.lose_connection().await;
        let failure = worker.enqueue(direct).await.expect("a reply").expect_err("a failure");
        assert_eq!(failure.error.kind(), ErrorKind::Unavailable);
        assert!(worker.is_standby_consulted());
    })
    .await;
}

/// The worker was late, and the server has counted the call.
#[tokio::test]
async fn direct_call_that_is_late_was_sent() {
    run(async |worker| {
        let direct = worker.send_behind_lone_calls().await;
        let (call, reply) = worker.call(&TAKE, Deadline::after(Duration::ZERO));
        worker.worker.enqueue(Call { direct, ..call });
        worker.worker.deadlines.expire();
        let failure = reply.await.expect("a reply").expect_err("a timeout");
        assert!(failure.error.to_string().starts_with("no answer from Redis"), "{}", failure.error);
    })
    .await;
}

/// The error of a lost connection does not close the next one.
#[tokio::test]
async fn error_of_an_earlier_connection_leaves_the_next_one_open() {
    run(async |worker| {
        let direct = worker.send_behind_lone_calls().await;
        worker.lose_connection().await;
        while !worker.connection.is_up() {
            yield_now().await;
        }
        let next = worker.connection.current().expect("it is connected");
        let failure = worker.send_by_worker(direct).await.expect("a reply").expect_err("a failure");
        assert_eq!(failure.error.kind(), ErrorKind::Unavailable);
        next.probe().await.expect("the next connection is open");
    })
    .await;
}

/// A call that its caller has sent and polls for, and what the worker gets of it.
struct Polled<'a> {
    poll: CallerPoll<'a>,
    reply: oneshot::Receiver<CallResult>,
}

impl DirectWorker {
    /// Sends a call, whose caller then polls for up to `limit`.
    fn poll<'a>(&'a self, to_worker: &'a mpsc::UnboundedSender<Call>, limit: Duration) -> Polled<'a> {
        let (mut call, reply) = self.call(&TAKE, Deadline::after(LONG));
        self.sender.send(&mut call);
        assert!(call.direct.as_ref().is_some_and(|direct| direct.is_polled()), "the connection is lent");
        Polled { poll: CallerPoll::new(call, &self.sender, to_worker, limit), reply }
    }

    /// The permits that the standby limiter has a record of.
    fn mirrored(&self) -> u32 {
        let reply = self.local.standby().peek(&[self.request()]);
        MAX - reply.remaining
    }
}

/// The worker's own thread does not read meanwhile: it is the thread that polls.
#[tokio::test]
async fn caller_completes_its_call() {
    run(async |worker| {
        let (to_worker, mut of_worker) = mpsc::unbounded_channel();
        worker.take(16).await;
        for calls in 17..=MAX {
            let Polled { poll, mut reply } = worker.poll(&to_worker, LONG);
            // The task of the reader may run while the caller yields to others, and read the reply.
            match poll.await {
                Some(counted) => {
                    assert!(counted.reply.allowed && counted.mirror_stamp > 0);
                    assert_eq!(counted.reply.remaining, MAX - calls);
                    assert!(reply.try_recv().is_err());
                }
                None => {
                    worker.worker.enqueue(of_worker.recv().await.expect("the call"));
                    assert_eq!(remaining_of(reply.await), MAX - calls);
                }
            }
            assert_eq!(worker.mirrored(), calls, "the standby limiter has a record of each");
        }
        let Polled { poll, .. } = worker.poll(&to_worker, LONG);
        assert!(poll.await.is_some_and(|counted| !counted.reply.allowed));
        assert_eq!(worker.mirrored(), MAX);
        assert!(of_worker.try_recv().is_err());
    })
    .await;
}

#[tokio::test]
async fn call_whose_caller_is_dropped_or_polls_in_vain_is_left_to_the_worker() {
    let mut server = RedisServer::start();
    let work = async {
        let worker = DirectWorker::on(&server).await;
        let (to_worker, mut of_worker) = mpsc::unbounded_channel();
        for (turn, is_dropped) in (1..).zip([true, false]) {
            worker.take(16).await;
            server.pause();
            let Polled { poll, reply } = worker.poll(&to_worker, Duration::from_millis(1));
            match is_dropped {
                true => drop(poll),
                false => assert!(poll.await.is_none()),
            }
            server.resume();
            worker.worker.enqueue(of_worker.try_recv().expect("the call"));
            assert_eq!(remaining_of(reply.await), MAX - 17 * turn);
            assert_eq!(worker.mirrored(), 17 * turn);
        }
    };
    LocalSet::new().run_until(work).await;
}

/// The system resets the connection of a killed server, which has a command that was not read.
#[tokio::test]
async fn polled_call_whose_server_is_killed_is_left_to_the_worker_and_fails() {
    for server in [RedisServer::start(), RedisServer::builder().tcp().start()] {
        let mut server = server;
        let work = async {
            let worker = DirectWorker::on(&server).await;
            let (to_worker, mut of_worker) = mpsc::unbounded_channel();
            worker.take(16).await;
            server.pause();
            let Polled { poll, reply } = worker.poll(&to_worker, LONG);
            server.kill();
            assert!(poll.await.is_none());
            worker.worker.enqueue(of_worker.try_recv().expect("the call"));
            let failure = reply.await.expect("a reply").expect_err("a failure");
            assert_eq!(failure.error.kind(), ErrorKind::Unavailable);
            assert!(worker.is_standby_consulted());
        };
        LocalSet::new().run_until(work).await;
    }
}

/// The key holds a list. The worker reports the error, and the call fails.
#[tokio::test]
async fn error_reply_to_a_polled_call_is_left_to_the_worker() {
    run(async |worker| {
        let (to_worker, mut of_worker) = mpsc::unbounded_channel();
        worker.take(16).await;
        let name = worker.worker.context.naming.name(&worker.request()).expect("a name");
        RedisServer::shared().command(&["DEL", &name]);
        RedisServer::shared().command(&["RPUSH", &name, "a"]);
        let Polled { poll, reply } = worker.poll(&to_worker, LONG);
        assert!(poll.await.is_none());
        worker.worker.enqueue(of_worker.try_recv().expect("the call"));
        let failure = reply.await.expect("a reply").expect_err("a failure");
        assert!(failure.error.to_string().contains("WRONGTYPE"), "{}", failure.error);
    })
    .await;
}

/// The server may have lost its counters since the caller has sent the call. The mirror has no room, so the call is
/// denied after all.
#[tokio::test]
async fn failure_behind_a_polled_call_is_considered() {
    run(async |worker| {
        let (to_worker, mut of_worker) = mpsc::unbounded_channel();
        worker.take(16).await;
        let Polled { poll, reply } = worker.poll(&to_worker, LONG);
        // Another server of the call's slot, so that the connection stays lent.
        worker.local.server_failed(&[0..=0]);
        worker.local.standby().record(&[Request { cost: MAX - 16, ..worker.request() }]);
        let counted = match poll.await {
            Some(counted) => counted,
            None => {
                worker.worker.enqueue(of_worker.recv().await.expect("the call"));
                reply.await.expect("a reply").expect("no failure")
            }
        };
        assert!(!counted.reply.allowed);
    })
    .await;
}

#[tokio::test]
async fn each_16th_polled_call_is_the_turn_of_other_tasks() {
    run(async |worker| {
        let turns: Vec<_> = (1..=48).filter(|_| worker.sender.is_turn_of_others()).collect();
        assert_eq!(turns, [16, 32, 48]);
    })
    .await;
}

/// The other tasks of the thread run before the 16th call of callers that poll, and not before the others.
#[tokio::test]
async fn caller_yields_to_other_tasks_before_it_polls_for_the_16th_reply() {
    run(async |worker| {
        let (to_worker, _of_worker) = mpsc::unbounded_channel();
        worker.take(16).await;
        let has_run = Rc::new(Cell::new(false));
        let other = Rc::clone(&has_run);
        spawn_local(async move { other.set(true) });
        for calls in 1..=16 {
            assert!(!has_run.get(), "before call {calls}");
            let Polled { poll, .. } = worker.poll(&to_worker, LONG);
            let _reply = poll.await;
        }
        assert!(has_run.get());
    })
    .await;
}

/// A child of `fork` has the parent's socket, and a descriptor that wakes the parent's thread.
#[tokio::test]
async fn child_neither_reads_the_reply_nor_sends_the_call() {
    run(async |worker| {
        let (to_worker, mut of_worker) = mpsc::unbounded_channel();
        worker.take(16).await;
        let Polled { poll, .. } = worker.poll(&to_worker, LONG);
        let error = AtHome::new(poll).in_a_child().await.expect_err("a call of the parent");
        assert_eq!(error.kind(), ErrorKind::Forked);
        assert!(of_worker.try_recv().is_err());
        assert_eq!(worker.take(1).await, MAX - 18, "the parent's connection is in step");
    })
    .await;
}
