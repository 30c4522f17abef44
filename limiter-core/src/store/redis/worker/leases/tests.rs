//! The leases of a worker on a server, under a clock that the test moves.

use std::future::{pending, poll_fn};
use std::task::Poll;

use limiter_testkit::{RedisServer, unique};
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::timeout;

use super::life::usable_time;
use super::*;
use crate::clock::ManualClock;
use crate::error::Source;
use crate::local::StoreTicket;
use crate::local::leases::LeaseId;
use crate::request::{CountedReply, SlottedRequests};
use crate::store::redis::connection::gate_table::GateTable;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::script::action::Action;
use crate::store::redis::script::command::ReturnedPermits;
use crate::store::redis::script::reply::{BatchEntryReply, LeaseReply};
use crate::store::redis::server::Server;
use crate::store::redis::worker::call::{Call, CallResult, Deadline};
use crate::store::redis::worker::tests::settings_with_denials;
use crate::store::redis::worker::{Worker, WorkerSettings};
use crate::{Error, ErrorKind, Key, Limit};

mod call_rate;
mod denials;

const MAX: u32 = 10_000;
const ID: LeaseId = LeaseId { mark: 7, end: 1_000 };
const ENTRY: BatchEntryReply = BatchEntryReply {
    granted: 4,
    remaining: 100,
    retry_after: None,
    reset_after: Duration::from_secs(1),
    stamp: 1_000_000,
    overdraft: None,
    is_blocked: false,
};

/// A worker that is connected, and one key.
struct LeasedWorker {
    worker: Rc<Worker>,
    queue: Rc<BatchQueue>,
    clock: ManualClock,
    key: Key,
    limit: Limit,
}

impl LeasedWorker {
    async fn start() -> Self {
        Self::start_on(RedisServer::timeless(), Limit::new(MAX, Duration::from_secs(1)).expect("a limit")).await
    }

    async fn start_on(server: &RedisServer, limit: Limit) -> Self {
        let clock = ManualClock::new();
        let manual = Clock::Manual(clock.clone());
        let (settings, deadline) = (settings_with_denials(manual, Duration::from_secs(1)), Duration::from_secs(60));
        let server = Server::from_url(&server.url()).expect("a valid URL");
        let endpoint = Endpoint::Single(Box::new(server));
        let gates = Arc::new(GateTable::single());
        let worker = Rc::new(Worker::start(endpoint, gates, WorkerSettings { deadline, ..settings }, None));
        let connection = worker.topology.owner_of(0).await.expect("one server");
        drop(connection.connected().await.expect("it accepts connections"));
        while !connection.is_up() {
            yield_now().await;
        }
        let queue = worker.queue_of(&connection);
        let leased = Self { worker, queue, clock, key: Key::new(unique("leases")), limit };
        leased.record_replies(1, Duration::from_nanos(1));
        leased
    }

    /// Records times of replies. A quick one shows a short round trip, also on a busy machine.
    fn record_replies(&self, replies: u32, time: Duration) {
        let owner = self.worker.topology.connected_owner_of(0).expect("it is connected");
        let connection = owner.current().expect("it is connected");
        (0..replies).for_each(|_| connection.record_reply_since(connection.last_reply_at() - time));
    }

    fn request(&self, cost: u32) -> Request<'_> {
        Request::new(&self.key, self.limit, cost)
    }

    fn keys(&self) -> RedisKeys {
        RedisKeys::new(&[self.request(1)], &self.worker.context.naming).expect("no secret")
    }

    fn now(&self) -> Moment {
        self.worker.keeper.now()
    }

    fn call(&self, action: Action) -> (Call, oneshot::Receiver<CallResult>) {
        let (reply_to, reply) = oneshot::channel();
        let requests = [self.request(1)];
        let ticket = StoreTicket::without_look_up(&requests);
        (Call::new(ticket, action, &requests, self.keys(), Duration::from_secs(60), reply_to), reply)
    }

    fn pending(&self) -> (Rc<PendingCall>, oneshot::Receiver<CallResult>) {
        let (call, reply) = self.call(Action::Take { max_wait: Duration::ZERO, leases: true });
        let call = self.queue.push(call);
        assert!(self.queue.pop().is_some_and(|first| Rc::ptr_eq(&first, &call)));
        (call, reply)
    }

    fn reserve(&self, call: Rc<PendingCall>) -> BatchedCall {
        self.worker.local.reserve(call).expect("room")
    }

    /// Sends calls together. Returns the source of each reply.
    async fn take(&self, calls: usize) -> Vec<Source> {
        self.take_counted(calls).await.iter().map(|counted| counted.source).collect()
    }

    /// Sends calls together. Returns their replies.
    async fn take_counted(&self, calls: usize) -> Vec<CountedReply> {
        self.record_replies(1, Duration::from_nanos(1));
        let sent: Vec<_> =
            (0..calls).map(|_| self.call(Action::Take { max_wait: Duration::ZERO, leases: true })).collect();
        let replies = sent.into_iter().map(|(call, reply)| {
            self.worker.enqueue(call);
            reply
        });
        let replies: Vec<_> = replies.collect();
        self.worker.send_batches(&self.queue);
        let mut counted = Vec::new();
        for reply in replies {
            counted.push(reply.await.expect("a reply").expect("no failure"));
        }
        counted
    }

    /// Refunds the permits of calls.
    async fn refund(&self, calls: &[CountedReply]) {
        for counted in calls {
            let (call, _reply) = self.call(Action::Refund(Box::new(counted.refund_info())));
            self.worker.decide_unbatched(&call).await.expect("no failure");
        }
    }

    /// Takes permits until a lease is in force: 5, and those of the lease.
    async fn take_until_leased(&self) {
        assert_eq!(self.take(1).await, [Source::Store]);
        assert_eq!(self.take(4).await, [Source::Store; 4]);
    }

    /// The permits that the server has left.
    async fn remaining(&self) -> u32 {
        let (call, _reply) = self.call(Action::Peek);
        self.worker.decide_unbatched(&call).await.expect("no failure").reply.remaining
    }

    /// Waits until the server has so many permits left: they are returned by a task of the worker.
    async fn until_remaining(&self, permits: u32) {
        let returned = async { while self.remaining().await != permits {} };
        timeout(Duration::from_secs(60), returned).await.expect("permits are returned");
    }

    async fn renew(&self) {
        let renewal = Renewal { request: OwnedRequest::from(&self.request(0)), keys: self.keys() };
        let deadline = Deadline::after(self.worker.context.deadline);
        let released = self.worker.keeper.renew(renewal, deadline).await;
        self.worker.send_released(released);
    }

    fn take_from_lease(&self, cost: u32) -> bool {
        self.worker.keeper.local.leases().take(&self.request(cost), false).is_some()
    }

    fn is_requested(&self) -> bool {
        let demands = &self.worker.keeper.demands;
        demands.is_requested(demands.counter(&self.request(1)))
    }

    /// Begins the leases of a batch with one entry of four calls.
    fn begin_batch(&self) -> (Option<BatchTerms>, LeaseTerms) {
        let call = self.pending().0;
        let calls: Vec<_> = (0..4).map(|_| self.reserve(Rc::clone(&call))).collect();
        let mut entries =
            [BatchEntry { limit: self.limit, cost: 1, calls: 4, is_charge: false, lease: Some(LeaseTerms::default()) }];
        let leases = self.worker.keeper.terms(&mut entries, &calls);
        (leases, entries[0].lease.expect("its calls take leases"))
    }

    /// Begins the leases of a batch that requests one.
    fn begin_requesting_batch(&self) -> Option<BatchTerms> {
        if self.begin_batch().1.wanted == 0 {
            let (leases, terms) = self.begin_batch();
            assert!(terms.wanted > 0 && terms.new_mark != 0 && self.is_requested());
            return leases;
        }
        panic!("the first script call requests no lease");
    }

    /// Ends the leases of a batch, and sends the calls that waited. Returns the effects on its entries, in their order.
    fn end_batch(
        &self,
        terms: Option<BatchTerms>,
        reply: Option<&Result<BatchReply, CallError>>,
    ) -> Vec<(usize, SideEffects)> {
        let BatchGrants { effects, released } = self.worker.keeper.granted(terms, reply);
        self.worker.send_released(released);
        effects.into_iter().rev().collect()
    }

    fn reply_or_hold(&self, call: &Rc<PendingCall>) -> bool {
        self.worker.keeper.reply_or_hold(&self.queue, call, |renewal| self.worker.renew(renewal))
    }

    fn put_in_force(&self, id: LeaseId, permits: u32, sent_at: Moment) {
        let keys = self.keys();
        let call = LeaseCall { request: self.request(0), keys: &keys, wanted: 64, sent_at };
        self.worker.keeper.put_in_force(call, &ENTRY, LeaseReply { permits, id: Some(id) });
    }
}

/// Runs a test with a connected worker.
async fn with_worker<F: Future<Output = ()>>(test: impl FnOnce(LeasedWorker) -> F) {
    LocalSet::new().run_until(async { test(LeasedWorker::start().await).await }).await;
}

#[tokio::test]
async fn a_lease_is_used_until_its_end_and_what_is_left_is_returned() {
    with_worker(async |leased| {
        leased.take_until_leased().await;
        assert_eq!(leased.remaining().await, MAX - 5 - 64);
        assert_eq!(leased.take(2).await, [Source::Lease; 2]);
        assert_eq!(leased.remaining().await, MAX - 5 - 64);
        leased.clock.advance(usable_time(leased.limit) - Duration::from_micros(1));
        assert!(leased.take_from_lease(1));
        leased.clock.advance(Duration::from_micros(1));
        assert!(!leased.take_from_lease(1));
        leased.until_remaining(MAX - 5 - 3).await;
    })
    .await;
}

#[tokio::test]
async fn a_lease_whose_reply_is_late_is_returned_unused() {
    with_worker(async |leased| {
        assert_eq!(leased.take(1).await, [Source::Store]);
        let mut renewed = Box::pin(leased.renew());
        let is_pending = poll_fn(|context| Poll::Ready(renewed.as_mut().poll(context).is_pending())).await;
        assert!(is_pending && leased.is_requested());
        leased.clock.advance(usable_time(leased.limit));
        renewed.await;
        assert!(!leased.is_requested() && !leased.take_from_lease(1));
        leased.until_remaining(MAX - 1).await;
    })
    .await;
}

#[tokio::test]
async fn a_renewal_replaces_a_lease_and_the_next_script_call_returns_what_was_left() {
    with_worker(async |leased| {
        leased.take_until_leased().await;
        assert!(leased.take_from_lease(60));
        leased.renew().await;
        // The 4 permits that are left are kept. They are returned by the next renewal, whose own lease has 64.
        assert_eq!(leased.remaining().await, MAX - 5 - 64 - 64);
        assert!(leased.take_from_lease(64));
        leased.renew().await;
        let remaining = leased.remaining().await;
        leased.clock.advance(usable_time(leased.limit));
        leased.until_remaining(MAX - 5 - 60 - 64).await;
        assert!(remaining < MAX - 5 - 60 - 64);
    })
    .await;
}

/// A fault: the receipt of a call had the time of the call, and the store had stamped its permit at the end of a lease.
/// So the refund took a permit of an earlier lease. When that lease was over, its own permits were missing, and the store
/// removed the oldest ones. The permits of the receipts stayed for a window, and no process had them.
#[tokio::test]
async fn a_refund_returns_the_permits_of_its_own_call_and_none_of_an_earlier_lease() {
    with_worker(async |mut leased| {
        assert_eq!(leased.take(10).await, [Source::Store; 10]);
        leased.clock.advance(Duration::from_millis(500));
        let mut calls = leased.take_counted(4).await;
        leased.clock.advance(Duration::from_millis(1));
        // Calls with another `max` do not find the lease. Theirs replaces it.
        leased.limit = Limit::new(MAX + 1, Duration::from_secs(1)).expect("a limit");
        calls.extend(leased.take_counted(4).await);
        assert_eq!(leased.remaining().await, MAX + 1 - 10 - 2 * (4 + 64));
        leased.refund(&calls).await;
        leased.clock.advance(usable_time(leased.limit));
        leased.until_remaining(MAX + 1 - 10).await;
        leased.clock.advance(Duration::from_millis(499) - usable_time(leased.limit));
        assert_eq!(leased.remaining().await, MAX + 1, "the first 10 permits have expired");
    })
    .await;
}

#[tokio::test]
async fn permits_of_a_replaced_lease_are_kept_for_the_next_script_call() {
    with_worker(async |leased| {
        let _ = leased.begin_batch();
        leased.put_in_force(ID, 20, leased.now());
        assert!(leased.take_from_lease(3));
        leased.put_in_force(LeaseId { end: 1_010, ..ID }, 8, leased.now());
        let (_, terms) = leased.begin_batch();
        assert_eq!(terms.returned, Some(ReturnedPermits { permits: 17, id: ID }));
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_was_not_wanted_or_has_no_permits_is_not_put_in_force() {
    with_worker(async |leased| {
        for permits in [0, 65] {
            leased.put_in_force(ID, permits, leased.now());
            assert!(!leased.take_from_lease(1), "{permits}");
        }
        leased.put_in_force(ID, 64, leased.now());
        assert!(leased.take_from_lease(64));
    })
    .await;
}

#[tokio::test]
async fn no_lease_is_requested_or_put_in_force_while_the_standby_limiter_is_consulted() {
    with_worker(async |leased| {
        let standby = leased.worker.keeper.local.standby();
        standby.calls_failed([leased.request(1)]);
        assert!(standby.is_consulted(SlottedRequests::in_slot_0(&[leased.request(1)])));
        leased.put_in_force(ID, 64, leased.now());
        assert!(!leased.take_from_lease(1));
        let remaining = standby.peek(&[leased.request(1)]).remaining;
        assert_eq!(remaining, MAX, "the mirror has none of its permits");
        let wanted = [leased.begin_batch().1, leased.begin_batch().1].map(|terms| terms.wanted);
        assert_eq!(wanted, [0, 0]);
    })
    .await;
}

/// A lease that arrives after half of its time is of little use.
#[tokio::test]
async fn no_lease_is_requested_over_a_round_trip_longer_than_half_of_its_time() {
    with_worker(async |leased| {
        let half = leased.limit.lease_time() / 2;
        leased.record_replies(8, half + Duration::from_micros(1));
        let wanted = [leased.begin_batch().1, leased.begin_batch().1].map(|terms| terms.wanted);
        assert_eq!(wanted, [0, 0]);
        leased.renew().await;
        assert!(!leased.is_requested() && !leased.take_from_lease(1));
        leased.record_replies(8, half);
        assert!(leased.begin_batch().1.wanted > 0);
    })
    .await;
}

#[tokio::test]
async fn a_batch_without_leases_has_no_terms() {
    with_worker(async |leased| {
        let calls = [leased.reserve(leased.pending().0)];
        let mut entries = [BatchEntry { limit: leased.limit, cost: 1, calls: 1, is_charge: false, lease: None }];
        assert!(leased.worker.keeper.terms(&mut entries, &calls).is_none());
        assert!(leased.end_batch(None, None).is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_reply_to_a_batch_puts_its_leases_in_force() {
    with_worker(async |leased| {
        let leases = leased.begin_requesting_batch();
        let reply = |id| BatchReply { entries: vec![Ok(ENTRY)], leases: vec![LeaseReply { permits: 0, id }] };
        let all_effects = leased.end_batch(leases, Some(&Ok(reply(None))));
        assert_eq!(all_effects, [(0, SideEffects::default())]);
        assert!(!leased.is_requested());
        let (leases, terms) = leased.begin_batch();
        let granted = LeaseReply { permits: terms.wanted, id: Some(ID) };
        let all_effects = leased.end_batch(leases, Some(&Ok(BatchReply { leases: vec![granted], ..reply(None) })));
        assert_eq!(all_effects, [(0, SideEffects { newest: Some(ID), ..SideEffects::default() })]);
        assert!(!leased.is_requested() && leased.take_from_lease(terms.wanted));
    })
    .await;
}

#[tokio::test]
async fn a_failed_batch_closes_its_requests_and_one_that_was_refused_keeps_its_returned_permits() {
    with_worker(async |leased| {
        let _ = leased.begin_batch();
        let refusal = Err(CallError::NeedsSplit(Error::new(ErrorKind::Unavailable, "the slot moves")));
        for (refused, kept) in [(Some(&refusal), 1), (None, 0)] {
            let returned = ReturnedPermits { permits: 9, id: ID };
            assert_eq!(leased.worker.keeper.demands.keep(&leased.request(1), returned), Ok(()));
            let (leases, terms) = leased.begin_batch();
            assert!(terms.wanted > 0 && terms.returned == Some(returned));
            assert!(leased.end_batch(leases, refused).is_empty());
            assert!(!leased.is_requested());
            let found = leased.worker.keeper.demands.take_kept(&leased.request(1), ID);
            assert_eq!(found, Some(returned).filter(|_| kept == 1));
        }
    })
    .await;
}

/// The next lease may be too small as well.
#[tokio::test]
async fn a_call_waits_once_for_a_lease_that_is_requested() {
    with_worker(async |leased| {
        let (call, reply) = leased.pending();
        assert!(!leased.reply_or_hold(&call), "no lease is requested");
        let leases = leased.begin_requesting_batch();
        assert!(leased.reply_or_hold(&call));
        assert!(!leased.reply_or_hold(&call), "it has waited");
        assert!(leased.end_batch(leases, None).is_empty());
        let counted = reply.await.expect("a reply").expect("no failure");
        assert_eq!(counted.source, Source::Store);
    })
    .await;
}

#[tokio::test]
async fn calls_that_waited_are_decided_by_the_lease_in_their_order() {
    with_worker(async |leased| {
        let leases = leased.begin_requesting_batch();
        let (calls, replies): (Vec<_>, Vec<_>) = (0..10).map(|_| leased.pending()).unzip();
        assert!(calls.iter().all(|call| leased.reply_or_hold(call)));
        let granted = LeaseReply { permits: 8, id: Some(ID) };
        let reply = BatchReply { entries: vec![Ok(ENTRY)], leases: vec![granted] };
        let _ = leased.end_batch(leases, Some(&Ok(reply)));
        for (index, reply) in replies.into_iter().enumerate() {
            let counted = reply.await.expect("a reply").expect("no failure");
            assert_eq!(counted.source, if index < 8 { Source::Lease } else { Source::Store }, "{index}");
        }
    })
    .await;
}

#[tokio::test]
async fn calls_of_another_counter_are_not_held() {
    with_worker(async |mut leased| {
        let _leases = leased.begin_requesting_batch();
        leased.limit = Limit::new(MAX, Duration::from_secs(2)).expect("a limit");
        assert!(!leased.reply_or_hold(&leased.pending().0));
    })
    .await;
}

/// The task of a batch panics, or the runtime drops it. The counter must not be without leases from then on, and the
/// calls that wait for the lease are sent.
#[tokio::test]
async fn a_dropped_request_is_closed_and_sends_the_calls_that_wait() {
    with_worker(async |leased| {
        let leases = leased.begin_requesting_batch();
        for (round, leases) in [leases, None].into_iter().enumerate() {
            let leases = leases.or_else(|| leased.begin_batch().0);
            assert!(leased.is_requested());
            let (calls, replies): (Vec<_>, Vec<_>) = (0..2).map(|_| leased.pending()).unzip();
            assert!(calls.iter().all(|call| leased.reply_or_hold(call)));
            let task = spawn_local(async move {
                let _leases = leases;
                assert!(round == 1, "a panic of the worker's task");
                pending::<()>().await;
            });
            yield_now().await;
            task.abort();
            assert_eq!(task.await.expect_err("it has no end").is_panic(), round == 0);
            for reply in replies {
                assert_eq!(reply.await.expect("a reply").expect("no failure").source, Source::Store);
            }
            assert!(!leased.is_requested());
            leased.clock.advance(usable_time(leased.limit));
            assert!(leased.begin_batch().1.wanted > 0, "the next batch requests a lease");
        }
    })
    .await;
}

/// A panic while the batch is settled drops the grants. The calls that waited are sent all the same.
#[tokio::test]
async fn dropped_grants_send_the_calls_that_wait() {
    with_worker(async |leased| {
        let leases = leased.begin_requesting_batch();
        let (calls, replies): (Vec<_>, Vec<_>) = (0..2).map(|_| leased.pending()).unzip();
        assert!(calls.iter().all(|call| leased.reply_or_hold(call)));
        drop(calls);
        drop(leased.worker.keeper.granted(leases, None));
        for reply in replies {
            assert_eq!(reply.await.expect("a reply").expect("no failure").source, Source::Store);
        }
    })
    .await;
}

/// A fault: the calls that waited were sent before the failure of the batch was recorded. So the standby limiter reserved
/// no permits for them.
#[tokio::test]
async fn calls_that_waited_are_sent_after_the_failure_of_the_batch_is_recorded() {
    let (server, limit) = (RedisServer::start(), Limit::new(MAX, Duration::from_secs(1)).expect("a limit"));
    let test = async {
        let leased = LeasedWorker::start_on(&server, limit).await;
        assert_eq!(leased.take(1).await, [Source::Store]);
        let [name] = &server.keys()[..] else { panic!("one counter") };
        server.command(&["DEL", name]);
        server.command(&["LPUSH", name, "no counter"]);
        let send = |calls| {
            let replies: Vec<_> = (0..calls)
                .map(|_| {
                    let (call, reply) = leased.call(Action::Take { max_wait: Duration::ZERO, leases: true });
                    leased.worker.enqueue(call);
                    reply
                })
                .collect();
            leased.worker.send_batches(&leased.queue);
            replies
        };
        let (mut replies, waiting) = (send(4), send(1));
        assert!(leased.is_requested());
        replies.extend(waiting);
        let mut reserved = Vec::new();
        for reply in replies {
            let failure = reply.await.expect("a reply").expect_err("the key has no counter");
            reserved.push(failure.reservation.is_some());
        }
        assert_eq!(reserved, [false, false, false, false, true]);
    };
    LocalSet::new().run_until(test).await;
}
