//! Start, failovers and end of a cluster.

use std::io::ErrorKind;
use std::thread;

use super::*;
use crate::socket::Address;

#[test]
fn three_masters_share_all_slots_and_three_replicas_follow() {
    let cluster = Cluster::start();
    let (masters, replicas) = (cluster.masters(), cluster.replicas());
    assert_eq!((masters.len(), replicas.len()), (3, 3));
    let slots: usize = masters.iter().flat_map(|master| cluster.slots_of(*master)).map(|slots| slots.len()).sum();
    assert_eq!(slots, usize::from(SLOTS));
    let mut followed: Vec<_> = masters.iter().map(|master| cluster.replica_of(*master).expect("a replica")).collect();
    followed.sort();
    assert_eq!(followed, replicas);

    let hosts: Vec<_> = cluster.nodes().into_iter().map(|node| cluster.address(node).to_string()).collect();
    assert_eq!(cluster.url(), format!("redis-cluster://{}", hosts.join(",")));

    for (master, key) in key_of_each_master(&cluster) {
        cluster.server(master).command(&["SET", &key, "1"]);
        cluster.settle();
        let replica = cluster.replica_of(master).expect("a replica");
        assert_eq!(cluster.server(replica).keys(), [&*key]);
        let other = cluster.masters().into_iter().find(|other| *other != master).expect("three");
        let mut client = cluster.server(other).client().expect("it runs");
        let moved = format!("MOVED {} {}", slot_of(key.as_bytes()), cluster.address(master));
        assert_eq!(reply_to(&mut client, &["GET", &key]).error(), moved);
        let slot = cluster.server(other).command(&["CLUSTER", "KEYSLOT", &key]).integer();
        assert_eq!(slot, i64::from(slot_of(key.as_bytes())));
    }
}

#[test]
fn more_masters_share_all_slots_in_equal_parts() {
    let cluster = Cluster::builder().masters(5).masters_only().start();
    let parts: Vec<_> = cluster.masters().into_iter().flat_map(|master| cluster.slots_of(master)).collect();
    assert_eq!(parts, [0..=3275, 3276..=6552, 6553..=9829, 9830..=13106, 13107..=16383]);
    assert_eq!(cluster.replicas(), []);
}

/// Once the master is killed and restarted, once it is paused and resumed.
#[test]
fn a_replica_is_promoted_and_the_old_master_follows_it() {
    let mut cluster = Cluster::start();
    let (old, key) = key_of_each_master(&cluster).remove(0);
    let replica = cluster.replica_of(old).expect("a replica");
    cluster.server(old).command(&["SET", &key, "1"]);
    cluster.settle();

    let began = Instant::now();
    cluster.kill(old);
    let promotion = cluster.wait_for_promotion(old);
    assert_eq!(promotion.master, replica);
    assert!(promotion.at > began && promotion.at <= Instant::now());
    println!("promoted {:?} after the kill, known after {:?}", promotion.at - began, began.elapsed());
    assert_eq!(cluster.masters()[0], replica);
    assert_eq!(cluster.server(replica).command(&["GET", &key]).text(), "1");
    cluster.restart(old);
    cluster.settle();
    assert_eq!(cluster.replica_of(replica), Some(old));
    assert_eq!(cluster.server(old).keys(), [&*key]);

    let began = Instant::now();
    cluster.pause(replica);
    let promotion = cluster.wait_for_promotion(replica);
    assert_eq!(promotion.master, old);
    println!("promoted {:?} after the pause, known after {:?}", promotion.at - began, began.elapsed());
    cluster.resume(replica);
    cluster.settle();
    assert_eq!(cluster.replica_of(old), Some(replica));
}

#[test]
fn a_master_restarted_before_a_failover_is_an_empty_master() {
    let mut cluster = Cluster::builder().masters_only().start();
    assert!(cluster.replicas().is_empty());
    let (master, key) = key_of_each_master(&cluster).remove(1);
    cluster.server(master).command(&["SET", &key, "1"]);
    cluster.kill(master);
    cluster.restart(master);
    cluster.settle();
    assert_eq!(cluster.masters()[1], master);
    assert!(cluster.server(master).keys().is_empty());
}

#[test]
#[should_panic(expected = "is not a master with a replica that was killed or paused")]
fn waiting_for_an_impossible_promotion_panics() {
    let mut cluster = Cluster::builder().masters_only().start();
    let master = cluster.masters()[0];
    cluster.kill(master);
    let _ = cluster.wait_for_promotion(master);
}

#[test]
fn nodes_with_credentials_replicate_and_migrate_keys() {
    let by_password = Cluster::builder().password("p w").start();
    assert!(by_password.url().starts_with("redis-cluster://:p%20w@127.0.0.1:"), "{}", by_password.url());
    let by_user = Cluster::builder().user("al:ice", "p w").masters_only().start();
    assert!(by_user.url().starts_with("redis-cluster://al%3Aice:p%20w@127.0.0.1:"), "{}", by_user.url());
    for cluster in [by_password, by_user] {
        let address = Address::Tcp(cluster.address(cluster.masters()[0]));
        let mut client = Client::connect(&address, Duration::from_secs(5)).expect("it listens");
        assert!(reply_to(&mut client, &["PING"]).error().starts_with("NOAUTH"));
        let (from, key) = key_of_each_master(&cluster).remove(0);
        cluster.server(from).command(&["SET", &key, "1"]);
        let to = cluster.masters()[1];
        cluster.migrate_slot(slot_of(key.as_bytes()), to);
        assert_eq!(cluster.server(to).keys(), [&*key]);
    }
}

#[test]
fn a_panic_ends_all_servers_and_proxies() {
    let cluster = Cluster::builder().masters_only().proxied().start();
    let sockets: Vec<_> = cluster.nodes().into_iter().map(|node| cluster.server(node).socket().to_owned()).collect();
    let connect = |node: NodeId| {
        let client = Client::connect(&cluster.proxy(node).address(), Duration::from_secs(5));
        client.expect("the proxy accepts")
    };
    let mut clients: Vec<_> = cluster.nodes().into_iter().map(connect).collect();
    assert!(clients.iter_mut().all(|client| client.call(&["PING"]).is_ok()));
    let test = thread::spawn(move || panic!("a panic while {cluster:?} runs"));
    assert!(test.join().is_err());
    for socket in sockets {
        assert!(!socket.parent().expect("its directory").exists());
    }
    for mut client in clients {
        let error = client.call(&["PING"]).expect_err("closed");
        assert_ne!(error.kind(), ErrorKind::TimedOut);
    }
}
