use std::sync::atomic::Ordering;

use limiter_testkit::{RedisServer, unique};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::deadlines::tests::call;
use super::slots::SlotSender;
use super::*;
use crate::Key;
use crate::concurrency::{HeldSlot, QueuedOutcome, SharedSlots, SlotClaim, SlotOptions, SlotTable, SlotsOfKey};
use crate::error::Source;
use crate::instances::Instances;
use crate::local::LocalOptions;
use crate::local::standby::StandbyConfig;
use crate::overflow::Overflows;
use crate::store::redis::server::Server;

pub(crate) fn settings(clock: Clock) -> WorkerSettings {
    settings_with_denials(clock, Duration::ZERO)
}

/// The settings of a worker that remembers denials for so long.
pub(crate) fn settings_with_denials(clock: Clock, denied_for: Duration) -> WorkerSettings {
    let standby = StandbyConfig { max_keys: 10, instances: Instances::set(1), slots: 1, is_in_child: false };
    let overflows = Overflows::new(Source::Standby, standby.max_keys, clock.clone());
    let local = LocalOptions { standby, remember_denials: denied_for, clock: clock.clone(), overflows }.new_local();
    let naming = Arc::new(Naming::new("", None, false));
    let health = Arc::new(HealthBoard::new(String::new(), &Arc::default(), Instances::set(1)));
    let (deadline, busy_poll, batch_sizes) = (Duration::from_millis(100), Duration::ZERO, BatchSizes::new());
    let has_slot_notices = Arc::default();
    let (presence, followed_version) =
        (PresenceOptions::new(None, Duration::from_secs(5), Instances::set(1)), no_version());
    WorkerSettings {
        naming,
        deadline,
        busy_poll,
        clock,
        local,
        health,
        batch_sizes,
        has_slot_notices,
        presence,
        followed_version,
    }
}

fn no_version() -> FollowedVersion {
    Arc::new(|| None)
}

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

fn server() -> Server {
    Server::from_client(&redis::Client::open("redis://127.0.0.1:1").expect("a valid URL"))
}

fn shared_server() -> Endpoint {
    Endpoint::Single(Box::new(Server::from_url(&RedisServer::shared().url()).expect("a valid URL")))
}

/// A server that left the cluster may leave calls in its queue. They go to the new owners of their slots.
#[tokio::test]
async fn queue_of_a_removed_server_is_kept_until_it_is_empty() {
    let work = async {
        let endpoint = Endpoint::Single(Box::new(server()));
        let gates = Arc::new(GateTable::single());
        let worker = Rc::new(Worker::start(endpoint, Arc::clone(&gates), settings(Clock::System), None));
        let add_server = || {
            let context = Rc::clone(&worker.context);
            let connection = Rc::new(ManagedConnection::new(server(), context, gates.default_gate()));
            (worker.queue_of(&connection), connection)
        };
        let (queue, connection) = add_server();
        let (call, _reply) = call(60_000);
        queue.push(call);
        drop(connection);
        let sender = worker.queues.borrow()[0].1.clone();
        let (_second_queue, _second) = add_server();
        yield_now().await;
        assert!(queue.is_orphaned() && worker.queues.borrow().len() == 2 && !sender.is_finished());
        assert!(queue.pop().is_some());
        let (_third_queue, _third) = add_server();
        yield_now().await;
        assert!(!worker.queues.borrow().iter().any(|(kept, _)| Rc::ptr_eq(kept, &queue)) && sender.is_finished());
    };
    LocalSet::new().run_until(work).await;
}

/// A long queue must not keep the thread from the replies of other servers.
#[tokio::test]
async fn other_tasks_run_between_batches_that_fail_at_once() {
    const CALLS: usize = 2_500;
    let work = async {
        let endpoint = Endpoint::Single(Box::new(server()));
        let gates = Arc::new(GateTable::single());
        let worker = Rc::new(Worker::start(endpoint, Arc::clone(&gates), settings(Clock::System), None));
        while gates.open_error(&[0]).is_none() {
            sleep(Duration::from_millis(1)).await;
        }
        let connection = Rc::new(ManagedConnection::new(server(), Rc::clone(&worker.context), gates.default_gate()));
        let queue = worker.queue_of(&connection);
        yield_now().await;
        let replies: Vec<_> = (0..CALLS)
            .map(|_| {
                let (call, reply) = call(60_000);
                queue.push(call);
                reply
            })
            .collect();
        worker.send_batches(&queue);
        assert!(!queue.is_empty(), "no other task has run");
        for reply in replies {
            assert!(reply.await.expect("a reply").is_err());
        }
    };
    LocalSet::new().run_until(work).await;
}

#[tokio::test]
async fn worker_polls_for_the_replies_to_its_calls() {
    let work = async {
        let settings =
            WorkerSettings { busy_poll: Duration::from_millis(1), deadline: LONG, ..settings(Clock::System) };
        let worker = Rc::new(Worker::start(shared_server(), Arc::new(GateTable::single()), settings, None));
        let (sender, calls) = mpsc::unbounded_channel();
        let (_renewals, renewals) = mpsc::unbounded_channel();
        let (_slots, slot_orders) = mpsc::unbounded_channel();
        #[cfg(feature = "rules")]
        let (_rules, rules_calls) = mpsc::unbounded_channel();
        let (_presence, presence_calls) = mpsc::unbounded_channel();
        let receivers = Receivers {
            calls,
            renewals,
            slot_orders,
            #[cfg(feature = "rules")]
            rules_calls,
            presence_calls,
        };
        spawn_local(Rc::clone(&worker).serve(receivers));
        // The reply may come before the task that polls has run.
        while worker.busy_poll.polls() == 0 {
            let (call, reply) = call(60_000);
            sender.send(call).expect("the worker runs");
            reply.await.expect("a reply").expect("no failure");
        }
    };
    timeout(LONG, LocalSet::new().run_until(work)).await.expect("it polls");
}

/// Starts a worker that serves slots, and returns the slots of its keys.
fn start_with_slots(endpoint: Endpoint, settings: WorkerSettings) -> (Rc<Worker>, SlotTable) {
    let (orders, receiver) = mpsc::unbounded_channel();
    let has_notices = Arc::clone(&settings.has_slot_notices);
    let worker = Rc::new(Worker::start(endpoint, Arc::new(GateTable::single()), settings, None));
    spawn_local(Rc::clone(&worker).serve_slots(receiver));
    let sender = SlotSender { orders, has_notices };
    let store = SharedSlots::new(Box::new(sender), SlotOptions::default(), None, Instances::set(1));
    (worker, SlotTable::new(Clock::System, Some(store)))
}

async fn enter(slots: &Arc<SlotsOfKey>) -> HeldSlot {
    match slots.enter(2, SlotClaim::ONE) {
        Some(held) => held,
        None => match slots.queue(SlotClaim::ONE, true).expect("a store to ask").await {
            QueuedOutcome::Entered(held) => held,
            QueuedOutcome::Denied | QueuedOutcome::Failed(_) => panic!("two slots are free"),
        },
    }
}

#[tokio::test]
async fn looks_and_keys_of_calls_that_have_ended_are_forgotten() {
    const KEYS: u32 = 500;
    let work = async {
        let settings = WorkerSettings { deadline: LONG, ..settings(Clock::System) };
        let (worker, table) = start_with_slots(shared_server(), settings);
        let key = |number: u32| Key::new(unique("forgotten")).part(number);
        let all: Vec<_> = (0..KEYS).map(|number| table.slots_of(&key(number))).collect();
        let mut held = Vec::new();
        for slots in &all {
            held.push(enter(slots).await);
            for _ in 0..20 {
                drop(enter(slots).await);
                yield_now().await;
            }
        }
        assert_eq!(worker.context.slots.len(), all.len());
        assert!(worker.slot_looks.borrow().len().1 <= all.len());
        drop(held);
        while worker.context.slots.len() > 0 || worker.slot_looks.borrow().len() != (0, 0) {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(all.iter().all(|slots| slots.is_unused()));
    };
    timeout(LONG, LocalSet::new().run_until(work)).await.expect("forgotten");
}

#[tokio::test]
async fn a_worker_without_a_connection_for_notices_has_none() {
    let work = async {
        let settings = settings(Clock::System);
        let has_notices = Arc::clone(&settings.has_slot_notices);
        let (worker, _table) = start_with_slots(Endpoint::Single(Box::new(server())), settings);
        worker.context.slots.set_subscribed(true);
        worker.follow_notices([1; 8]);
        assert!(!has_notices.load(Ordering::Relaxed));
    };
    LocalSet::new().run_until(work).await;
}
