//! Invariants in every interleaving of threads. `scripts/test` runs these models.

use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::{model, thread};

use crate::clock::{Clock, Moment};
use crate::decision::receipt::{Claim, LimiterId, ReceiptTerms};
use crate::instances::Instances;
use crate::limiter::wait_queue::{Demands, Schedule, Ticket, Turn, WaitQueues};
use crate::local::counter_hash::CounterHash;
use crate::local::denial_cache::DenialCache;
use crate::local::leases::Leases;
use crate::local::sent::SentTake;
use crate::local::standby::StandbyConfig;
use crate::local::{Local, LocalOptions};
use crate::overflow::Overflows;
use crate::request::{OwnedRequest, RefundInfo, Request, SlottedRequests, StoreReply};
use crate::store::memory::MemoryStore;
use crate::{Key, Limit, ManualClock, OnError, Source};

mod leases;

/// The least capacity of a store with two shards, which two decisions could lock in two orders.
const TWO_SHARDS: usize = 8192;

fn clock() -> Clock {
    Clock::Manual(ManualClock::new())
}

fn limit(text: &str) -> Limit {
    text.parse().expect("a limit")
}

fn request<'a>(key: &'a Key, text: &str) -> Request<'a> {
    Request::new(key, limit(text), 1)
}

#[test]
fn one_key_is_never_admitted_more_than_its_limit() {
    model(|| {
        let store = Arc::new(MemoryStore::new(1, clock(), Source::Store));
        let admitted = Arc::new(AtomicU32::new(0));
        let decide = |store: &MemoryStore, admitted: &AtomicU32| {
            let allowed = store.decide(&[request(&Key::new("getId"), "2/1m")]).allowed;
            admitted.fetch_add(allowed.into(), Ordering::Relaxed);
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (store, admitted) = (Arc::clone(&store), Arc::clone(&admitted));
                thread::spawn(move || decide(&store, &admitted))
            })
            .collect();
        decide(&store, &admitted);
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(admitted.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn decisions_about_the_same_keys_in_opposite_order_neither_deadlock_nor_share_a_permit() {
    model(|| {
        let store = Arc::new(MemoryStore::new(TWO_SHARDS, clock(), Source::Store));
        let first = Key::new("a");
        let in_another_shard = |key: &Key| store.in_different_shards(&first, key, limit("1/1m"));
        let second = (0..100).map(|index| Key::new("b").part(index)).find(in_another_shard).expect("one of them");
        let other = {
            let store = Arc::clone(&store);
            let (first, second) = (first.clone(), second.clone());
            thread::spawn(move || store.decide(&[request(&second, "1/1m"), request(&first, "1/1m")]).allowed)
        };
        let this = store.decide(&[request(&first, "1/1m"), request(&second, "1/1m")]).allowed;
        let other = other.join().expect("no panic");
        assert!(this != other, "exactly one of the two is admitted");
    });
}

/// Denies `first`, and then `read` while another thread denies `second`. All keys have one slot.
fn read_while_a_denial_is_overwritten(first: (&str, u64), second: (&'static str, u64), read: (&str, u64)) {
    let limit_of = |minutes: u64| format!("1/{minutes}m");
    let deny = move |store: &MemoryStore, (key, minutes): (&str, u64)| {
        let reply = store.decide(&[request(&Key::new(key), &limit_of(minutes))]);
        let window = Duration::from_secs(60 * minutes);
        assert_eq!((reply.allowed, reply.retry_after, reply.reset_after), (false, Some(window), window));
    };
    let store = Arc::new(MemoryStore::new(1_000, clock(), Source::Store));
    for (key, minutes) in [first, second] {
        assert!(store.decide(&[request(&Key::new(key), &limit_of(minutes))]).allowed);
    }
    deny(&store, first);
    let other = {
        let store = Arc::clone(&store);
        thread::spawn(move || deny(&store, second))
    };
    deny(&store, read);
    other.join().expect("no panic");
}

#[test]
fn no_reader_of_a_denial_that_is_overwritten_gets_a_torn_one() {
    model(|| read_while_a_denial_is_overwritten(("a", 1), ("b", 2), ("a", 1)));
}

#[test]
fn no_reader_of_a_denial_that_is_written_gets_a_torn_one() {
    model(|| read_while_a_denial_is_overwritten(("a", 1), ("b", 2), ("b", 2)));
}

/// The denial is in the cache when the permit is refunded.
#[test]
fn no_call_after_a_refund_gets_the_earlier_denial() {
    model(|| {
        let store = Arc::new(MemoryStore::new(1_000, clock(), Source::Store));
        let key = Key::new("a");
        let stamp = store.decide(&[request(&key, "1/1m")]).stamp;
        assert!(!store.decide(&[request(&key, "1/1m")]).allowed);
        let refunded = Arc::new(AtomicBool::new(false));
        let other = {
            let (store, key, refunded) = (Arc::clone(&store), key.clone(), Arc::clone(&refunded));
            thread::spawn(move || {
                store.refund(&[request(&key, "1/1m")], stamp);
                refunded.store(true, Ordering::Release);
            })
        };
        let was_refunded = refunded.load(Ordering::Acquire);
        let allowed = store.decide(&[request(&key, "1/1m")]).allowed;
        assert!(allowed || !was_refunded);
        other.join().expect("no panic");
        assert!(allowed || store.decide(&[request(&key, "1/1m")]).allowed);
    });
}

/// Of a cost of 3, one thread refunds 2 and then all, and the other one 2.
#[test]
fn a_receipt_refunds_each_permit_once() {
    model(|| {
        let key = Key::new("getId");
        let granted = RefundInfo::from_store(1);
        let requests = [Request { cost: 3, ..request(&key, "3/1m") }, Request { cost: 1, ..request(&key, "3/1h") }];
        let requests = OwnedRequest::copy_all(&requests);
        let terms = ReceiptTerms { limiter_id: LimiterId::next(), on_error: OnError::default(), deadline: None };
        let receipt = Claim::new(terms, requests, granted, &["a"]);
        let refund = |receipt: &Claim, permits| {
            let Some(used) = receipt.refund(permits) else { return [0, 0] };
            let before: Vec<_> = used.before().collect();
            [0, 1].map(|index: usize| before[index] - used.after[index])
        };
        let other = {
            let receipt = receipt.clone();
            thread::spawn(move || refund(&receipt, 2))
        };
        let mut refunds = vec![refund(&receipt, 2), refund(&receipt, u32::MAX)];
        refunds.push(other.join().expect("no panic"));
        let sums = [0, 1].map(|index: usize| refunds.iter().map(|refunded| refunded[index]).sum::<u32>());
        assert_eq!(sums, [3, 1], "{refunds:?}");
    });
}

/// Returns a state without denials and leases.
fn local(clock: &Clock) -> std::sync::Arc<Local> {
    let standby = StandbyConfig { max_keys: 1, instances: Instances::set(1), slots: 1, is_in_child: false };
    let overflows = Overflows::new(Source::Standby, standby.max_keys, clock.clone());
    LocalOptions { standby, remember_denials: Duration::ZERO, clock: clock.clone(), overflows }.new_local()
}

fn is_admitted_by_standby(local: &Local, requests: &[Request<'_>]) -> bool {
    local.standby().decide(requests, Duration::ZERO).allowed
}

/// Begins a call that is sent.
fn begin<'a>(local: &'a Local, requests: &'a [Request<'a>]) -> Result<SentTake<'a>, StoreReply> {
    local.begin(SlottedRequests::in_slot_0(requests), CounterHash::of(&requests[0]), Duration::ZERO)
}

/// Settles a call by the reply of an empty store, which admits it.
fn is_admitted_by_empty_store(sent: SentTake<'_>, requests: &[Request<'_>]) -> bool {
    let reply = MemoryStore::new(1, clock(), Source::Store).decide(requests);
    assert!(reply.allowed);
    sent.settle(reply.into()).reply.allowed
}

/// The standby limiter decides a call that has failed, while the store admits another one. The store has lost its data,
/// so only the mirror prevents that both are admitted.
#[test]
fn a_standby_and_a_store_that_lost_its_data_never_admit_more_than_the_limit() {
    model(|| {
        let local = local(&clock());
        let failed = {
            let local = std::sync::Arc::clone(&local);
            thread::spawn(move || {
                let key = Key::new("getId");
                let requests = [request(&key, "1/1m")];
                local.fail(requests);
                is_admitted_by_standby(&local, &requests)
            })
        };
        let key = Key::new("getId");
        let requests = [request(&key, "1/1m")];
        let admitted = match begin(&local, &requests) {
            Ok(sent) => is_admitted_by_empty_store(sent, &requests),
            Err(_) => false,
        };
        let other = failed.join().expect("no panic");
        assert!(!(admitted && other), "both were admitted");
    });
}

/// Two calls are in flight. One has failed, because its task has ended, and the standby limiter decides it. The other
/// one is settled by a store that has lost its data.
#[test]
fn a_failure_that_is_recorded_while_a_call_is_in_flight_is_found_when_that_is_settled() {
    model(|| {
        let local = local(&clock());
        let key = Key::new("getId");
        let requests = [request(&key, "1/1m")];
        let sent = begin(&local, &requests).expect("no failure");
        let failed = {
            let local = std::sync::Arc::clone(&local);
            thread::spawn(move || {
                let key = Key::new("getId");
                let requests = [request(&key, "1/1m")];
                drop(begin(&local, &requests));
                is_admitted_by_standby(&local, &requests)
            })
        };
        let admitted = is_admitted_by_empty_store(sent, &requests);
        let other = failed.join().expect("no panic");
        assert!(!(admitted && other), "both were admitted");
    });
}

/// The server of a call fails while the call is in flight, and its leases end. The standby limiter decides another call.
#[test]
fn a_call_whose_server_fails_while_it_is_in_flight_shares_no_permit_with_the_standby_limiter() {
    model(|| {
        let local = local(&clock());
        let key = Key::new("getId");
        let requests = [request(&key, "1/1m")];
        let sent = begin(&local, &requests).expect("no failure");
        let failed = {
            let local = std::sync::Arc::clone(&local);
            thread::spawn(move || {
                let key = Key::new("getId");
                local.server_failed(&[0..=0]);
                is_admitted_by_standby(&local, &[request(&key, "1/1m")])
            })
        };
        let admitted = is_admitted_by_empty_store(sent, &requests);
        let other = failed.join().expect("no panic");
        assert!(!(admitted && other), "both were admitted");
    });
}

/// The store admits two permits that exceed the mirror's limit, as around the edge of a window, while another call
/// fails. Either the standby limiter denies that call, or the store's admission is denied after all.
#[test]
fn the_standby_denies_what_exceeds_the_limit_with_permits_beyond_the_mirror() {
    model(|| {
        let local = local(&clock());
        let key = Key::new("getId");
        local.standby().record(&[request(&key, "2/1m")]);
        let two = [Request { cost: 2, ..request(&key, "2/1m") }];
        let sent = begin(&local, &two).expect("no failure");
        let failed = {
            let local = std::sync::Arc::clone(&local);
            thread::spawn(move || {
                let key = Key::new("getId");
                let requests = [request(&key, "2/1m")];
                local.fail(requests);
                is_admitted_by_standby(&local, &requests)
            })
        };
        let admitted = is_admitted_by_empty_store(sent, &two);
        let other = failed.join().expect("no panic");
        assert!(!(admitted && other), "three permits of two in one window of the store");
    });
}

#[test]
fn a_denial_is_not_cached_after_an_invalidation_since_its_request() {
    model(|| {
        let denied = Arc::new(DenialCache::new(Duration::from_secs(1), clock()));
        let key = Key::new("getId");
        let version = denied.version(&request(&key, "1/1m"));
        let caching = {
            let denied = Arc::clone(&denied);
            thread::spawn(move || {
                let wait = Duration::from_secs(60);
                let denial = StoreReply {
                    allowed: false,
                    request_index: 0,
                    remaining: 0,
                    retry_after: Some(wait),
                    reset_after: wait,
                    stamp: 0,
                    delay: Duration::ZERO,
                    is_blocked: false,
                };
                denied.update(&request(&Key::new("getId"), "1/1m"), version, false, Some(&denial), None);
            })
        };
        let requests = [request(&key, "1/1m")];
        denied.invalidate(&requests);
        caching.join().expect("no panic");
        assert!(denied.get(&requests).is_none(), "cached in spite of the invalidation");
    });
}

#[test]
fn one_of_two_concurrent_calls_reports_an_overflow_and_none_is_lost() {
    model(|| {
        let time = ManualClock::new();
        let overflows = Overflows::new(Source::Store, 1, Clock::Manual(time.clone()));
        let report = |overflows: &Overflows| overflows.take_due_report().map(|report| report.overflow.shared());
        let share = move |overflows: &Overflows| {
            overflows.count(1);
            report(overflows)
        };
        let other = {
            let overflows = std::sync::Arc::clone(&overflows);
            thread::spawn(move || share(&overflows))
        };
        let this = share(&overflows);
        let other = other.join().expect("no panic");
        assert!(this.is_some() != other.is_some(), "one of the two");
        time.advance(Duration::from_secs(1));
        let later = report(&overflows);
        assert_eq!([this, other, later].into_iter().flatten().sum::<u64>(), 2);
    });
}

/// A waker that records the wake-up.
struct LoomWakeFlag(AtomicBool);

impl Wake for LoomWakeFlag {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn poll_turn(ticket: &mut Ticket<'_>, waker: &Waker) -> Poll<Turn> {
    let turn = pin!(ticket.turn(|| false)).poll(&mut Context::from_waker(waker));
    turn.map(|turn| turn.expect("a clock"))
}

#[test]
fn a_waiter_is_woken_when_the_one_before_it_leaves_during_its_poll() {
    model(|| {
        let clock = clock();
        let schedule = Schedule { retry_at: clock.now(), deadline: Moment::NEVER, version: 0 };
        let queues = WaitQueues::new(clock, false);
        let leaving = {
            let queues = std::sync::Arc::clone(&queues);
            thread::spawn(move || {
                let key = Key::new("getId");
                let requests = [request(&key, "1/1m")];
                let mut first = queues.ticket(&requests, Demands::new(&requests), 1, schedule);
                assert_eq!(poll_turn(&mut first, Waker::noop()), Poll::Ready(Turn::Check));
            })
        };
        let key = Key::new("getId");
        let requests = [request(&key, "1/1m")];
        let mut second = queues.ticket(&requests, Demands::new(&requests), 2, schedule);
        let flag = std::sync::Arc::new(LoomWakeFlag(AtomicBool::new(false)));
        let turn = poll_turn(&mut second, &Waker::from(std::sync::Arc::clone(&flag)));
        leaving.join().expect("no panic");
        assert!(turn.is_ready() || flag.0.load(Ordering::SeqCst), "neither ready nor woken");
    });
}
