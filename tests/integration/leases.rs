//! Tests of leases: permits of a busy key that a process takes ahead.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use limiter_testkit::{Cluster, Proxy, RedisServer, unique};
use rate_limited::{
    Allowed, Builder, Decision, Denied, HealthState, Key, Limit, Limiter, ManualClock, OnError, Source, rate_limited,
};

use crate::cluster;
use crate::deadlines::eventually;
use crate::support::{LONG_DEADLINE, key, limit, poll_once, unpacked_limit, wait_until_quick, wait_until_received};

mod faults;
mod packed;

/// Limiters on one server, as in several processes, by one clock.
struct Fleet {
    server: RedisServer,
    prefix: String,
    clock: ManualClock,
}

impl Fleet {
    /// Starts a server whose clock stands still, so that keys do not expire before their time on the manual clock.
    fn new() -> Self {
        let has_clock = cfg!(target_os = "linux");
        let builder = RedisServer::builder();
        let mut server = if has_clock { builder.shifted_clock() } else { builder }.start();
        if has_clock {
            server.stop_clock();
        }
        Self { server, prefix: unique("leases"), clock: ManualClock::new() }
    }

    /// A limiter with leases.
    async fn leasing(&self) -> Limiter {
        self.limiter(|builder| builder.leases(true)).await
    }

    /// A limiter without leases.
    async fn plain(&self) -> Limiter {
        self.limiter(|builder| builder).await
    }

    async fn limiter(&self, configure: impl FnOnce(Builder) -> Builder) -> Limiter {
        let builder =
            Limiter::builder().presence(false).url(self.server.url()).prefix(&self.prefix).clock(self.clock.clone());
        let limiter = configure(builder.deadline(LONG_DEADLINE)).connect().await.expect("the server is there");
        wait_until_quick(&limiter).await;
        limiter
    }

    fn advance_millis(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }
}

/// Returns a limiter that is connected to the servers of all these keys, and knows of no failure.
///
/// An attempt to connect may fail on a machine under load. A limiter uses no lease for a window after a failure, so the
/// clock is advanced by more than the window of any test.
async fn connect_to_all(builder: Builder, clock: &ManualClock, keys: &[Key]) -> Limiter {
    let limiter = builder.connect().await.expect("a server");
    for key in keys {
        let is_connected = async || {
            let state = limiter.peek(key, &leased_limit()).await;
            state.is_ok_and(|state| state.into_result().is_ok_and(|allowed| allowed.source() == Source::Store))
        };
        eventually("connected", is_connected).await;
    }
    clock.advance(Duration::from_secs(2 * 60 * 60));
    limiter
}

async fn allowed(limiter: &Limiter, key: &Key, limit: &Limit) -> Allowed {
    limiter.check(key, limit).await.expect("a decision").into_result().expect("allowed")
}

/// Makes calls until one takes a permit of a lease. Returns the number of calls, and the permit of the last.
async fn use_lease(limiter: &Limiter, key: &Key, limit: &Limit) -> (u32, Allowed) {
    for calls in 1..100 {
        let allowed = allowed(limiter, key, limit).await;
        if allowed.source() == Source::Lease {
            return (calls, allowed);
        }
    }
    panic!("no call of 99 had a lease");
}

async fn remaining(limiter: &Limiter, key: &Key, limit: &Limit) -> u32 {
    limiter.peek(key, limit).await.expect("a decision").remaining()
}

/// A window of one second has leases of 15 ms.
fn leased_limit() -> Limit {
    limit("10000/1s")
}

#[tokio::test]
async fn most_calls_of_a_busy_key_need_no_script_call() {
    let fleet = Fleet::new();
    let (limiter, key, limit) = (fleet.leasing().await, key("a"), leased_limit());
    let before = fleet.server.script_calls();
    let mut leased = 0;
    for _ in 0..5_000 {
        leased += u32::from(allowed(&limiter, &key, &limit).await.source() == Source::Lease);
    }
    let calls = fleet.server.script_calls() - before;
    assert!(leased > 4_000 && calls < 500, "{leased} of 5000 calls by leases, {calls} script calls");
}

#[tokio::test]
async fn several_processes_together_are_allowed_the_limit_exactly() {
    assert_exact_together(limit("10000/10m")).await;
}

/// Checks that two limiters with leases and one without are allowed a limit exactly. No permit of it expires meanwhile.
async fn assert_exact_together(limit: Limit) {
    let fleet = Fleet::new();
    let (one, other, plain) = (fleet.leasing().await, fleet.leasing().await, fleet.plain().await);
    let key = key("a");
    let (total, leased) = (AtomicU32::new(0), AtomicU32::new(0));
    let call_each = async || {
        for limiter in [&one, &other, &plain] {
            if let Decision::Allowed(allowed) = limiter.check(&key, &limit).await.expect("a decision") {
                total.fetch_add(1, Relaxed);
                leased.fetch_add(u32::from(allowed.source() == Source::Lease), Relaxed);
            }
        }
        total.load(Relaxed)
    };
    while call_each().await < limit.max() / 2 {}
    // Processes return permits when leases end, while the others have cached denials.
    eventually("all permits are used", async || {
        fleet.advance_millis(5);
        for _ in 0..1_000 {
            call_each().await;
        }
        total.load(Relaxed) >= limit.max()
    })
    .await;
    for _ in 0..30 {
        fleet.advance_millis(5);
        assert_eq!(call_each().await, limit.max());
    }
    let leased = leased.into_inner();
    assert!(leased > limit.max() / 4, "{leased} by leases");
}

#[tokio::test]
async fn unused_permits_go_back_at_the_end_of_the_lease() {
    let fleet = Fleet::new();
    let (limiter, plain, key, limit) = (fleet.leasing().await, fleet.plain().await, key("a"), leased_limit());
    let (calls, last) = use_lease(&limiter, &key, &limit).await;
    let unused = limit.max() - calls - remaining(&plain, &key, &limit).await;
    assert!(unused > 0, "the lease has permits left");
    assert_eq!(last.remaining(), limit.max() - calls, "as of the last script call, less those that were used");
    fleet.advance_millis(15);
    eventually("unused permits return", async || remaining(&plain, &key, &limit).await == limit.max() - calls).await;
    let next = allowed(&limiter, &key, &limit).await;
    assert_eq!(next.source(), Source::Store, "the lease is over");
}

#[tokio::test]
async fn a_call_with_another_max_takes_no_lease() {
    let fleet = Fleet::new();
    let (limiter, key, limit) = (fleet.leasing().await, key("a"), leased_limit());
    let (calls, _) = use_lease(&limiter, &key, &limit).await;
    let higher = crate::support::limit("10001/1s");
    assert_eq!(allowed(&limiter, &key, &higher).await.source(), Source::Store);
    fleet.advance_millis(15);
    let plain = fleet.plain().await;
    let expected = limit.max() - calls - 1;
    eventually("the lease is returned", async || remaining(&plain, &key, &limit).await == expected).await;
}

#[tokio::test]
async fn a_lease_ends_a_millisecond_and_a_thousandth_before_its_stamp() {
    let fleet = Fleet::new();
    let (limiter, key, limit) = (fleet.leasing().await, key("a"), leased_limit());
    use_lease(&limiter, &key, &limit).await;
    fleet.clock.advance(Duration::from_micros(15_000 - 1_000 - 15 - 1));
    assert_eq!(allowed(&limiter, &key, &limit).await.source(), Source::Lease);
    fleet.clock.advance(Duration::from_micros(1));
    assert_eq!(allowed(&limiter, &key, &limit).await.source(), Source::Store);
}

#[tokio::test]
async fn a_call_waits_for_the_lease_that_is_in_flight() {
    let fleet = Fleet::new();
    let proxy = Proxy::start(&fleet.server);
    let limiter = fleet.limiter(|builder| builder.leases(true).url(proxy.url())).await;
    let (key, limit) = (key("a"), leased_limit());
    for _ in 0..2 {
        assert_eq!(allowed(&limiter, &key, &limit).await.source(), Source::Store);
    }
    // The third script call requests a lease.
    let before = fleet.server.script_calls();
    proxy.hold_replies();
    let mut calls = poll_once(vec![Box::pin(limiter.check(&key, &limit))]).await;
    eventually("the lease is requested", async || fleet.server.script_calls() > before).await;
    calls.extend(poll_once(vec![Box::pin(limiter.check(&key, &limit)), Box::pin(limiter.check(&key, &limit))]).await);
    // The server's reply to a later call shows that the worker has received these.
    wait_until_received(&limiter, &fleet.server, before + 1).await;
    proxy.pass();
    let sources = join_all(calls)
        .await
        .into_iter()
        .map(|decision| decision.expect("a decision").into_result().expect("allowed").source());
    assert_eq!(sources.collect::<Vec<_>>(), [Source::Store, Source::Lease, Source::Lease]);
}

#[tokio::test]
async fn calls_that_wait_for_a_lease_end_when_its_request_fails() {
    let fleet = Fleet::new();
    let proxy = Proxy::start(&fleet.server);
    let limiter = fleet.limiter(|builder| builder.leases(true).url(proxy.url()).on_error(OnError::Closed)).await;
    let (key, limit) = (key("a"), leased_limit());
    for _ in 0..2 {
        assert_eq!(allowed(&limiter, &key, &limit).await.source(), Source::Store);
    }
    // The third script call requests a lease.
    let before = fleet.server.script_calls();
    proxy.hold_replies();
    let mut calls = poll_once(vec![Box::pin(limiter.check(&key, &limit))]).await;
    eventually("the lease is requested", async || fleet.server.script_calls() > before).await;
    calls.extend(poll_once(vec![Box::pin(limiter.check(&key, &limit)), Box::pin(limiter.check(&key, &limit))]).await);
    wait_until_received(&limiter, &fleet.server, before + 1).await;
    proxy.cut();
    let decisions = join_all(calls).await;
    let requested = decisions[0].as_ref().expect("a decision");
    assert_eq!(requested.source(), Source::Policy, "its connection was lost");
}

#[tokio::test]
async fn no_lease_is_granted_while_the_standby_limiter_is_consulted() {
    let mut fleet = Fleet::new();
    let (limiter, key, limit) = (fleet.leasing().await, key("a"), leased_limit());
    use_lease(&limiter, &key, &limit).await;
    fleet.server.kill();
    eventually("the failure is known", async || limiter.health().state != HealthState::Up).await;
    fleet.server.restart();
    eventually("the server is back", async || limiter.health().state == HealthState::Up).await;
    for _ in 0..100 {
        assert_ne!(allowed(&limiter, &key, &limit).await.source(), Source::Lease);
    }
    fleet.advance_millis(1_001);
    use_lease(&limiter, &key, &limit).await;
}

#[tokio::test]
async fn a_limit_below_the_bounds_takes_no_lease() {
    let fleet = Fleet::new();
    let (limiter, key) = (fleet.leasing().await, key("a"));
    for text in ["9999/1s", "10000/639ms"] {
        let limit = limit(text);
        for _ in 0..50 {
            assert_eq!(allowed(&limiter, &key, &limit).await.source(), Source::Store, "{text}");
        }
    }
}

#[tokio::test]
async fn a_refund_during_the_lease_goes_back_into_it() {
    let fleet = Fleet::new();
    let (limiter, plain, key, limit) = (fleet.leasing().await, fleet.plain().await, key("a"), leased_limit());
    let (_, last) = use_lease(&limiter, &key, &limit).await;
    let in_store = remaining(&plain, &key, &limit).await;
    let before = fleet.server.script_calls();
    limiter.refund(&last).await.expect("refunded");
    assert_eq!(fleet.server.script_calls(), before, "no script call");
    let next = allowed(&limiter, &key, &limit).await;
    assert_eq!((next.source(), next.remaining()), (Source::Lease, last.remaining()));
    assert_eq!(remaining(&plain, &key, &limit).await, in_store);
}

#[tokio::test]
async fn a_refund_after_the_lease_goes_to_the_store() {
    let fleet = Fleet::new();
    let (limiter, plain, key, limit) = (fleet.leasing().await, fleet.plain().await, key("a"), leased_limit());
    let (calls, last) = use_lease(&limiter, &key, &limit).await;
    fleet.advance_millis(15);
    eventually("unused permits return", async || remaining(&plain, &key, &limit).await == limit.max() - calls).await;
    limiter.refund(&last).await.expect("refunded");
    assert_eq!(remaining(&plain, &key, &limit).await, limit.max() - calls + 1);
    limiter.refund(&last).await.expect("refunded once");
    assert_eq!(remaining(&plain, &key, &limit).await, limit.max() - calls + 1, "a receipt returns its permit once");
}

#[tokio::test]
async fn a_reset_by_the_leasing_process_keeps_nothing_that_is_unused() {
    let fleet = Fleet::new();
    let (limiter, plain, key, limit) = (fleet.leasing().await, fleet.plain().await, key("a"), leased_limit());
    let (calls, last) = use_lease(&limiter, &key, &limit).await;
    limiter.reset(&key, &limit).await.expect("reset");
    // The store cannot tell permits with the stamp of a lease from those on lease.
    let left = remaining(&plain, &key, &limit).await;
    assert!(left >= limit.max() - calls, "{left}");
    fleet.advance_millis(1_015);
    assert_eq!(remaining(&plain, &key, &limit).await, limit.max());
    limiter.refund(&last).await.expect("a refund after a reset returns nothing");
    assert_eq!(remaining(&plain, &key, &limit).await, limit.max());
}

#[tokio::test]
async fn a_reset_by_another_process_keeps_what_is_on_lease() {
    let fleet = Fleet::new();
    let (limiter, plain, key, limit) = (fleet.leasing().await, fleet.plain().await, key("a"), leased_limit());
    use_lease(&limiter, &key, &limit).await;
    let on_lease = limit.max() - remaining(&plain, &key, &limit).await;
    fleet.advance_millis(1);
    plain.reset(&key, &limit).await.expect("reset");
    let kept = limit.max() - remaining(&plain, &key, &limit).await;
    assert!(kept > 0 && kept <= on_lease, "{kept} of {on_lease}");
    assert_eq!(allowed(&limiter, &key, &limit).await.source(), Source::Lease, "the lease goes on");
    assert_eq!(limit.max() - remaining(&plain, &key, &limit).await, kept, "and is counted");
}

#[tokio::test]
async fn a_cost_above_the_lease_is_decided_by_the_store() {
    let fleet = Fleet::new();
    let (limiter, plain, key, limit) = (fleet.leasing().await, fleet.plain().await, key("a"), leased_limit());
    let (calls, _) = use_lease(&limiter, &key, &limit).await;
    let on_lease = limit.max() - remaining(&plain, &key, &limit).await - calls;
    let decision = limiter.check_n(&key, &limit, on_lease + 1).await.expect("a decision").into_result();
    assert_eq!(decision.expect("the store has enough").source(), Source::Store);
    assert_eq!(allowed(&limiter, &key, &limit).await.source(), Source::Lease, "the lease goes on");
    let cost = limiter.check_n(&key, &limit, 3).await.expect("a decision").into_result().expect("allowed");
    assert_eq!(cost.source(), Source::Lease, "a cost within the lease");
}

#[tokio::test]
async fn keys_that_are_hashed_are_leased() {
    let fleet = Fleet::new();
    let limiter = fleet.limiter(|builder| builder.leases(true).hash_keys("a secret of some length")).await;
    use_lease(&limiter, &key("a"), &leased_limit()).await;
}

#[tokio::test]
async fn leases_of_a_dropped_limiter_count_for_their_time_and_a_window_at_most() {
    let fleet = Fleet::new();
    let (limiter, plain, key, limit) = (fleet.leasing().await, fleet.plain().await, key("a"), leased_limit());
    use_lease(&limiter, &key, &limit).await;
    drop(limiter);
    let left = remaining(&plain, &key, &limit).await;
    assert!(left < limit.max() - 8, "{left}");
    // The worker may end only after the end of the lease, and then returns it.
    fleet.advance_millis(1_015);
    assert_eq!(remaining(&plain, &key, &limit).await, limit.max());
}

#[tokio::test]
async fn a_lease_that_arrives_after_its_end_is_not_used() {
    let fleet = Fleet::new();
    let proxy = Proxy::start(&fleet.server);
    let (limiter, plain) = (fleet.limiter(|builder| builder.leases(true).url(proxy.url())).await, fleet.plain().await);
    let (key, limit) = (key("a"), leased_limit());
    for _ in 0..2 {
        assert_eq!(allowed(&limiter, &key, &limit).await.source(), Source::Store);
    }
    // The third script call requests a lease.
    let before = fleet.server.script_calls();
    proxy.hold_replies();
    let asking = poll_once(vec![Box::pin(limiter.check(&key, &limit))]).await.remove(0);
    eventually("the server has run the script", async || fleet.server.script_calls() > before).await;
    fleet.advance_millis(15);
    proxy.pass();
    let third = asking.await.expect("a decision").into_result().expect("allowed");
    assert_eq!(third.source(), Source::Store);
    eventually("the lease is returned", async || remaining(&plain, &key, &limit).await == limit.max() - 3).await;
    assert_eq!(allowed(&limiter, &key, &limit).await.source(), Source::Store);
}

#[tokio::test]
async fn a_log_with_leases_becomes_an_ordinary_one_when_nothing_in_it_is_live() {
    let fleet = Fleet::new();
    let (limiter, plain, key) = (fleet.leasing().await, fleet.plain().await, key("a"));
    let limit = unpacked_limit("10000/1s");
    let version = || {
        let name = limiter.store_key(&key, &limit).expect("a name");
        fleet.server.command(&["GET", &name]).bytes().first().copied()
    };
    assert_eq!(allowed(&plain, &key, &limit).await.source(), Source::Store);
    assert_eq!(version(), Some(7));
    use_lease(&limiter, &key, &limit).await;
    assert_eq!(version(), Some(6));
    fleet.advance_millis(1_014);
    allowed(&plain, &key, &limit).await;
    assert_eq!(version(), Some(6), "a permit of the lease is live");
    fleet.advance_millis(1_015);
    allowed(&plain, &key, &limit).await;
    assert_eq!(version(), Some(7));
}

#[tokio::test]
async fn no_lease_is_used_after_the_server_has_failed() {
    let mut fleet = Fleet::new();
    let limiter = fleet.limiter(|builder| builder.leases(true).on_error(OnError::Raise)).await;
    let (key, limit) = (key("a"), leased_limit());
    use_lease(&limiter, &key, &limit).await;
    fleet.server.kill();
    eventually("the failure is known", async || limiter.health().state != HealthState::Up).await;
    limiter.check(&key, &limit).await.expect_err("the store decides, and it is away");
}

#[tokio::test]
async fn permits_of_leases_are_counted_while_the_standby_limiter_decides() {
    let mut fleet = Fleet::new();
    let limiter = fleet.limiter(|builder| builder.leases(true).on_error(OnError::Standby)).await;
    let (key, limit) = (key("a"), leased_limit());
    let mut used = 0;
    while used < 500 {
        allowed(&limiter, &key, &limit).await;
        used += 1;
    }
    fleet.server.kill();
    eventually("the failure is known", async || limiter.health().state != HealthState::Up).await;
    loop {
        match limiter.check(&key, &limit).await.expect("a decision") {
            Decision::Allowed(allowed) => assert_eq!(allowed.source(), Source::Standby),
            Decision::Denied(_) => break,
        }
        used += 1;
    }
    assert_eq!(used, limit.max(), "the mirror has the permits that were used, and no others");
}

#[tokio::test]
async fn a_denial_of_a_leased_key_is_cached_for_the_time_of_a_lease_at_most() {
    let fleet = Fleet::new();
    let (limiter, other, plain) = (fleet.leasing().await, fleet.leasing().await, fleet.plain().await);
    let (key, limit) = (key("a"), leased_limit());
    use_lease(&other, &key, &limit).await;
    // A process without leases uses the limit up: no renewal is in flight.
    let left = remaining(&plain, &key, &limit).await;
    assert!(plain.check_n(&key, &limit, left).await.expect("a decision").is_allowed());
    for source in [Source::Store, Source::DeniedUntil] {
        let denied = limiter.check(&key, &limit).await.expect("a decision").into_result().expect_err("denied");
        assert_eq!(denied.source(), source);
    }
    fleet.advance_millis(15);
    eventually("the other process returns permits", async || remaining(&plain, &key, &limit).await > 0).await;
    allowed(&limiter, &key, &limit).await;
}

#[tokio::test]
async fn each_master_of_a_cluster_grants_leases() {
    let cluster = Cluster::builder().masters_only().start();
    let (clock, keys) = (ManualClock::new(), cluster::key_per_master(&cluster));
    let builder = cluster::builder_for(&cluster).deadline(LONG_DEADLINE).leases(true).clock(clock.clone());
    let limiter = connect_to_all(builder, &clock, &keys).await;
    for key in keys {
        use_lease(&limiter, &key, &leased_limit()).await;
    }
}

#[rate_limited(key = "leased attribute", limit = "20000/1s", leases = true, on_error = closed)]
async fn annotated() -> Result<(), Denied> {
    Ok(())
}

#[tokio::test]
async fn an_annotated_function_is_decided_by_leases() {
    let fleet = Fleet::new();
    let limiter = fleet.plain().await;
    let before = fleet.server.script_calls();
    limiter
        .scope(async {
            for _ in 0..1_000 {
                annotated().await.expect("allowed");
            }
        })
        .await;
    let calls = fleet.server.script_calls() - before;
    assert!(calls < 200, "{calls} script calls for 1000 calls");
}
