//! A cluster whose clients come through proxies.

use super::*;
use crate::socket::Address;

/// For what answers, and for what does not.
const LONG: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(200);

fn client(cluster: &Cluster, node: NodeId, timeout: Duration) -> Client {
    Client::connect(&Address::Tcp(cluster.address(node)), timeout).expect("the proxy accepts")
}

#[test]
fn clients_are_sent_to_the_proxies_and_a_fault_is_one_nodes_alone() {
    let cluster = Cluster::builder().masters_only().proxied().start();
    let keys = key_of_each(&cluster);
    let [(first, key), (second, _), (third, other_key)] = &keys[..] else { panic!("{keys:?}") };
    assert_eq!(Address::Tcp(cluster.address(*first)), cluster.proxy(*first).address());
    assert!(cluster.url().contains(&cluster.address(*first).to_string()));

    // The same to whoever asks, and through whichever door.
    let moved = format!("MOVED {} {}", slot_of(key.as_bytes()), cluster.address(*first));
    for node in [*second, *third] {
        assert_eq!(said(&mut client(&cluster, node, LONG), &["GET", key]).error(), moved);
    }
    let slots = cluster.server(*second).command(&["CLUSTER", "SLOTS"]).array();
    for owner in slots.into_iter().map(|slots| slots.array().remove(2).array()) {
        let port = owner[1].clone().integer();
        assert!(keys.iter().any(|(node, _)| i64::from(cluster.address(*node).port()) == port), "{port}");
    }

    cluster.proxy(*first).stall();
    assert!(client(&cluster, *first, SHORT).call(&["GET", key]).is_err());
    assert_eq!(said(&mut client(&cluster, *third, LONG), &["SET", other_key, "1"]).text(), "OK");
    cluster.settle(); // the nodes themselves notice nothing
    cluster.proxy(*first).pass();
    assert_eq!(said(&mut client(&cluster, *first, LONG), &["SET", key, "1"]).text(), "OK");
}

#[test]
fn a_promotion_is_told_to_clients_by_the_proxys_address() {
    let mut cluster = Cluster::builder().proxied().start();
    let (old, key) = key_of_each(&cluster).remove(0);
    let elsewhere = cluster.masters()[1];
    cluster.kill(old);
    assert!(client(&cluster, old, LONG).call(&["PING"]).is_err());
    let promotion = cluster.wait_for_promotion(old);
    let moved = format!("MOVED {} {}", slot_of(key.as_bytes()), cluster.address(promotion.master));
    assert_eq!(said(&mut client(&cluster, elsewhere, LONG), &["GET", &key]).error(), moved);
    assert_eq!(said(&mut client(&cluster, promotion.master, LONG), &["SET", &key, "1"]).text(), "OK");
}

/// Replicas find their master as clients do, so what it writes reaches them late too.
#[test]
fn settling_takes_until_replicas_that_lag_have_everything() {
    let cluster = Cluster::builder().proxied().start();
    let (master, key) = key_of_each(&cluster).remove(0);
    let replica = cluster.replica_of(master).expect("a replica");
    cluster.proxy(master).delay(Duration::from_millis(300));
    cluster.server(master).command(&["SET", &key, "1"]);
    assert!(cluster.server(replica).keys().is_empty());
    cluster.settle();
    assert_eq!(cluster.server(replica).keys(), [key]);
}
