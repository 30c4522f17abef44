//! The second client of these tests has the original's defects, which the joint tests then live with.

use limiter_testkit::{RedisServer, unique};

use super::spring::{Spring, Version};

const WINDOW: u64 = 1_000_000;
const NOW: u64 = 1_700_000_000_000;

fn host(version: Version) -> (Spring, String) {
    (Spring::on(RedisServer::shared()).version(version), unique("original"))
}

fn command(name: &str, command: &str) -> i64 {
    RedisServer::shared().command(&[command, &format!("CurrentLimiter:{name}")]).integer()
}

#[test]
fn the_version_of_january_2022_admits_without_an_entry_after_a_trim() {
    let (mut spring, name) = host(Version::January2022);
    assert!((0..3).all(|_| spring.allows(&name, NOW, WINDOW, 3)));
    assert!(!spring.allows(&name, NOW + WINDOW - 1, WINDOW, 3));
    assert!(spring.allows(&name, NOW + WINDOW, WINDOW, 3), "an entry of exactly a window's age is over");
    assert_eq!(command(&name, "ZCARD"), 0, "its call is not recorded");
    let later = (0..9).filter(|_| spring.allows(&name, NOW + WINDOW, WINDOW, 3)).count();
    assert_eq!((later, command(&name, "ZCARD")), (3, 3), "four of three in one window");
}

#[test]
fn the_last_version_adds_after_a_trim_and_loses_the_time_to_live() {
    let (mut spring, name) = host(Version::Last);
    assert!((0..3).all(|_| spring.allows(&name, NOW, WINDOW, 3)));
    assert!(spring.allows(&name, NOW + WINDOW, WINDOW, 3));
    assert_eq!((command(&name, "ZCARD"), command(&name, "PTTL")), (1, -1));
    let later = (0..9).filter(|_| spring.allows(&name, NOW + WINDOW, WINDOW, 3)).count();
    assert_eq!((later, command(&name, "ZCARD")), (2, 3), "three of three");
    assert!(command(&name, "PTTL") > 0, "until the next call");
}

#[test]
fn both_versions_trim_only_a_set_that_seems_full() {
    for version in [Version::January2022, Version::Last] {
        let (mut spring, name) = host(version);
        for age in [5, 3, 0] {
            assert!(spring.allows(&name, NOW - age * WINDOW, WINDOW, 4));
        }
        assert_eq!(command(&name, "ZCARD"), 3, "{version:?}: two are over, and there");
    }
}

/// Addresses lose their dots, so two hosts may name an entry alike: the second replaces the first.
#[test]
fn hosts_whose_members_collide_count_as_one() {
    let name = unique("original");
    let mut hosts = ["1.11.1.1", "11.1.1.1"].map(|address| Spring::on(RedisServer::shared()).address(address));
    assert!(hosts.iter_mut().all(|host| host.allows(&name, NOW, WINDOW, 9)));
    assert_eq!(command(&name, "ZCARD"), 1);
}
