//! Peers: which of them may send a header.

use super::{PROXY, STRANGER, found, peer, request};
use crate::{ClientIp, Peer};

/// All constructors, each with a header from which it finds 192.0.2.1.
fn sources() -> [(ClientIp, &'static str, &'static str); 3] {
    [
        (ClientIp::x_forwarded_for(1), "x-forwarded-for", "192.0.2.1"),
        (ClientIp::forwarded(1), "forwarded", "for=192.0.2.1"),
        (ClientIp::header("CF-Connecting-IP"), "cf-connecting-ip", "192.0.2.1"),
    ]
}

#[test]
fn a_header_counts_by_default_from_local_networks_alone() {
    let local = [
        "127.0.0.1",
        "127.255.255.255",
        "10.0.0.0",
        "10.255.255.255",
        "172.16.0.0",
        "172.31.255.255",
        "192.168.0.0",
        "192.168.255.255",
        "169.254.0.0",
        "169.254.255.255",
        "[::1]",
        "[fe80::1]",
        "[febf::1]",
        "[fc00::1]",
        "[fdff::1]",
        "[::ffff:10.1.2.3]",
        "[::ffff:127.0.0.1]",
    ];
    let other = [
        ("126.255.255.255", "126.255.255.255"),
        ("128.0.0.0", "128.0.0.0"),
        ("9.255.255.255", "9.255.255.255"),
        ("11.0.0.0", "11.0.0.0"),
        ("172.15.255.255", "172.15.255.255"),
        ("172.32.0.0", "172.32.0.0"),
        ("192.167.255.255", "192.167.255.255"),
        ("192.169.0.0", "192.169.0.0"),
        ("169.253.255.255", "169.253.255.255"),
        ("100.64.0.1", "100.64.0.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("[::]", "::/64"),
        ("[::2]", "::/64"),
        ("[fec0::1]", "fec0::/64"),
        ("[fbff::1]", "fbff::/64"),
        ("[fe00::1]", "fe00::/64"),
        ("[2001:db8::1]", "2001:db8::/64"),
        ("[::ffff:198.51.100.23]", "198.51.100.23"),
    ];
    for (by, header, line) in sources() {
        for address in local {
            let peer = peer(&format!("{address}:80"));
            assert_eq!(found(&by, &request(Some(peer), header, &[line])), "192.0.2.1", "{by:?} from {address}");
        }
        for (address, expected) in other {
            let peer = peer(&format!("{address}:80"));
            assert_eq!(found(&by, &request(Some(peer), header, &[line])), expected, "{by:?} from {address}");
        }
    }
}

#[test]
fn an_own_list_replaces_the_default_one() {
    let by = ClientIp::x_forwarded_for(1).only_from(["203.0.113.0/24", "2001:db8::1", "::ffff:198.51.100.0/120"]);
    let by = by.expect("networks");
    let rows = [
        ("203.0.113.9:80", "192.0.2.1"),
        ("203.0.114.9:80", "203.0.114.9"),
        ("[::ffff:203.0.113.9]:80", "192.0.2.1"),
        ("[2001:db8::1]:80", "192.0.2.1"),
        ("[2001:db8::2]:80", "2001:db8::/64"),
        (STRANGER, "192.0.2.1"),
        (PROXY, "10.0.0.7"),
        ("127.0.0.1:80", "127.0.0.1"),
    ];
    for (address, expected) in rows {
        let parts = request(Some(peer(address)), "x-forwarded-for", &["192.0.2.1"]);
        assert_eq!(found(&by, &parts), expected, "{address}");
    }
}

#[test]
fn a_unix_peer_is_trusted_under_every_list_and_has_no_address() {
    for (by, header, line) in sources() {
        let from_none = by.clone().only_from([""; 0]).expect("no network");
        for by in [by, from_none] {
            assert_eq!(found(&by, &request(Some(Peer::unix()), header, &[line])), "192.0.2.1", "{by:?}");
            assert_eq!(found(&by, &request(Some(Peer::unix()), "other", &[line])), "missing", "{by:?}");
        }
    }
    assert_eq!(found(&ClientIp::peer(), &request(Some(Peer::unix()), "x-forwarded-for", &["192.0.2.1"])), "missing");
}

#[test]
fn an_empty_list_trusts_no_address() {
    for (by, header, line) in sources() {
        let by = by.only_from([""; 0]).expect("no network");
        assert_eq!(found(&by, &request(Some(peer("127.0.0.1:80")), header, &[line])), "127.0.0.1", "{by:?}");
    }
}

#[test]
fn without_a_known_peer_the_key_is_missing() {
    for (by, header, line) in sources() {
        assert_eq!(found(&by, &request(None, header, &[line])), "missing", "{by:?}");
    }
    assert_eq!(found(&ClientIp::peer(), &request(None, "x-forwarded-for", &["192.0.2.1"])), "missing");
}

#[test]
fn a_trusted_peer_without_the_header_has_no_key() {
    for (by, _, line) in sources() {
        assert_eq!(found(&by, &request(Some(peer(PROXY)), "x-real-ip", &[line])), "missing", "{by:?}");
    }
}

#[test]
fn the_peer_counts_by_default_and_with_no_hops() {
    for by in [ClientIp::default(), ClientIp::peer(), ClientIp::x_forwarded_for(0), ClientIp::forwarded(0)] {
        for header in ["x-forwarded-for", "forwarded"] {
            let parts = request(Some(peer(PROXY)), header, &["for=192.0.2.1", "192.0.2.1"]);
            assert_eq!(found(&by, &parts), "10.0.0.7", "{by:?}");
        }
    }
}

#[cfg(feature = "axum")]
#[test]
fn the_peer_of_axum_counts() {
    use std::net::SocketAddr;

    use axum::extract::ConnectInfo;

    let mut parts = request(None, "x-forwarded-for", &["192.0.2.1"]);
    parts.extensions.insert(ConnectInfo::<SocketAddr>("[::ffff:10.0.0.7]:443".parse().expect("an address")));
    assert_eq!(found(&ClientIp::peer(), &parts), "10.0.0.7");
    assert_eq!(found(&ClientIp::x_forwarded_for(1), &parts), "192.0.2.1");
}
