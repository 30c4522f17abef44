//! A cluster with TLS.

use std::fs;

use super::*;
use crate::server::BUS_OFFSET;
use crate::tls_client::TlsClient;

/// The nodes have no port without TLS, so replication and migration are over TLS too.
#[test]
fn nodes_with_tls_trust_each_other_and_have_no_other_port() {
    let mut cluster = Cluster::builder().tls().proxied().start();
    assert!(cluster.url().starts_with("rediss-cluster://127.0.0.1:"), "{}", cluster.url());
    let authority = cluster.ca_certificate().expect("TLS");
    let connect = |address| TlsClient::connect(address, "127.0.0.1", &authority);
    for node in cluster.nodes() {
        let server = cluster.server(node);
        assert_eq!(server.command(&["CONFIG", "GET", "port"]).array()[1].clone().text(), "0");
        let own_authority = server.ca_certificate().expect("TLS");
        assert_eq!(fs::read(own_authority).expect("a file"), fs::read(&authority).expect("a file"));
        let mut bus = cluster.nodes.get(node).own_address();
        bus.set_port(bus.port() + BUS_OFFSET);
        assert!(connect(bus).is_ok(), "the port for the other nodes has TLS");
    }

    let keys = key_of_each_master(&cluster);
    let [(first, key), (second, _), ..] = &keys[..] else { panic!("{keys:?}") };
    let slot = slot_of(key.as_bytes());
    let client = |node| connect(cluster.address(node)).expect("the proxy accepts");
    assert_eq!(client(*first).call(&format!("SET {key} 1")), "+OK");
    cluster.migrate_slot(slot, *second);
    let moved = format!("-MOVED {slot} {}", cluster.address(*second));
    assert_eq!(client(*first).call(&format!("GET {key}")), moved);
    assert_eq!(cluster.server(*second).keys(), [key.as_str()]);

    cluster.settle();
    cluster.kill(*second);
    let promotion = cluster.wait_for_promotion(*second);
    assert_eq!(cluster.server(promotion.master).keys(), [key.as_str()]);
    let mut elsewhere = connect(cluster.address(*first)).expect("the proxy accepts");
    assert_eq!(elsewhere.call(&format!("GET {key}")), format!("-MOVED {slot} {}", cluster.address(promotion.master)));
}
