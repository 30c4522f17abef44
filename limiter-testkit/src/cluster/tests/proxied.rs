//! A cluster behind proxies.

use super::*;
use crate::socket::Address;

/// Timeouts for calls that get a reply, and for calls that get none.
const LONG_TIMEOUT: Duration = Duration::from_secs(5);
const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

fn client(cluster: &Cluster, node: NodeId, timeout: Duration) -> Client {
    Client::connect(&Address::Tcp(cluster.address(node)), timeout).expect("the proxy accepts")
}

#[test]
fn clients_are_redirected_to_proxies_and_a_fault_affects_one_node() {
    let cluster = Cluster::builder().masters_only().proxied().start();
    let keys = key_of_each_master(&cluster);
    let [(first, key), (second, _), (third, other_key)] = &keys[..] else { panic!("{keys:?}") };
    assert_eq!(Address::Tcp(cluster.address(*first)), cluster.proxy(*first).address());
    assert!(cluster.url().contains(&cluster.address(*first).to_string()));

    // Every node redirects to the proxy, also for connections that bypass the proxies.
    let moved = format!("MOVED {} {}", slot_of(key.as_bytes()), cluster.address(*first));
    for node in [*second, *third] {
        assert_eq!(reply_to(&mut client(&cluster, node, LONG_TIMEOUT), &["GET", key]).error(), moved);
    }
    let slots = cluster.server(*second).command(&["CLUSTER", "SLOTS"]).array();
    for owner in slots.into_iter().map(|slots| slots.array().remove(2).array()) {
        let port = owner[1].clone().integer();
        assert!(keys.iter().any(|(node, _)| i64::from(cluster.address(*node).port()) == port), "{port}");
    }

    cluster.proxy(*first).stall();
    assert!(client(&cluster, *first, SHORT_TIMEOUT).call(&["GET", key]).is_err());
    assert_eq!(reply_to(&mut client(&cluster, *third, LONG_TIMEOUT), &["SET", other_key, "1"]).text(), "OK");
    cluster.settle(); // the nodes themselves are not affected
    cluster.proxy(*first).pass();
    assert_eq!(reply_to(&mut client(&cluster, *first, LONG_TIMEOUT), &["SET", key, "1"]).text(), "OK");
}

#[test]
fn a_promotion_redirects_clients_to_the_proxys_address() {
    let mut cluster = Cluster::builder().proxied().start();
    let (old, key) = key_of_each_master(&cluster).remove(0);
    let elsewhere = cluster.masters()[1];
    cluster.kill(old);
    assert!(client(&cluster, old, LONG_TIMEOUT).call(&["PING"]).is_err());
    let promotion = cluster.wait_for_promotion(old);
    let moved = format!("MOVED {} {}", slot_of(key.as_bytes()), cluster.address(promotion.master));
    assert_eq!(reply_to(&mut client(&cluster, elsewhere, LONG_TIMEOUT), &["GET", &key]).error(), moved);
    assert_eq!(reply_to(&mut client(&cluster, promotion.master, LONG_TIMEOUT), &["SET", &key, "1"]).text(), "OK");
}

/// Replicas connect through the proxy of their master, so the data reaches them late too.
#[test]
fn settle_waits_for_lagging_replicas() {
    let cluster = Cluster::builder().proxied().start();
    let (master, key) = key_of_each_master(&cluster).remove(0);
    let replica = cluster.replica_of(master).expect("a replica");
    cluster.proxy(master).delay(Duration::from_millis(300));
    cluster.server(master).command(&["SET", &key, "1"]);
    assert!(cluster.server(replica).keys().is_empty());
    cluster.settle();
    assert_eq!(cluster.server(replica).keys(), [key]);
}
