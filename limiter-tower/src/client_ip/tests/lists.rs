//! `X-Forwarded-For` and headers of one address.

use super::found_in;
use crate::ClientIp;

fn hops(hops: usize, lines: &[&[u8]]) -> String {
    found_in(&ClientIp::x_forwarded_for(hops), "x-forwarded-for", lines)
}

#[test]
fn hops_count_from_the_right_over_all_lines() {
    let lines: [&[u8]; 3] = [b"192.0.2.1, 192.0.2.2", b"192.0.2.3", b"192.0.2.4 ,\t192.0.2.5"];
    for (position, expected) in [(1, 5), (2, 4), (3, 3), (4, 2), (5, 1)] {
        assert_eq!(hops(position, &lines), format!("192.0.2.{expected}"));
    }
    for too_many in [6, 7, usize::MAX] {
        assert_eq!(hops(too_many, &lines), "missing");
    }
}

#[test]
fn the_name_of_the_header_has_no_case() {
    let by = ClientIp::header("X-Real-IP");
    assert_eq!(found_in(&by, "x-real-ip", &["192.0.2.1"]), "192.0.2.1");
}

#[test]
fn an_empty_entry_counts() {
    let rows: [(usize, &[&[u8]], &str); 9] = [
        (3, &[b"192.0.2.1,,192.0.2.2"], "192.0.2.1"),
        (2, &[b"192.0.2.1,,192.0.2.2"], "missing"),
        (1, &[b"192.0.2.1,"], "missing"),
        (2, &[b"192.0.2.1, "], "192.0.2.1"),
        (1, &[b"192.0.2.1", b""], "missing"),
        (2, &[b"192.0.2.1", b""], "192.0.2.1"),
        (1, &[b""], "missing"),
        (1, &[b","], "missing"),
        (2, &[b" \t , 192.0.2.2"], "missing"),
    ];
    for (position, lines, expected) in rows {
        assert_eq!(hops(position, lines), expected, "{position} of {lines:?}");
    }
}

#[test]
fn an_address_may_have_a_port_and_brackets() {
    let rows = [
        ("192.0.2.1", "192.0.2.1"),
        (" \t192.0.2.1\t ", "192.0.2.1"),
        ("192.0.2.1:4711", "192.0.2.1"),
        ("192.0.2.1:_hidden.1-2", "192.0.2.1"),
        ("2001:db8:1:2:3::1", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2:3::1]", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2:3::1]:4711", "2001:db8:1:2::/64"),
        ("[2001:DB8:1:2:3::1]:_p", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("[::ffff:c000:201]:80", "192.0.2.1"),
        ("2001:db8::192.0.2.1", "2001:db8::/64"),
    ];
    for (entry, expected) in rows {
        assert_eq!(hops(1, &[entry.as_bytes()]), expected, "{entry}");
        assert_eq!(found_in(&ClientIp::header("x-real-ip"), "x-real-ip", &[entry]), expected, "{entry}");
    }
}

#[test]
fn an_entry_that_is_no_address_is_replaced_by_none() {
    let entries = [
        "",
        "unknown",
        "_hidden",
        "example.com",
        "192.0.2",
        "192.0.2.1.5",
        "192.0.2.256",
        "192.0.2.01",
        "0x7f.0.0.1",
        "3221225985",
        "192.0.2.1:",
        "192.0.2.1:port",
        "192.0.2.1:+80",
        "192.0.2.1:123456",
        "192.0.2.1:_",
        "192.0.2.1:_a:b",
        "192.0.2.1:80:80",
        "[192.0.2.1]",
        "[192.0.2.1]:80",
        "[2001:db8::1",
        "2001:db8::1]",
        "[2001:db8::1]80",
        "[2001:db8::1]:",
        "[[2001:db8::1]]",
        "2001:db8::1::2",
        "fe80::1%eth0",
        "[fe80::1%1]:80",
        "fe80::1%1",
        "192.0.2.1 192.0.2.2",
        "\"192.0.2.1\"",
        "for=192.0.2.1",
        "192.0.2.0/24",
        "192.0.2.1;80",
        "-1",
        ":",
        "[]",
        "[",
    ];
    for entry in entries {
        let lines = ["192.0.2.8", entry, "192.0.2.9"].map(str::as_bytes);
        assert_eq!(hops(2, &lines), "missing", "{entry}");
        let one = lines.join(&b", "[..]);
        assert_eq!(hops(2, &[&one]), "missing", "{entry}");
        assert_eq!(hops(3, &[&one]), "192.0.2.8", "{entry}");
        assert_eq!(found_in(&ClientIp::header("x-real-ip"), "x-real-ip", &[entry]), "missing", "{entry}");
    }
    for bytes in [&b"192.0.2.1\xff"[..], b"\xc2\xa0192.0.2.1", b"\xd9\xa192.0.2.1"] {
        assert_eq!(hops(1, &[bytes]), "missing", "{bytes:?}");
    }
}

#[test]
fn an_entry_above_64_bytes_is_no_address() {
    for (length, expected) in [(64, "192.0.2.1"), (65, "missing"), (60_000, "missing")] {
        let entry = format!("{:a<length$}", "192.0.2.1:_");
        assert_eq!(hops(1, &[entry.as_bytes()]), expected, "{length}");
        for value in [format!("for=\"{entry}\""), format!("for=\"{}\"", entry.replace('a', "\\a"))] {
            assert_eq!(found_in(&ClientIp::forwarded(1), "forwarded", &[value]), expected, "{length}");
        }
    }
}

#[test]
fn bytes_of_a_client_leave_the_entries_of_proxies_alone() {
    for left in
        [&b"\xff"[..], b"\"", b"\"192.0.2.66", b",,,,", b"\\", b"\xc3\xa9, 192.0.2.66", b"192.0.2.66;", b"(", b"\t"]
    {
        let one = [left, b", 192.0.2.1, 192.0.2.2"].concat();
        for (position, expected) in [(1, "192.0.2.2"), (2, "192.0.2.1")] {
            assert_eq!(hops(position, &[&one]), expected, "{left:?}");
            assert_eq!(hops(position, &[left, b"192.0.2.1", b"192.0.2.2"]), expected, "{left:?}");
            assert_eq!(hops(position, &[left, b"192.0.2.1, 192.0.2.2"]), expected, "{left:?}");
        }
    }
}

#[test]
fn a_header_of_one_address_has_one_line_and_no_list() {
    let by = ClientIp::header("cf-connecting-ip");
    for lines in [&["192.0.2.1", "192.0.2.1"][..], &["192.0.2.1, 192.0.2.2"], &["192.0.2.1,"], &["", "192.0.2.1"]] {
        assert_eq!(found_in(&by, "cf-connecting-ip", lines), "missing", "{lines:?}");
    }
}

#[test]
#[should_panic(expected = "`name` must be the name of a header, got \"real ip\": write one such as `x-real-ip`")]
fn a_text_that_is_no_name_of_a_header_panics() {
    let _ = ClientIp::header("real ip");
}
