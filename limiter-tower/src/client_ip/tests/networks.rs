//! Prefixes of addresses, and the texts of networks.

use limiter_core::ErrorKind;

use super::{found, peer, request};
use crate::ClientIp;

fn shown(by: &ClientIp, address: &str) -> String {
    found(by, &request(Some(peer(address)), "x-forwarded-for", &[""; 0]))
}

#[test]
fn a_client_counts_by_its_network() {
    let ipv6 = "[2001:db8:1:2:ffff:ffff:ffff:ffff]:80";
    let rows = [
        (ClientIp::peer(), "2001:db8:1:2::/64"),
        (ClientIp::peer().ipv6_prefix(48), "2001:db8:1::/48"),
        (ClientIp::peer().ipv6_prefix(63), "2001:db8:1:2::/63"),
        (ClientIp::peer().ipv6_prefix(65), "2001:db8:1:2:8000::/65"),
        (ClientIp::peer().ipv6_prefix(127), "2001:db8:1:2:ffff:ffff:ffff:fffe/127"),
        (ClientIp::peer().ipv6_prefix(128), "2001:db8:1:2:ffff:ffff:ffff:ffff"),
        (ClientIp::peer().ipv6_prefix(129), "2001:db8:1:2:ffff:ffff:ffff:ffff"),
        (ClientIp::peer().ipv6_prefix(255), "2001:db8:1:2:ffff:ffff:ffff:ffff"),
        (ClientIp::peer().ipv6_prefix(0), "::/0"),
        (ClientIp::peer().ipv4_prefix(8), "2001:db8:1:2::/64"),
    ];
    for (by, expected) in rows {
        assert_eq!(shown(&by, ipv6), expected, "{by:?}");
    }
    let rows = [
        (ClientIp::peer(), "203.0.113.255"),
        (ClientIp::peer().ipv4_prefix(24), "203.0.113.0/24"),
        (ClientIp::peer().ipv4_prefix(31), "203.0.113.254/31"),
        (ClientIp::peer().ipv4_prefix(32), "203.0.113.255"),
        (ClientIp::peer().ipv4_prefix(33), "203.0.113.255"),
        (ClientIp::peer().ipv4_prefix(0), "0.0.0.0/0"),
        (ClientIp::peer().ipv6_prefix(8), "203.0.113.255"),
    ];
    for (by, expected) in rows {
        assert_eq!(shown(&by, "203.0.113.255:80"), expected, "{by:?}");
        assert_eq!(shown(&by, "[::ffff:203.0.113.255]:80"), expected, "{by:?}");
    }
}

#[test]
fn a_text_that_is_no_network_is_an_error_with_a_remedy() {
    let unreadable =
        ["", "10.0.0.0/33", "10.0.0/8", "::/129", "localhost", "fe80::1%1", "10.0.0.1:80", "10.0.0.0/-1", "*"];
    for text in unreadable {
        let error = ClientIp::peer().only_from(["10.0.0.0/8", text]).expect_err(text);
        assert_eq!(error.kind(), ErrorKind::Config);
        let expected = format!(
            "`only_from` must be networks or addresses, got {text:?}: write them such as `10.0.0.0/8` or `2001:db8::1`"
        );
        assert_eq!(error.to_string(), expected);
    }
    for (text, whole) in
        [("10.0.0.1/8", "10.0.0.0/8"), ("fe80::1/10", "fe80::/10"), ("::ffff:10.0.0.1/104", "10.0.0.0/8")]
    {
        let error = ClientIp::peer().only_from([text]).expect_err(text);
        assert_eq!(error.kind(), ErrorKind::Config);
        let expected =
            format!("`only_from` must be networks without bits behind the prefix, got {text:?}: write `{whole}`");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn an_ipv6_network_contains_no_ipv4_peer() {
    let by = ClientIp::x_forwarded_for(1).only_from(["::/0"]).expect("a network");
    for (address, expected) in [("[2001:db8::1]:80", "192.0.2.1"), ("203.0.113.9:80", "203.0.113.9")] {
        assert_eq!(found(&by, &request(Some(peer(address)), "x-forwarded-for", &["192.0.2.1"])), expected);
    }
    let by = by.only_from(["::ffff:0:0/96"]).expect("a network");
    for (address, expected) in [("[2001:db8::1]:80", "2001:db8::/64"), ("203.0.113.9:80", "192.0.2.1")] {
        assert_eq!(found(&by, &request(Some(peer(address)), "x-forwarded-for", &["192.0.2.1"])), expected);
    }
}
