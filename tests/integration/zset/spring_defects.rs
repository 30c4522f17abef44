//! Tests of the Spring client of these tests: it reproduces the defects of the original.

use limiter_testkit::{RedisServer, unique};

use super::spring::{Spring, Version};

const WINDOW_MS: u64 = 1_000_000;
const NOW_MS: u64 = 1_700_000_000_000;

fn spring_client(version: Version) -> (Spring, String) {
    (Spring::connect(RedisServer::shared()).version(version), unique("original"))
}

fn command(name: &str, command: &str) -> i64 {
    RedisServer::shared().command(&[command, &format!("CurrentLimiter:{name}")]).integer()
}

#[test]
fn january_2022_version_admits_without_an_entry_after_a_trim() {
    let (mut spring, name) = spring_client(Version::January2022);
    assert!((0..3).all(|_| spring.allows(&name, NOW_MS, WINDOW_MS, 3)));
    assert!(!spring.allows(&name, NOW_MS + WINDOW_MS - 1, WINDOW_MS, 3));
    assert!(spring.allows(&name, NOW_MS + WINDOW_MS, WINDOW_MS, 3), "an entry of exactly a window's age has expired");
    assert_eq!(command(&name, "ZCARD"), 0, "the call has no entry");
    let later = (0..9).filter(|_| spring.allows(&name, NOW_MS + WINDOW_MS, WINDOW_MS, 3)).count();
    assert_eq!((later, command(&name, "ZCARD")), (3, 3), "four admissions of three in one window");
}

#[test]
fn last_version_adds_an_entry_after_a_trim_and_loses_the_ttl() {
    let (mut spring, name) = spring_client(Version::Last);
    assert!((0..3).all(|_| spring.allows(&name, NOW_MS, WINDOW_MS, 3)));
    assert!(spring.allows(&name, NOW_MS + WINDOW_MS, WINDOW_MS, 3));
    assert_eq!((command(&name, "ZCARD"), command(&name, "PTTL")), (1, -1));
    let later = (0..9).filter(|_| spring.allows(&name, NOW_MS + WINDOW_MS, WINDOW_MS, 3)).count();
    assert_eq!((later, command(&name, "ZCARD")), (2, 3), "three admissions of three");
    assert!(command(&name, "PTTL") > 0, "until the next call");
}

#[test]
fn both_versions_trim_only_full_sets() {
    for version in [Version::January2022, Version::Last] {
        let (mut spring, name) = spring_client(version);
        for age in [5, 3, 0] {
            assert!(spring.allows(&name, NOW_MS - age * WINDOW_MS, WINDOW_MS, 4));
        }
        assert_eq!(command(&name, "ZCARD"), 3, "{version:?}: two expired entries remain");
    }
}

/// Members contain addresses without dots, so entries of two hosts may collide, and the second replaces the first.
#[test]
fn hosts_with_colliding_members_count_as_one() {
    let name = unique("original");
    let mut hosts = ["1.11.1.1", "11.1.1.1"].map(|address| Spring::connect(RedisServer::shared()).address(address));
    assert!(hosts.iter_mut().all(|spring_client| spring_client.allows(&name, NOW_MS, WINDOW_MS, 9)));
    assert_eq!(command(&name, "ZCARD"), 1);
}
