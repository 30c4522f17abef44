use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::*;
use crate::error::{ErrorKind, Source};
use crate::local::sent::tests::{DENIED, is_consulted, left, limit, local};
use crate::request::{ChargeReply, Overdraft, OwnedRequest};
use crate::{Key, Limit};

/// A call that records its reply, with the failures that are recorded by then.
pub(in crate::local::sent) struct RecordedCall {
    local: Arc<Local>,
    request: OwnedRequest,
    is_charge: bool,
    reservation: Cell<Option<StoreReply>>,
    reply: RefCell<Option<Result<CountedReply, StoreFailure>>>,
    /// The keys whose failures the reply has to follow.
    all: Vec<Key>,
    had_failed: Cell<bool>,
}

impl WaitingCall for RecordedCall {
    fn request(&self) -> Request<'_> {
        self.request.as_request()
    }

    fn counter(&self) -> CounterHash {
        CounterHash::of(&self.request())
    }

    fn slot(&self) -> u16 {
        0
    }

    fn is_charge(&self) -> bool {
        self.is_charge
    }

    fn reservation(&self) -> &Cell<Option<StoreReply>> {
        &self.reservation
    }

    fn has_reply(&self) -> bool {
        self.reply.borrow().is_some()
    }

    fn reply(&self, result: Result<CountedReply, StoreFailure>) {
        let has_failed = |key| is_consulted(&self.local, Request::new(key, limit(), 1));
        self.had_failed.set(self.all.iter().all(has_failed));
        self.reply.replace(Some(result));
    }
}

fn keys<const N: usize>() -> [Key; N] {
    std::array::from_fn(|index| Key::new("a").part(index))
}

/// Calls of these keys.
fn calls(local: &Arc<Local>, keys: &[Key], limit: Limit) -> Vec<Rc<RecordedCall>> {
    let call = |key| {
        Rc::new(RecordedCall {
            local: Arc::clone(local),
            request: OwnedRequest::from(&Request::new(key, limit, 1)),
            is_charge: false,
            reservation: Cell::default(),
            reply: RefCell::default(),
            all: keys.to_vec(),
            had_failed: Cell::default(),
        })
    };
    keys.iter().map(call).collect()
}

/// Begins a batch, with an entry for each call.
fn begin<'l>(local: &'l Local, calls: &[Rc<RecordedCall>]) -> SentBatch<'l, RecordedCall> {
    let reserved = (0..).zip(calls).map(|(entry, call)| {
        let reserved = local.reserve(Rc::clone(call)).expect("room");
        Reserved { entry, ..reserved }
    });
    local.begin_batch(reserved.collect())
}

fn granted(granted: u32) -> BatchEntryReply {
    let (reset_after, retry_after) = (Duration::from_secs(60), Some(Duration::from_secs(60)));
    BatchEntryReply { granted, remaining: 0, retry_after, reset_after, stamp: 1, overdraft: None, is_blocked: false }
}

fn error() -> Error {
    Error::new(ErrorKind::Unavailable, "a test")
}

fn is_allowed(call: &RecordedCall) -> Option<bool> {
    call.reply.borrow().as_ref().and_then(|reply| reply.as_ref().ok()).map(|counted| counted.reply.allowed)
}

fn has_failed(call: &RecordedCall) -> bool {
    call.reply.borrow().as_ref().is_some_and(Result::is_err)
}

/// The keys of calls do not collide in the table of failures: the seed of a test is fixed.
#[test]
fn all_failures_are_recorded_before_the_first_reply() {
    let keys = keys::<3>();
    for way in 0..3 {
        let local = local();
        let calls = calls(&local, &keys, limit());
        match way {
            0 => begin(&local, &calls).fail(|_| error()),
            1 => local.fail_calls(calls.iter().map(|call| &**call), |_| error()),
            _ => {
                let reserved = calls.iter().map(|call| local.reserve(Rc::clone(call)).expect("room"));
                local.begin_batch(reserved.collect()).settle_all(|entry| entry.fail(&error()));
            }
        }
        assert!(calls.iter().all(|call| has_failed(call) && call.had_failed.get()), "{way}");
    }
}

#[test]
fn entries_that_are_dropped_have_failed_and_others_have_not() {
    let (local, keys) = (local(), keys::<3>());
    let calls = calls(&local, &keys, limit());
    begin(&local, &calls).settle_all(|entry| match entry.index() {
        0 => entry.settle(&granted(1), SideEffects::default()),
        1 => drop(entry),
        _ => entry.settle(&granted(0), SideEffects::default()),
    });
    assert_eq!([0, 1, 2].map(|index| is_allowed(&calls[index])), [Some(true), None, Some(false)]);
    let requests = [0, 1, 2].map(|index: usize| calls[index].request());
    assert_eq!(requests.map(|request| is_consulted(&local, request)), [false, true, false]);
    assert_eq!(requests.map(|request| left(&local, request)), [1, 2, 2]);
    assert_eq!(requests.map(|request| local.denials.get(&[request]).is_some()), [false, false, true]);
}

/// A call with a reply has not failed: it has timed out before, say, which was recorded.
#[test]
fn a_batch_that_is_dropped_has_failed() {
    let (local, keys) = (local(), keys::<2>());
    let calls = calls(&local, &keys, limit());
    let sent = begin(&local, &calls);
    calls[0].reply(Err(StoreFailure { error: error(), reservation: None }));
    drop(sent);
    assert_eq!([0, 1].map(|index: usize| is_consulted(&local, calls[index].request())), [false, true]);
    assert!(!calls[1].has_reply(), "it times out");
}

#[test]
fn entries_after_a_panic_have_failed() {
    let (local, keys) = (local(), keys::<3>());
    let calls = calls(&local, &keys, limit());
    let settle = || {
        begin(&local, &calls).settle_all(|entry| {
            assert!(entry.index() == 0, "a panic of the worker's task");
            entry.settle(&granted(1), SideEffects::default());
        });
    };
    assert!(catch_unwind(AssertUnwindSafe(settle)).is_err());
    let failed = [0, 1, 2].map(|index: usize| is_consulted(&local, calls[index].request()));
    assert_eq!(failed, [false, true, true]);
}

/// The server has refused a script call about several keys.
#[test]
fn calls_of_a_refused_batch_have_not_failed_and_keep_their_reservations() {
    let (local, keys) = (local(), keys::<2>());
    let calls = calls(&local, &keys, limit());
    local.fail([calls[0].request()]);
    let refused = begin(&local, &calls).into_refused();
    assert_eq!(refused.iter().map(|call| call.entry).collect::<Vec<_>>(), [0, 1]);
    assert!(!is_consulted(&local, calls[1].request()));
    assert_eq!([0, 1].map(|index: usize| calls[index].reservation.get().is_some()), [true, false]);
    assert_eq!(left(&local, calls[0].request()), 1, "it is reserved once");
    local.begin_batch(refused).fail(|_| error());
    let reply = calls[0].reply.borrow_mut().take();
    assert!(reply.is_some_and(|reply| reply.is_err_and(|failure| failure.reservation.is_some())));
}

/// The standby limiter is consulted and has no room. A charge is neither reserved nor denied, and counts in the mirror.
#[test]
fn a_charge_is_counted_by_the_mirror_and_never_denied() {
    let (local, keys) = (local(), keys::<1>());
    let request = Request::new(&keys[0], limit(), 1);
    local.fail([request]);
    local.record(&[Request { cost: 2, ..request }]);
    local.denials.update(&request, local.denials.version_of(CounterHash::of(&request)), false, Some(&DENIED), None);
    let call = Rc::into_inner(calls(&local, &keys, limit()).remove(0)).expect("one reference");
    let call = Rc::new(RecordedCall { is_charge: true, ..call });
    let wait = Duration::from_secs(60);
    let charge = ChargeReply { overdrawn: 1, uncounted: 0, remaining: 0, reset_after: wait };
    let reply = BatchEntryReply { overdraft: Some(Overdraft { uncounted: 0, overdrawn: 1 }), ..granted(1) };
    begin(&local, std::slice::from_ref(&call)).settle_all(|entry| entry.settle(&reply, SideEffects::default()));
    let counted = call.reply.borrow_mut().take().expect("a reply").expect("no failure");
    assert_eq!((counted.source, counted.per_request.expect("a charge").charges[0]), (Source::Store, charge));
    assert!(local.denials.get(&[request]).is_none(), "the counter has changed");
    let overdrawn =
        local.charge_by_standby(&[Request { cost: 0, ..request }]).per_request.expect("a charge").charges[0].overdrawn;
    assert_eq!(overdrawn, 1);
}

#[test]
fn a_direct_call_that_the_worker_of_another_limiter_takes_over_has_failed() {
    let (own, other, keys) = (local(), local(), keys::<1>());
    for (local, is_own) in [(&own, true), (&other, false)] {
        let call = &calls(local, &keys, limit())[0];
        let sent = own.begin_direct(&OwnedRequest::copy_all(&[call.request()]), call.counter(), 0).expect("no failure");
        match sent.take_over(local, Rc::clone(call)) {
            Some(sent) => sent.settle_all(|entry| entry.settle(&granted(0), SideEffects::default())),
            None => assert!(!call.has_reply()),
        }
        assert_eq!(call.has_reply(), is_own);
        assert_eq!(is_consulted(&own, call.request()), !is_own);
        own.denials.invalidate(&[call.request()]);
    }
    let request = Request::new(&keys[0], limit(), 1);
    assert!(!is_consulted(&other, request) && other.denials.get(&[request]).is_none());
}

/// The standby limiter has granted a permit since the failure. The mirror has room for one of the two calls.
#[test]
fn calls_that_are_settled_after_their_servers_failure_are_decided_by_the_standby_limiter() {
    let (local, key) = (local(), Key::new("a"));
    let calls = calls(&local, &[key.clone(), key], limit());
    let reserved = calls.iter().map(|call| local.reserve(Rc::clone(call)).expect("room"));
    let sent = local.begin_batch(reserved.collect());
    local.server_failed(&[0..=0]);
    assert!(local.standby.decide(&[calls[0].request()], Duration::ZERO).allowed);
    sent.settle_all(|entry| entry.settle(&granted(2), SideEffects::default()));
    let decided = [0, 1].map(|index: usize| {
        let reply = calls[index].reply.borrow_mut().take();
        let counted = reply.expect("a reply").expect("no failure");
        (counted.reply.allowed, counted.source)
    });
    assert_eq!(decided, [(true, Source::Store), (false, Source::Standby)]);
}
