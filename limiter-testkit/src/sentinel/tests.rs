use std::time::{Duration, Instant};

use super::*;
use crate::resp::Client;
use crate::socket::Address;
use crate::tls_client::TlsClient;

#[track_caller]
fn master_reported_to_clients(sentinels: &Sentinels) -> Vec<String> {
    let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"];
    let reply = sentinels.sentinel(sentinels.sentinels()[1]).command(&command);
    reply.array().into_iter().map(crate::Reply::text).collect()
}

#[test]
fn sentinels_report_the_master_and_its_replica_has_its_data() {
    let sentinels = Sentinels::start();
    let master = sentinels.master();
    assert_eq!(sentinels.nodes()[0], master);
    assert_eq!((sentinels.nodes().len(), sentinels.sentinels().len()), (2, 3));
    let address = sentinels.address(master);
    assert_eq!(master_reported_to_clients(&sentinels), [address.ip().to_string(), address.port().to_string()]);

    let watch = |sentinel: &NodeId| sentinels.sentinel(*sentinel).url().replace("redis://", "");
    let hosts: Vec<_> = sentinels.sentinels().iter().map(watch).collect();
    assert_eq!(sentinels.url(), format!("redis-sentinel://{}/mymaster/0", hosts.join(",")));

    sentinels.server(master).command(&["SET", "a", "1"]);
    sentinels.settle();
    assert_eq!(sentinels.server(sentinels.nodes()[1]).keys(), ["a"]);
}

#[test]
fn a_killed_master_is_replaced_and_restarts_as_a_replica() {
    let mut sentinels = Sentinels::start();
    let old = sentinels.master();
    sentinels.server(old).command(&["SET", "a", "1"]);
    sentinels.settle();
    let began = Instant::now();
    sentinels.kill(old);
    let promotion = sentinels.wait_for_promotion(old);
    println!("promoted {:?} after the kill, known after {:?}", promotion.at - began, began.elapsed());
    assert_ne!(promotion.master, old);
    assert_eq!(sentinels.master(), promotion.master);
    assert_eq!(master_reported_to_clients(&sentinels)[1], sentinels.address(promotion.master).port().to_string());
    assert_eq!(sentinels.server(promotion.master).command(&["SET", "b", "1"]).text(), "OK");

    let began = Instant::now();
    sentinels.restart(old);
    sentinels.settle();
    println!("a replica {:?} after the restart", began.elapsed());
    let rejected = sentinels.server(old).try_command(&["SET", "c", "1"]).expect("a reply");
    assert!(rejected.error().starts_with("READONLY"));
    assert_eq!(sentinels.server(old).keys(), ["a", "b"]);
}

#[test]
fn two_sentinels_replace_a_paused_master() {
    let mut sentinels = Sentinels::start();
    let old = sentinels.master();
    let first = sentinels.sentinels()[0];
    sentinels.kill_sentinel(first);
    let began = Instant::now();
    sentinels.pause(old);
    let promotion = sentinels.wait_for_promotion(old);
    println!("promoted {:?} after the pause, known after {:?}", promotion.at - began, began.elapsed());
    assert_ne!(promotion.master, old);
    sentinels.restart_sentinel(first);
    sentinels.resume(old);
    sentinels.settle();
    assert_eq!(sentinels.master(), promotion.master);
}

#[test]
fn a_failover_on_command_swaps_the_roles() {
    let sentinels = Sentinels::start();
    let old = sentinels.master();
    let began = Instant::now();
    let promotion = sentinels.fail_over();
    println!("promoted {:?} after the command, known after {:?}", promotion.at - began, began.elapsed());
    assert_ne!(promotion.master, old);
    sentinels.settle();
    assert!(sentinels.server(old).info("replication")["role"].starts_with("slave"));
}

/// No server has a port without TLS, so the replica and the sentinels use TLS too.
#[test]
fn servers_and_sentinels_with_tls_trust_each_other_and_have_no_other_port() {
    let mut sentinels = Sentinels::builder().tls().start();
    assert!(sentinels.url().starts_with("rediss-sentinel://127.0.0.1:"), "{}", sentinels.url());
    let authority = sentinels.ca_certificate().expect("TLS");
    let nodes = sentinels.nodes().into_iter().map(|node| sentinels.server(node));
    for server in nodes.chain(sentinels.sentinels().into_iter().map(|sentinel| sentinels.sentinel(sentinel))) {
        let Address::Tcp(address) = server.address() else { panic!("{:?}", server.address()) };
        let mut client = TlsClient::connect(address, "127.0.0.1", &authority).expect("a trusted server");
        assert_eq!(client.call("PING"), "+PONG");
        let has_plain_port = Client::connect(&server.address(), Duration::from_secs(5))
            .and_then(|mut client| client.call(&["PING"]))
            .is_ok();
        assert!(!has_plain_port, "{address} replies without TLS");
    }
    let old = sentinels.master();
    sentinels.server(old).command(&["SET", "a", "1"]);
    sentinels.settle();
    sentinels.kill(old);
    let promotion = sentinels.wait_for_promotion(old);
    assert_eq!(sentinels.server(promotion.master).keys(), ["a"]);
    assert_eq!(master_reported_to_clients(&sentinels)[1], sentinels.address(promotion.master).port().to_string());
    sentinels.restart(old);
    sentinels.settle();
    assert_eq!(sentinels.server(old).keys(), ["a"]);
}

#[test]
fn sentinels_and_servers_have_separate_credentials() {
    let by_password = Sentinels::builder().password("p w").sentinel_password("s w").start();
    assert!(by_password.url().starts_with("redis-sentinel://:p%20w@127.0.0.1:"), "{}", by_password.url());
    let by_user = Sentinels::builder().user("al:ice", "p w").sentinel_user("watch", "s w").start();
    assert!(by_user.url().starts_with("redis-sentinel://al%3Aice:p%20w@127.0.0.1:"), "{}", by_user.url());
    for (mut sentinels, user) in [(by_password, "default"), (by_user, "watch")] {
        let mut client =
            Client::connect(&sentinels.sentinel(sentinels.sentinels()[0]).address(), Duration::from_secs(5))
                .expect("it listens");
        assert!(client.call(&["SENTINEL", "MASTERS"]).expect("a reply").error().starts_with("NOAUTH"));
        assert_eq!(client.call(&["AUTH", user, "s w"]).expect("a reply").text(), "OK");
        let mut client = Client::connect(&Address::Tcp(sentinels.address(sentinels.master())), Duration::from_secs(5))
            .expect("it listens");
        assert!(client.call(&["PING"]).expect("a reply").error().starts_with("NOAUTH"));
        let old = sentinels.master();
        sentinels.kill(old);
        assert_ne!(sentinels.wait_for_promotion(old).master, old); // the sentinels authenticate to each other for this
    }
}
