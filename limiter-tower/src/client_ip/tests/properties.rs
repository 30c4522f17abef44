//! Properties of all requests, by random ones. Small requests come first, so the first failure is a small one.

use std::net::IpAddr;

use limiter_testkit::{Random, full_or};

use super::{PROXY, STRANGER, found, found_in, oracle, peer, random_lines, request};
use crate::ClientIp;

/// The most pieces of a text in the last cases.
const MAX_PIECES: u64 = 16;
const HEADERS: [&str; 3] = ["x-forwarded-for", "forwarded", "x-real-ip"];

/// Runs a test for each case, with a generator of its own and the size of its texts.
fn for_each_case(test: impl Fn(&mut Random, u64)) {
    let cases = full_or(1_000_000, 30_000);
    for case in 0..cases {
        test(&mut Random::new(case), 1 + case * MAX_PIECES / cases);
    }
}

/// Returns the three kinds of headers at this position, with whole IPv6 addresses.
fn sources(hops: usize) -> [ClientIp; 3] {
    [ClientIp::x_forwarded_for(hops), ClientIp::forwarded(hops), ClientIp::header("x-real-ip")]
        .map(|by| by.ipv6_prefix(128))
}

fn hops(random: &mut Random) -> usize {
    usize::try_from(random.between(1, 4)).expect("a small number")
}

fn shown(lines: &[Vec<u8>]) -> String {
    lines.iter().map(|line| line.escape_ascii().to_string()).collect::<Vec<_>>().join(" | ")
}

fn shown_address(address: Option<IpAddr>) -> String {
    address.map_or_else(|| "missing".to_owned(), |address| address.to_string())
}

#[test]
fn no_header_of_a_stranger_changes_the_key() {
    for_each_case(|random, size| {
        let lines = random_lines::lines(random, size);
        for (by, header) in sources(hops(random)).iter().zip(HEADERS) {
            let parts = request(Some(peer(STRANGER)), header, &lines);
            assert_eq!(found(by, &parts), "198.51.100.23", "{header}: {}", shown(&lines));
        }
    });
}

#[test]
fn no_lines_panic_and_none_change_the_key_of_the_peer() {
    for_each_case(|random, size| {
        let lines = random_lines::lines(random, size);
        for (index, header) in HEADERS.into_iter().enumerate() {
            for hops in [hops(random), usize::MAX] {
                found_in(&sources(hops)[index], header, &lines);
            }
            assert_eq!(found_in(&ClientIp::peer(), header, &lines), "10.0.0.7");
        }
        let parts = request(None, "forwarded", &lines);
        assert_eq!(found(&ClientIp::forwarded(1), &parts), "missing", "{PROXY}");
    });
}

/// The result of lines must be that of the oracle, and it must be the same behind any bytes to the left.
fn check_left_of(random: &mut Random, size: u64, header: &'static str, by: &ClientIp, own: &[Vec<u8>]) -> String {
    let alone = found_in(by, header, own);
    let mut left = random_lines::lines(random, size);
    if random.below(2) == 0
        && let Some((first, others)) = own.split_first()
        && let Some(last) = left.last_mut()
    {
        last.push(b',');
        last.extend(first);
        left.extend_from_slice(others);
    } else {
        left.extend_from_slice(own);
    }
    assert_eq!(found_in(by, header, &left), alone, "{} in {}", shown(own), shown(&left));
    alone
}

#[test]
fn nothing_to_the_left_of_the_counted_entry_changes_the_key() {
    for_each_case(|random, size| {
        let hops = hops(random);
        let entries: Vec<_> = (0..hops).map(|_| random_lines::entry(random)).collect();
        let own = random_lines::in_lines(random, &entries);
        let found = check_left_of(random, size, "x-forwarded-for", &sources(hops)[0], &own);
        assert_eq!(found, shown_address(oracle::x_forwarded_for(&own, hops)), "{}", shown(&own));
    });
}

#[test]
fn nothing_to_the_left_of_the_counted_element_changes_the_key() {
    for_each_case(|random, size| {
        let hops = hops(random);
        let elements: Vec<_> = (0..hops).map(|_| random_lines::element(random)).collect();
        let own = random_lines::in_lines(random, &elements);
        let found = check_left_of(random, size, "forwarded", &sources(hops)[1], &own);
        assert_eq!(
            found,
            shown_address(oracle::forwarded(&own, hops).expect("a list of the grammar")),
            "{}",
            shown(&own)
        );
    });
}

#[test]
fn any_lines_have_the_key_of_the_oracle() {
    for_each_case(|random, size| {
        let (lines, hops) = (random_lines::lines(random, size), hops(random));
        let [by_entry, by_element, _] = &sources(hops);
        let expected = shown_address(oracle::x_forwarded_for(&lines, hops));
        assert_eq!(found_in(by_entry, "x-forwarded-for", &lines), expected, "{}", shown(&lines));
        // A quoted string that goes on in another line is one of the joined lines, and of no proxy.
        if let Ok(expected) = oracle::forwarded(&lines, hops) {
            let found = found_in(by_element, "forwarded", &lines);
            let goes_on = lines.iter().any(|line| oracle::forwarded(std::slice::from_ref(line), 1).is_err());
            let is_expected = found == shown_address(expected) || (goes_on && found == "missing");
            assert!(is_expected, "{found} instead of {expected:?} in {}", shown(&lines));
        }
    });
}
