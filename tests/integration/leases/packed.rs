//! Leases of packed rules: a log with a lease has a key of its own, and returns to its hash afterwards.

use std::time::Duration;

use rate_limited::{Builder, Denied, Key, Limit, Limiter, Rule, Source, rate_limited};

use super::{Fleet, allowed, assert_exact_together, leased_limit, remaining, use_lease};
use crate::deadlines::eventually;
use crate::support::{key, wait_until_quick};

const BUCKETS: u32 = 16_384;
const RULE: &str = "packed and leased";
/// The longest time of a lease of [`leased_limit`], and the time until its last permit is not live any more.
const LEASE_MILLIS: u64 = 15;
const ALL_DEAD_MILLIS: u64 = 1_000 + 100 + LEASE_MILLIS;

fn packed_limit() -> Limit {
    leased_limit().packed_into(BUCKETS)
}

/// The places of all counts: the version of the value of each field, 0 for a marker, and then that of each other key.
fn versions(fleet: &Fleet) -> (Vec<u8>, Vec<u8>) {
    let (mut fields, mut others) = (Vec::new(), Vec::new());
    for name in fleet.server.keys() {
        if name.contains('#') {
            let values = fleet.server.command(&["HVALS", &name]).array();
            fields.extend(values.into_iter().map(|value| value.bytes()[0]));
            assert!(fleet.server.pttl(&name) > 0, "{name} expires");
        } else {
            others.push(fleet.server.command(&["GET", &name]).bytes()[0]);
        }
    }
    (fields, others)
}

#[tokio::test]
async fn a_log_has_a_key_of_its_own_until_nothing_of_its_lease_is_live() {
    let fleet = Fleet::new();
    let (limiter, plain, key, limit) = (fleet.leasing().await, fleet.plain().await, key("a"), packed_limit());
    allowed(&plain, &key, &limit).await;
    assert_eq!(versions(&fleet), (vec![7], vec![]), "a short log is in the hash");
    let (calls, _) = use_lease(&limiter, &key, &limit).await;
    assert_eq!(versions(&fleet), (vec![0], vec![6]), "a marker, and the log with its lease");
    let used = 1 + calls;
    assert!(remaining(&plain, &key, &limit).await < limit.max() - used, "others count what is on lease");
    fleet.advance_millis(LEASE_MILLIS);
    eventually("unused permits return", async || remaining(&plain, &key, &limit).await == limit.max() - used).await;
    fleet.advance_millis(ALL_DEAD_MILLIS);
    allowed(&plain, &key, &limit).await;
    assert_eq!(versions(&fleet), (vec![7], vec![]), "the log has returned, and the key of its own is gone");
    assert_eq!(remaining(&plain, &key, &limit).await, limit.max() - 1);
}

#[tokio::test]
async fn several_processes_together_are_allowed_a_packed_limit_exactly() {
    let limit: Limit = "10000/10m".parse().expect("a limit");
    assert_exact_together(limit.packed_into(BUCKETS)).await;
}

#[rate_limited(key = "packed and leased", limit = "20000/1s", leases = true, on_error = closed)]
async fn annotated() -> Result<(), Denied> {
    Ok(())
}

/// Makes calls of the rule until one takes a permit of a lease, and returns whether one did.
async fn has_leases(limiter: &Limiter, key: &Key) -> bool {
    wait_until_quick(limiter).await;
    for _ in 0..100 {
        let decision = limiter.named(RULE).check(key, &leased_limit()).await.expect("a decision");
        if decision.into_result().expect("allowed").source() == Source::Lease {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn the_limiter_the_rule_and_the_attribute_turn_leases_on() {
    let fleet = Fleet::new();
    let with_rule = async |rule: Rule, configure: fn(Builder) -> Builder| {
        fleet.limiter(|builder| configure(builder.rule(RULE, rule.packed(BUCKETS)))).await
    };
    let limited = || Rule::new().limit("10000/1s".parse().expect("a limit"));
    let of_limiter = with_rule(limited(), |builder| builder.leases(true)).await;
    assert!(has_leases(&of_limiter, &key("limiter")).await);
    let of_rule = with_rule(limited().leases(true), |builder| builder).await;
    assert!(has_leases(&of_rule, &key("rule")).await);
    let without = with_rule(limited().leases(false), |builder| builder.leases(true)).await;
    assert!(!has_leases(&without, &key("none")).await);
    let (_, leased) = versions(&fleet);
    assert_eq!(leased, [6, 6], "the two logs with leases have keys of their own");
    let of_attribute = with_rule(Rule::new(), |builder| builder).await;
    let before = fleet.server.script_calls();
    let calls = async {
        for _ in 0..1_000 {
            annotated().await.expect("allowed");
        }
    };
    of_attribute.scope(calls).await;
    let script_calls = fleet.server.script_calls() - before;
    assert!(script_calls < 200, "{script_calls} script calls for 1000 calls");
    assert_eq!(versions(&fleet).1.len(), 3);
}

/// A process that ends keeps nothing for longer than a window, and its log returns to the hash with the next write.
#[tokio::test]
async fn the_log_of_a_process_that_has_ended_returns_too() {
    let fleet = Fleet::new();
    let (limiter, plain, key, limit) = (fleet.leasing().await, fleet.plain().await, key("a"), packed_limit());
    use_lease(&limiter, &key, &limit).await;
    drop(limiter);
    fleet.advance_millis(ALL_DEAD_MILLIS);
    assert_eq!(remaining(&plain, &key, &limit).await, limit.max());
    allowed(&plain, &key, &limit).await;
    assert_eq!(versions(&fleet), (vec![7], vec![]));
    let hash = fleet.server.keys().remove(0);
    let left = Duration::from_millis(u64::try_from(fleet.server.pttl(&hash)).expect("an expiry"));
    assert!(left >= Duration::from_secs(1), "{left:?}");
}
