use super::*;
use crate::clock::Clock;
use crate::error::{ErrorKind, Source};
use crate::instances::Instances;
use crate::local::standby::StandbyConfig;
use crate::local::{LocalOptions, StoreTicket};
use crate::overflow::Overflows;
use crate::request::RequestReport;
use crate::{Key, Limit, ManualClock};

pub(super) fn local() -> Arc<Local> {
    let clock = Clock::Manual(ManualClock::new());
    let standby = StandbyConfig { max_keys: 10, instances: Instances::set(1), slots: 1, is_in_child: false };
    let overflows = Overflows::new(Source::Standby, standby.max_keys, clock.clone());
    LocalOptions { standby, remember_denials: Duration::from_secs(60), clock, overflows }.new_local()
}

pub(super) fn limit() -> Limit {
    "2/1m".parse().expect("a limit")
}

/// A reply of a store that has no permits left.
pub(super) const DENIED: StoreReply =
    StoreReply { allowed: false, retry_after: Some(Duration::from_secs(60)), ..StoreReply::ALLOWED };

pub(super) fn is_consulted(local: &Local, request: Request<'_>) -> bool {
    local.standby.is_consulted(SlottedRequests::in_slot_0(&[request]))
}

/// The permits that the mirror has left.
pub(super) fn left(local: &Local, request: Request<'_>) -> u32 {
    local.standby.peek(&[request]).remaining
}

fn begin<'a>(local: &'a Local, requests: &'a [Request<'a>]) -> SentTake<'a> {
    local.begin(SlottedRequests::in_slot_0(requests), CounterHash::of(&requests[0]), Duration::ZERO).expect("room")
}

fn error() -> Error {
    Error::new(ErrorKind::Unavailable, "a test")
}

/// `settle` and `fail` take it by value. This does not compile if a type of it can be copied: the two implementations
/// apply then.
#[test]
fn nothing_that_was_sent_can_be_settled_twice() {
    trait NoCopies<Implementation> {
        fn assert() {}
    }
    struct Clones;
    impl<T> NoCopies<()> for T {}
    impl<T: Clone> NoCopies<Clones> for T {}
    <StoreTicket as NoCopies<_>>::assert();
    <SentTake<'static> as NoCopies<_>>::assert();
    <SentDirect as NoCopies<_>>::assert();
    #[cfg(feature = "redis")]
    {
        <batch::SentBatch<'static, batch::tests::RecordedCall> as NoCopies<_>>::assert();
        <batch::SentEntry<'static, batch::tests::RecordedCall> as NoCopies<_>>::assert();
        <crate::local::leases::SentRenewal<'static> as NoCopies<_>>::assert();
        <batch::Reserved<batch::tests::RecordedCall> as NoCopies<_>>::assert();
    }
}

/// The reply to a direct call.
fn entry_reply(granted: u32) -> BatchEntryReply {
    let (reset_after, retry_after) = (Duration::from_secs(60), Some(Duration::from_secs(60)));
    BatchEntryReply { granted, remaining: 0, retry_after, reset_after, stamp: 1, overdraft: None, is_blocked: false }
}

#[test]
fn a_reply_is_settled_in_the_denial_cache_and_the_mirror() {
    let (local, key) = (local(), Key::new("a"));
    let requests = [Request::new(&key, limit(), 1)];
    let counted = begin(&local, &requests).settle(StoreReply::ALLOWED.into());
    assert!(counted.reply.allowed && counted.source == Source::Store && counted.mirror_stamp > 0);
    assert_eq!(left(&local, requests[0]), 1);
    assert!(!begin(&local, &requests).settle(DENIED.into()).reply.allowed);
    assert!(local.denials.get(&requests).is_some());
    assert_eq!((left(&local, requests[0]), is_consulted(&local, requests[0])), (1, false));
}

/// The version of the denial cache is that at the moment of sending.
#[test]
fn a_denial_from_before_a_change_is_not_cached() {
    let (local, key) = (local(), Key::new("a"));
    let requests = [Request::new(&key, limit(), 1)];
    let owned = OwnedRequest::copy_all(&requests);
    let direct = local.begin_direct(&owned, CounterHash::of(&requests[0]), 0).expect("no failure");
    let sent = begin(&local, &requests);
    begin(&local, &requests).settle(StoreReply::ALLOWED.into());
    sent.settle(DENIED.into());
    assert!(local.denials.get(&requests).is_none());
    direct.settle(&entry_reply(0));
    assert!(local.denials.get(&requests).is_none());
}

#[test]
fn a_dropped_call_has_failed() {
    let (local, key) = (local(), Key::new("a"));
    let requests = [Request::new(&key, limit(), 1), Request::new(&key, "9/1h".parse().expect("a limit"), 1)];
    drop(begin(&local, &requests));
    assert!(is_consulted(&local, requests[0]));
}

#[test]
fn a_dropped_direct_call_has_failed() {
    let (local, key) = (local(), Key::new("a"));
    let requests @ [request] = [Request::new(&key, limit(), 1)];
    let owned = OwnedRequest::copy_all(&requests);
    let sent = local.begin_direct(&owned, CounterHash::of(&requests[0]), 0).expect("no failure");
    assert!(!is_consulted(&local, request));
    drop(sent);
    assert!(is_consulted(&local, request));
    assert!(local.begin_direct(&owned, CounterHash::of(&requests[0]), 0).is_none(), "the worker sends it");
}

/// The caller of a failed call gets the reservation. A dropped one has no caller.
#[test]
fn a_reservation_is_returned_with_the_failure_or_given_back() {
    let (local, key) = (local(), Key::new("a"));
    let requests = [Request::new(&key, limit(), 1)];
    local.fail(requests);
    let failure = begin(&local, &requests).fail(error());
    assert!(failure.reservation.is_some_and(|reservation| reservation.reply.allowed));
    assert_eq!(left(&local, requests[0]), 1);
    let sent = begin(&local, &requests);
    assert_eq!(left(&local, requests[0]), 0);
    let denial = local
        .begin(SlottedRequests::in_slot_0(&requests), CounterHash::of(&requests[0]), Duration::ZERO)
        .expect_err("no room");
    assert!(!denial.allowed);
    drop(sent);
    assert_eq!(left(&local, requests[0]), 1);
}

/// The store may have lost its counters. So the call is decided as one that has failed: by the standby limiter.
#[test]
fn a_call_that_is_settled_after_its_servers_failure_is_decided_by_the_standby_limiter() {
    for direct in [false, true] {
        let (local, key) = (local(), Key::new("a"));
        let requests = [Request::new(&key, limit(), 1)];
        let owned = OwnedRequest::copy_all(&requests);
        let settle: [Box<dyn FnOnce() -> CountedReply + '_>; 2] =
            [0, 1].map(|_| -> Box<dyn FnOnce() -> CountedReply> {
                if direct {
                    let sent = local.begin_direct(&owned, CounterHash::of(&requests[0]), 0).expect("no failure");
                    return Box::new(|| sent.settle(&entry_reply(1)));
                }
                let sent = begin(&local, &requests);
                Box::new(|| sent.settle(StoreReply::ALLOWED.into()))
            });
        local.server_failed(&[0..=0]);
        assert!(local.standby.decide(&requests, Duration::ZERO).allowed);
        let replies = settle.map(|settle| settle());
        let decided = replies.map(|counted| (counted.reply.allowed, counted.source));
        assert_eq!(decided, [(true, Source::Store), (false, Source::Standby)], "direct: {direct}");
        assert_eq!(left(&local, requests[0]), 0);
    }
}

/// The reports of the store are those of an admission that the standby limiter does not confirm.
#[test]
fn a_denial_of_the_standby_limiter_has_its_own_reports() {
    let (local, keys) = (local(), [Key::new("a"), Key::new("b")]);
    let requests = [Request::new(&keys[0], limit(), 1), Request::new(&keys[1], limit(), 1)];
    let sent = local.begin_with_reports(SlottedRequests::in_slot_0(&requests), CounterHash::of(&requests[0]));
    let sent = sent.expect("not consulted");
    // Both permits of one key are granted by the standby limiter, after a failure of the server.
    local.fail(requests);
    assert!(local.standby.decide(&[Request::new(&keys[0], limit(), 2)], Duration::ZERO).allowed);
    let of_store = RequestReport { remaining: 1, reset_after: Duration::from_secs(60) };
    let per_request = PerRequest { reports: vec![of_store; 2], ..PerRequest::default() };
    let counted = sent.settle(DecisionReply::with_reports(StoreReply::ALLOWED, per_request));
    assert_eq!((counted.reply.allowed, counted.source), (false, Source::Standby));
    let left: Vec<_> = counted.per_request.iter().flat_map(|of| &of.reports).map(|report| report.remaining).collect();
    assert_eq!(left, [0, 2]);
}
