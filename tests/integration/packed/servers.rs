//! Packed rules on clusters, on slots that move, and on servers with other settings.

use futures_util::future::join_all;
use limiter_testkit::Cluster;
use tokio::time::{sleep, timeout};

use super::*;
use crate::cluster::{self, key_per_master, name_in};
use crate::support::LONG_DEADLINE;

const SLOT: u16 = 4711;

async fn on_cluster(cluster: &Cluster, rule: Rule) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let builder =
        cluster::builder_for(cluster).deadline(LONG_DEADLINE).remember_denials(Duration::ZERO).presence(false);
    (builder.rule(RULE, rule).clock(clock.clone()).connect().await.expect("a cluster"), clock)
}

#[tokio::test]
async fn a_server_without_listpacks_decides_alike() {
    // The name before Redis 7, which later versions know as well.
    let server = RedisServer::builder().setting("hash-max-ziplist-entries", "0").start();
    let (limiter, clock) = with_rule(&server, packed(&["30/1h"])).await;
    for number in 0..20 {
        assert_eq!(take(&limiter, &key(&format!("k{number}")), 1).await, Some(29));
    }
    for left in (0..29).rev() {
        clock.advance(Duration::from_millis(10));
        assert_eq!(take(&limiter, &key("k0"), 1).await, Some(left));
    }
    assert_eq!(take(&limiter, &key("k0"), 1).await, None);
}

#[tokio::test]
async fn a_cluster_counts_each_key_in_its_own_slot() {
    let cluster = Cluster::builder().masters_only().start();
    let (limiter, _) = on_cluster(&cluster, packed(&["5/1h", "9/2h"])).await;
    for number in 0..60 {
        let key = key(&format!("k{number}"));
        assert_eq!((take(&limiter, &key, 4).await, take(&limiter, &key, 2).await), (Some(1), None));
    }
    let counts = |node| cluster.server(node).all_keys().iter().filter(|key| key.contains('#')).count();
    assert!(cluster.masters().into_iter().all(|master| counts(master) > 20));
}

/// A log that grows while its slot moves stays in its hash, since no node would have both keys.
#[tokio::test]
async fn a_log_grows_beyond_its_field_while_its_slot_moves() {
    let cluster = Cluster::builder().masters_only().start();
    let (limiter, clock) = on_cluster(&cluster, packed(&["60/1h"])).await;
    let key = key(&name_in(SLOT));
    let mut left = 60;
    let mut takes = async |times: u32| {
        for _ in 0..times {
            left -= 1;
            assert_eq!(take(&limiter, &key, 1).await, Some(left));
            clock.advance(Duration::from_millis(10));
        }
    };
    let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(SLOT)).expect("another");
    takes(3).await;
    let migration = cluster.begin_migration(SLOT, to);
    takes(12).await;
    assert_eq!(migration.move_keys(10), 1, "the hash alone");
    // Longer than a log that is written whole.
    takes(19).await;
    let server = cluster.server(to);
    let hash = server.keys().remove(0);
    migration.finish();
    assert_eq!(server.command(&["PERSIST", &hash]).integer(), 1);
    takes(1).await;
    let own = server.keys().into_iter().find(|name| *name != hash).expect("it has moved out afterwards");
    assert!(server.pttl(&own) > 3_500_000, "it lives a window, also if its hash has lost its expiry");
    takes(4).await;
    // Both keys move, one after the other.
    let back = cluster.masters().into_iter().find(|master| *master != to).expect("another");
    let migration = cluster.begin_migration(SLOT, back);
    takes(3).await;
    assert_eq!(migration.move_keys(1), 1);
    let waiting = take(&limiter, &key, 1);
    let moving = async {
        tokio::task::yield_now().await;
        migration.move_all_keys();
    };
    let (taken, ()) = tokio::join!(waiting, moving);
    assert_eq!(taken, Some(60 - 3 - 36 - 3 - 1), "it waits until one node has both keys");
    migration.finish();
    assert_eq!(take(&limiter, &key, 1).await, Some(60 - 3 - 36 - 3 - 2));
}

/// More batches of calls that wait than may be in flight to a server.
#[tokio::test]
async fn calls_that_wait_for_a_slot_that_moves_keep_no_others_waiting() {
    const CALLS: u32 = 10;
    let cluster = Cluster::builder().masters_only().start();
    let (limiter, clock) = on_cluster(&cluster, packed(&["60/1h"])).await;
    let from = cluster.master_of(SLOT);
    let of_from = cluster.masters().into_iter().position(|master| master == from).expect("a master");
    let (moving, other) = (key(&name_in(SLOT)), key_per_master(&cluster).remove(of_from));
    for _ in 0..20 {
        assert!(take(&limiter, &moving, 1).await.is_some());
        clock.advance(Duration::from_millis(10));
    }
    let to = cluster.masters().into_iter().find(|master| *master != from).expect("another");
    let migration = cluster.begin_migration(SLOT, to);
    assert_eq!(migration.move_keys(1), 1, "of the hash and the count's own key");
    let waiting = join_all((0..CALLS).map(async |number| {
        sleep(Duration::from_millis(20) * number).await;
        take(&limiter, &moving, 1).await
    }));
    let others = async {
        sleep(Duration::from_millis(20) * (CALLS + 2)).await;
        let takes = async {
            for left in (50..60).rev() {
                assert_eq!(take(&limiter, &other, 1).await, Some(left));
            }
        };
        // Those that wait have more time.
        timeout(LONG_DEADLINE / 2, takes).await.expect("another slot of the same server does not wait");
        migration.move_all_keys();
    };
    let (mut taken, ()) = tokio::join!(waiting, others);
    taken.sort_unstable();
    assert_eq!(taken, (30..40).map(Some).collect::<Vec<_>>());
    migration.finish();
}

#[tokio::test]
async fn batches_follow_a_slot_that_moves() {
    const KEYS: usize = 40;
    let cluster = Cluster::builder().masters_only().start();
    let (limiter, _) = on_cluster(&cluster, packed(&["9/1h"])).await;
    let tag = name_in(SLOT);
    let keys: Vec<_> = (0..KEYS).map(|number| limit(&format!("9/{}m", 60 + number)).packed_into(BUCKETS)).collect();
    let key = key(&tag);
    let take_all = async || {
        let calls = keys.iter().map(|limit| limiter.check(&key, limit));
        let decisions = join_all(calls).await;
        decisions.into_iter().map(|decision| decision.expect("a decision").remaining()).collect::<Vec<_>>()
    };
    assert_eq!(take_all().await, [8; KEYS]);
    let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(SLOT)).expect("another");
    let migration = cluster.begin_migration(SLOT, to);
    assert_eq!(migration.move_keys(KEYS / 2), KEYS / 2);
    assert_eq!(take_all().await, [7; KEYS]);
    migration.finish();
    assert_eq!(take_all().await, [6; KEYS]);
}
