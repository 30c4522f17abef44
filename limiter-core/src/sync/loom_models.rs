//! What must hold whatever the order in which threads go on. Run by `scripts/test`.

use std::num::NonZeroU32;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::model;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;

use crate::clock::{Clock, Moment};
use crate::decision::limiter_id::LimiterId;
use crate::decision::receipt::Receipt;
use crate::limiter::wait_queue::{Schedule, Ticket, Turn, WaitQueues};
use crate::local::denial_cache::DenialCache;
use crate::local::standby::{Precheck, Standby, StandbyConfig};
use crate::overflow::Overflows;
use crate::request::RefundInfo;
use crate::request::{OwnedRequest, Request, StoreReply};
use crate::store::memory::MemoryStore;
use crate::store::naming::Naming;
use crate::{Key, Limit, ManualClock, Source};

/// Enough for two shards, which two decisions may lock in two orders.
const TWO_SHARDS: usize = 8192;

fn clock() -> Clock {
    Clock::Manual(ManualClock::new())
}

fn limit(text: &str) -> Limit {
    text.parse().expect("a limit")
}

fn request<'a>(key: &'a Key, text: &str) -> Request<'a> {
    Request { key, limit: limit(text), cost: 1 }
}

#[test]
fn one_key_is_never_admitted_more_than_its_limit() {
    model(|| {
        let store = Arc::new(MemoryStore::new(1, clock(), Source::Store));
        let admitted = Arc::new(AtomicU32::new(0));
        let ask = |store: &MemoryStore, admitted: &AtomicU32| {
            let allowed = store.decide(&[request(&Key::new("getId"), "2/1m")]).allowed;
            admitted.fetch_add(allowed.into(), Ordering::Relaxed);
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (store, admitted) = (Arc::clone(&store), Arc::clone(&admitted));
                thread::spawn(move || ask(&store, &admitted))
            })
            .collect();
        ask(&store, &admitted);
        for thread in threads {
            thread.join().expect("ends well");
        }
        assert_eq!(admitted.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn decisions_on_the_same_keys_in_opposite_order_neither_block_each_other_nor_share_a_permit() {
    model(|| {
        let store = Arc::new(MemoryStore::new(TWO_SHARDS, clock(), Source::Store));
        let first = Key::new("a");
        let in_another_shard = |key: &Key| store.parts(&first, key, limit("1/1m"));
        let second = (0..100).map(|index| Key::new("b").part(index)).find(in_another_shard).expect("one of them");
        let other = {
            let store = Arc::clone(&store);
            let (first, second) = (first.clone(), second.clone());
            thread::spawn(move || store.decide(&[request(&second, "1/1m"), request(&first, "1/1m")]).allowed)
        };
        let this = store.decide(&[request(&first, "1/1m"), request(&second, "1/1m")]).allowed;
        let other = other.join().expect("ends well");
        assert!(this != other, "one of the two, whole");
    });
}

#[test]
fn a_receipt_is_spent_once() {
    model(|| {
        let key = Key::new("getId");
        let granted = RefundInfo::from_store(1);
        let receipt =
            Receipt::new(LimiterId::next(), OwnedRequest::copy_all(&[request(&key, "1/1m")]), granted).expect("a cost");
        let other = {
            let receipt = receipt.clone();
            thread::spawn(move || receipt.use_up().is_some())
        };
        let this = receipt.use_up().is_some();
        assert!(this != other.join().expect("ends well"));
    });
}

/// A call that the store fails is decided by the stand-in, while another is sent that the store will admit, which has
/// lost what it knew: together they get no more than one limit.
#[test]
fn a_stand_in_and_a_store_that_forgot_never_admit_more_than_the_limit_together() {
    model(|| {
        let role = StandbyConfig {
            max_keys: 1,
            instances: NonZeroU32::MIN,
            slots: 1,
            naming: std::sync::Arc::new(Naming::new("", None)),
        };
        let standby = Arc::new(Standby::new(&role, clock()));
        let failed = {
            let standby = Arc::clone(&standby);
            thread::spawn(move || {
                let key = Key::new("getId");
                let requests = [request(&key, "1/1m")];
                standby.call_failed(&requests);
                standby.decide(&requests, Duration::ZERO).expect("no lock is orphaned").allowed
            })
        };
        let key = Key::new("getId");
        let requests = [request(&key, "1/1m")];
        // The store is empty: it would admit.
        let empty = MemoryStore::new(1, clock(), Source::Store);
        let admitted = match standby.reserve(&requests, Duration::ZERO) {
            Precheck::Denied(_) => false,
            Precheck::Skip => {
                let answer = empty.decide(&requests);
                standby.reconcile(&requests, Duration::ZERO, None, &answer).is_ok()
            }
            Precheck::Reserved(held) => {
                let answer = empty.decide(&requests);
                standby.reconcile(&requests, Duration::ZERO, Some(&held), &answer).is_ok()
            }
        };
        let other = failed.join().expect("ends well");
        assert!(!(admitted && other), "both were admitted");
    });
}

/// The store admits two permits that the mirror has no room for, as around the edge of a window, while another call
/// fails: the standby limiter then has no room either, or the store's admission is denied after all.
#[test]
fn permits_beyond_the_mirrors_limit_and_a_standby_decision_see_each_other() {
    model(|| {
        let role = StandbyConfig {
            max_keys: 1,
            instances: NonZeroU32::MIN,
            slots: 1,
            naming: std::sync::Arc::new(Naming::new("", None)),
        };
        let standby = Arc::new(Standby::new(&role, clock()));
        let key = Key::new("getId");
        standby.record(&[request(&key, "2/1m")]);
        let failed = {
            let standby = Arc::clone(&standby);
            thread::spawn(move || {
                let key = Key::new("getId");
                let requests = [request(&key, "2/1m")];
                standby.call_failed(&requests);
                standby.decide(&requests, Duration::ZERO).expect("no fork").allowed
            })
        };
        let two = [Request { cost: 2, ..request(&key, "2/1m") }];
        let answer = MemoryStore::new(1, clock(), Source::Store).decide(&two);
        let admitted = standby.reconcile(&two, Duration::ZERO, None, &answer).is_ok();
        let other = failed.join().expect("ends well");
        assert!(!(admitted && other), "three of two in one window of the store");
    });
}

#[test]
fn no_denial_is_remembered_past_what_changed_after_it_was_asked_for() {
    model(|| {
        let denied = Arc::new(DenialCache::new(Duration::from_secs(1), clock()));
        let key = Key::new("getId");
        let asked = denied.version(&request(&key, "1/1m"));
        let noting = {
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
                };
                denied.update(&request(&Key::new("getId"), "1/1m"), asked, false, Some(&denial));
            })
        };
        let requests = [request(&key, "1/1m")];
        denied.invalidate(&requests);
        noting.join().expect("ends well");
        assert!(denied.get(&requests).is_none(), "remembered all the same");
    });
}

#[test]
fn of_two_who_ask_at_once_one_is_told_of_an_overflow_and_nothing_is_forgotten() {
    model(|| {
        let time = ManualClock::new();
        let overflows = Overflows::new(Source::Store, 1, Clock::Manual(time.clone()));
        let told = |overflows: &Overflows| overflows.due().map(|report| report.overflow.shared());
        let share = move |overflows: &Overflows| {
            overflows.count(1);
            told(overflows)
        };
        let other = {
            let overflows = std::sync::Arc::clone(&overflows);
            thread::spawn(move || share(&overflows))
        };
        let this = share(&overflows);
        let other = other.join().expect("ends well");
        assert!(this.is_some() != other.is_some(), "one of the two");
        time.advance(Duration::from_secs(1));
        let later = told(&overflows);
        assert_eq!([this, other, later].into_iter().flatten().sum::<u64>(), 2);
    });
}

/// Notes that it was woken.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn poll_turn(ticket: &Ticket<'_>, waker: &Waker) -> Poll<Turn> {
    let turn = pin!(ticket.turn()).poll(&mut Context::from_waker(waker));
    turn.map(|turn| turn.expect("a clock"))
}

#[test]
fn a_waiter_goes_on_when_the_one_before_it_leaves_while_it_is_polled() {
    model(|| {
        let clock = clock();
        let schedule = Schedule { retry_at: clock.now(), give_up: Moment::NEVER };
        let queues = WaitQueues::new(clock);
        let leaving = {
            let queues = std::sync::Arc::clone(&queues);
            thread::spawn(move || {
                let key = Key::new("getId");
                let first = queues.ticket(&[request(&key, "1/1m")], 1, schedule);
                assert_eq!(poll_turn(&first, Waker::noop()), Poll::Ready(Turn::Check));
            })
        };
        let key = Key::new("getId");
        let second = queues.ticket(&[request(&key, "1/1m")], 2, schedule);
        let flag = std::sync::Arc::new(Flag(AtomicBool::new(false)));
        let turn = poll_turn(&second, &Waker::from(std::sync::Arc::clone(&flag)));
        leaving.join().expect("ends well");
        assert!(turn.is_ready() || flag.0.load(Ordering::SeqCst), "neither goes on nor was woken");
    });
}
