//! Leases while their rule changes, their slot moves or their server fails.

use std::slice;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use limiter_testkit::{Cluster, Sentinels, slot_of, unique};
use rate_limited::{
    Builder, Decision, Denied, HealthState, Key, Limit, Limiter, ManualClock, OnError, Rule, RuleSet, Source,
    rate_limited,
};

use super::{Fleet, allowed, connect_to_all, remaining, use_lease};
use crate::cluster::key_per_master;
use crate::deadlines::eventually;
use crate::support::{LONG_DEADLINE, key, limit, unpacked_limit};

/// The longest time of a lease.
const LEASE_TIME: Duration = Duration::from_millis(50);

/// No permit of this limit comes back during a test, neither by the manual clock nor by that of a server.
fn long_limit() -> Limit {
    limit("20000/1h")
}

/// Returns a builder for limiters that count together.
fn builder_for(url: &str, prefix: &str, clock: &ManualClock) -> Builder {
    Limiter::builder().url(url).prefix(prefix).clock(clock.clone()).deadline(LONG_DEADLINE)
}

/// Uses up a limit. Returns the number of permits that were taken, and the sources of these decisions.
///
/// A denial may be due to permits on lease, so the last of several counts, between which the time of a lease passes.
async fn take_all(limiter: &Limiter, key: &Key, limit: &Limit, clock: &ManualClock) -> (u32, Vec<Source>) {
    let (mut taken, mut denials, mut sources) = (0, 0, Vec::new());
    while denials < 20 {
        match limiter.check(key, limit).await.expect("a decision") {
            Decision::Allowed(allowed) => {
                (taken, denials) = (taken + 1, 0);
                if !sources.contains(&allowed.source()) {
                    sources.push(allowed.source());
                }
            }
            Decision::Denied(_) => {
                denials += 1;
                clock.advance(LEASE_TIME);
            }
        }
    }
    (taken, sources)
}

#[rate_limited(key = "switched", limit = "20000/1h", leases = true, on_error = closed)]
async fn switched() -> Result<(), Denied> {
    Ok(())
}

#[tokio::test]
async fn no_call_takes_a_permit_of_a_lease_after_leases_were_turned_off() {
    let fleet = Fleet::new();
    let sources: Arc<Mutex<Vec<Source>>> = Arc::default();
    let recorded = Arc::clone(&sources);
    let record = move |source| recorded.lock().unwrap_or_else(PoisonError::into_inner).push(source);
    let limiter = fleet.limiter(|builder| builder.on_allowed(move |allowed| record(allowed.source()))).await;
    let is_leased = || sources.lock().unwrap_or_else(PoisonError::into_inner).last() == Some(&Source::Lease);
    let call = || limiter.scope(async { switched().await.expect("allowed") });
    let mut calls = 0;
    while !is_leased() {
        call().await;
        calls += 1;
    }
    let (key, limit) = (key("switched"), unpacked_limit("20000/1h"));
    limiter.set_rules(RuleSet::new().rule("switched", Rule::new().leases(false))).expect("valid");
    for _ in 0..50 {
        call().await;
        calls += 1;
        assert!(!is_leased(), "after {calls} calls");
    }
    fleet.clock.advance(LEASE_TIME);
    let expected = limit.max() - calls;
    eventually("the rest of the lease returns", async || remaining(&limiter, &key, &limit).await == expected).await;
    let (taken, sources) = take_all(&limiter, &key, &limit, &fleet.clock).await;
    assert_eq!((taken, &sources[..]), (expected, &[Source::Store][..]));
}

/// Calls go on in each step of the move, with leases and without.
#[tokio::test]
async fn leases_go_on_while_their_slot_moves_and_the_limit_holds() {
    let cluster = Cluster::builder().masters_only().start();
    let (clock, prefix) = (ManualClock::new(), unique("moved-leases"));
    let builder = || builder_for(&cluster.url(), &prefix, &clock).on_error(OnError::Raise);
    let (key, limit) = (key("a"), long_limit());
    let plain = builder().connect().await.expect("a cluster");
    let limiter = connect_to_all(builder().leases(true), &clock, slice::from_ref(&key)).await;
    let slot = slot_of(b"a");
    let (mut taken, _) = use_lease(&limiter, &key, &limit).await;
    let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(slot)).expect("another");
    let mut call_both = async || {
        for _ in 0..300 {
            allowed(&limiter, &key, &limit).await;
        }
        allowed(&plain, &key, &limit).await;
        taken += 301;
    };
    let migration = cluster.begin_migration(slot, to);
    call_both().await;
    migration.move_all_keys();
    call_both().await;
    migration.finish();
    call_both().await;
    let (calls, _) = use_lease(&limiter, &key, &limit).await;
    taken += calls;
    let expected = limit.max() - taken;
    // The last calls may have requested a renewal. Its lease may begin after the time was advanced.
    let has_returned = async || {
        clock.advance(LEASE_TIME);
        remaining(&plain, &key, &limit).await == expected
    };
    eventually("the rest of the lease returns", has_returned).await;
    let (rest, sources) = take_all(&limiter, &key, &limit, &clock).await;
    assert_eq!(rest, expected);
    assert!(sources.contains(&Source::Lease), "{sources:?}");
}

/// The cluster has no replicas, so the standby limiter alone decides about the keys of the failed master.
#[tokio::test]
async fn leases_of_a_failed_master_end_and_its_standby_limiter_has_their_permits() {
    let mut cluster = Cluster::builder().masters_only().setting("cluster-require-full-coverage", "no").start();
    let clock = ManualClock::new();
    let (keys, limit, victim) = (key_per_master(&cluster), long_limit(), cluster.masters()[0]);
    let builder = builder_for(&cluster.url(), &unique("failed-leases"), &clock).leases(true);
    let limiter = connect_to_all(builder, &clock, &keys).await;
    use_lease(&limiter, &keys[1], &limit).await;
    let (mut used, _) = use_lease(&limiter, &keys[0], &limit).await;
    for _ in 0..500 {
        allowed(&limiter, &keys[0], &limit).await;
        used += 1;
    }
    cluster.kill(victim);
    eventually("the failure is known", async || limiter.health().state != HealthState::Up).await;
    let other = allowed(&limiter, &keys[1], &limit).await;
    assert!(matches!(other.source(), Source::Lease | Source::Store), "{:?} of a running master", other.source());
    let (taken, sources) = take_all(&limiter, &keys[0], &limit, &clock).await;
    assert_eq!(sources, [Source::Standby]);
    assert_eq!(used + taken, limit.max(), "the mirror has the permits that were used, and no others");
}

/// Uses a limit up after a failover. The permits that were taken before it are known to the standby limiter, which is
/// consulted for a window.
async fn assert_no_lease_and_no_permit_above_the_limit(limiter: &Limiter, clock: &ManualClock, used: u32) {
    let limit = long_limit();
    let (taken, sources) = take_all(limiter, &key("a"), &limit, clock).await;
    assert!(!sources.contains(&Source::Lease), "{sources:?}");
    assert!(used + taken <= limit.max(), "{used} permits before the failover and {taken} after it");
}

#[tokio::test]
async fn a_failover_of_a_cluster_with_leases_admits_nothing_above_the_limit() {
    let mut cluster = Cluster::start();
    let clock = ManualClock::new();
    let (key, limit) = (key("a"), long_limit());
    let builder = builder_for(&cluster.url(), &unique("failover"), &clock).leases(true);
    let limiter = connect_to_all(builder, &clock, slice::from_ref(&key)).await;
    let (mut used, _) = use_lease(&limiter, &key, &limit).await;
    for _ in 0..500 {
        allowed(&limiter, &key, &limit).await;
        used += 1;
    }
    let victim = cluster.master_of(slot_of(b"a"));
    cluster.kill(victim);
    eventually("the failure is known", async || limiter.health().state != HealthState::Up).await;
    let _ = cluster.wait_for_promotion(victim);
    eventually("the new master serves", async || limiter.health().state == HealthState::Up).await;
    assert_no_lease_and_no_permit_above_the_limit(&limiter, &clock, used).await;
}

#[tokio::test]
async fn a_failover_of_sentinels_with_leases_admits_nothing_above_the_limit() {
    let mut sentinels = Sentinels::start();
    let clock = ManualClock::new();
    let (key, limit) = (key("a"), long_limit());
    let builder = builder_for(&sentinels.url(), &unique("failover"), &clock).leases(true);
    let limiter = connect_to_all(builder, &clock, slice::from_ref(&key)).await;
    let (mut used, _) = use_lease(&limiter, &key, &limit).await;
    for _ in 0..500 {
        allowed(&limiter, &key, &limit).await;
        used += 1;
    }
    let old = sentinels.master();
    sentinels.kill(old);
    eventually("the failure is known", async || limiter.health().state != HealthState::Up).await;
    let _ = sentinels.wait_for_promotion(old);
    eventually("the new master serves", async || limiter.health().state == HealthState::Up).await;
    assert_no_lease_and_no_permit_above_the_limit(&limiter, &clock, used).await;
}
