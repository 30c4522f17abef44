//! Elements of `Forwarded`.

use super::found_in;
use crate::ClientIp;

fn hops(hops: usize, lines: &[&[u8]]) -> String {
    found_in(&ClientIp::forwarded(hops), "forwarded", lines)
}

#[test]
fn hops_count_from_the_right_over_all_lines() {
    let lines: [&[u8]; 3] =
        [b"for=192.0.2.1, for=192.0.2.2;by=_a", b"proto=http;for=192.0.2.3", b"For=192.0.2.4 ,\tFOR=\"192.0.2.5\""];
    for (position, expected) in [(1, 5), (2, 4), (3, 3), (4, 2), (5, 1)] {
        assert_eq!(hops(position, &lines), format!("192.0.2.{expected}"));
    }
    for too_many in [6, 7, usize::MAX] {
        assert_eq!(hops(too_many, &lines), "missing");
    }
}

#[test]
fn an_element_is_read_by_its_grammar() {
    let rows: [(&str, &str); 44] = [
        ("for=192.0.2.43", "192.0.2.43"),
        ("fOr=192.0.2.43", "192.0.2.43"),
        ("\t for=192.0.2.43 \t", "192.0.2.43"),
        (r#"for="192.0.2.43""#, "192.0.2.43"),
        (r#"for="192.0.2.43:47011""#, "192.0.2.43"),
        (r#"For="[2001:db8:cafe::17]:4711""#, "2001:db8:cafe::/64"),
        (r#"for="[2001:db8:cafe::17]""#, "2001:db8:cafe::/64"),
        (r#"for="2001:db8:cafe::17""#, "2001:db8:cafe::/64"),
        (r#"for="[::ffff:192.0.2.43]:80""#, "192.0.2.43"),
        (r#"for="192.0.2.43:_port""#, "192.0.2.43"),
        (r#"for="\1\9\2.0\.2.43""#, "192.0.2.43"),
        ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
        ("proto=http;by=203.0.113.43;for=192.0.2.60", "192.0.2.60"),
        (";;for=192.0.2.60;", "192.0.2.60"),
        (r#"host="a,b;for=192.0.2.1";for=192.0.2.60"#, "192.0.2.60"),
        (r#"for=192.0.2.60;host="a,b;for=192.0.2.1""#, "192.0.2.60"),
        (r#"for=192.0.2.60;host="a\",for=192.0.2.1""#, "192.0.2.60"),
        (r#"for=192.0.2.60;host="a\\\",\\for=192.0.2.1\\""#, "192.0.2.60"),
        (r#"for=192.0.2.60;host="""#, "192.0.2.60"),
        ("for=192.0.2.60;x-for=192.0.2.1;for-x=192.0.2.1", "192.0.2.60"),
        ("", "missing"),
        (";", "missing"),
        ("proto=http", "missing"),
        ("for=unknown", "missing"),
        ("for=_hidden", "missing"),
        (r#"for="_SEVKISEK""#, "missing"),
        (r#"for="""#, "missing"),
        ("for=", "missing"),
        ("for", "missing"),
        ("192.0.2.43", "missing"),
        ("for=192.0.2.43;for=192.0.2.43", "missing"),
        ("for=192.0.2.43;FOR=unknown", "missing"),
        ("for=192.0.2.43:80", "missing"),
        ("for=[2001:db8::1]", "missing"),
        ("for =192.0.2.43", "missing"),
        ("for= 192.0.2.43", "missing"),
        ("for=192.0.2.43; proto=http", "missing"),
        ("for=192.0.2.43 ;proto=http", "missing"),
        ("for=192.0.2.43;proto", "missing"),
        ("for=192.0.2.43;proto=", "missing"),
        (r#"for=192.0.2.43;"host"=a"#, "missing"),
        (r#"for="192.0.2.43"a"#, "missing"),
        (r#"for="192.0.2.43 ""#, "missing"),
        (r#"for="[fe80::1%1]""#, "missing"),
    ];
    for (element, expected) in rows {
        assert_eq!(hops(1, &[element.as_bytes()]), expected, "{element}");
        let among = ["for=192.0.2.8", element, "for=192.0.2.9"].map(str::as_bytes);
        assert_eq!(hops(2, &among), expected, "{element}");
        assert_eq!(hops(2, &[&among.join(&b","[..])]), expected, "{element}");
        assert_eq!(hops(3, &[&among.join(&b", "[..])]), "192.0.2.8", "{element}");
    }
}

#[test]
fn an_element_may_have_other_bytes_in_quotes_alone() {
    assert_eq!(hops(1, &[b"for=192.0.2.1;host=\"\xff\xc3\xa9\""]), "192.0.2.1");
    assert_eq!(hops(1, &[b"for=192.0.2.1;host=\xff"]), "missing");
    assert_eq!(hops(1, &[b"for=\"192.0.2.1\xff\""]), "missing");
}

/// Texts of a client that leave something open, which a parser from the left would look for in a proxy's element.
const OPEN: [&[u8]; 14] = [
    b"for=\"",
    b"\"",
    b"for=\"\\",
    b"\\",
    b"for=192.0.2.66;host=\"",
    b"for=192.0.2.66, for=\"a",
    b"for=\"a\"\"",
    b"\"\"\"",
    b"\\\"",
    b"for=\xff",
    b"\xff\"",
    b"for=192.0.2.66;",
    b"for=\"192.0.2.66\\\"",
    b",,\",",
];

#[test]
fn text_that_a_client_leaves_open_hides_no_element_of_a_proxy() {
    for left in OPEN {
        for right in
            [&b"for=203.0.113.9"[..], b"for=\"203.0.113.9\"", b"for=\"203.0.113.9:80\";host=\"a,\\\"\\\\\";proto=http"]
        {
            for lines in [&[&[left, b", ", right].concat()[..]][..], &[&[left, b",", right].concat()], &[left, right]] {
                assert_eq!(hops(1, lines), "203.0.113.9", "{lines:?}");
                let two = [lines, &[b"for=_proxy;host=\"b,\""]].concat();
                assert_eq!(hops(2, &two), "203.0.113.9", "{two:?}");
            }
        }
    }
}

#[test]
fn a_quote_without_a_partner_in_or_behind_the_counted_element_makes_the_key_missing() {
    for right in
        [&b"for=203.0.113.9\""[..], b"\"for=203.0.113.9", b"for=203.0.113.9;host=\"", b"for=203.0.113.9;host=a\\\""]
    {
        assert_eq!(hops(1, &[right]), "missing", "{right:?}");
        assert_eq!(hops(2, &[b"for=192.0.2.66", right]), "missing", "{right:?}");
        assert_eq!(hops(2, &[b"for=192.0.2.66, for=192.0.2.67", right]), "missing", "{right:?}");
        assert_eq!(hops(2, &[b"for=192.0.2.66", b"for=192.0.2.67", right, b"for=203.0.113.8"]), "missing", "{right:?}");
    }
}
