//! A living instance, and its text as a member of a sorted set.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, process};

/// A limiter with a store on Redis that writes heartbeats, as [`Limiter::instances`](crate::Limiter::instances) lists it.
///
/// All texts are those that the other limiter has written. They may contain any characters.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The random id of the limiter: 16 hex digits.
    pub id: String,
    /// The name of its host. `-` if it is unknown.
    pub host: String,
    /// The id of its process.
    pub pid: u32,
    /// The version of `rate-limited` that it is built with.
    pub version: String,
    /// The time at which the limiter was built, by the clock of its host.
    pub since: SystemTime,
    /// The time of its last heartbeat, by the clock of the server.
    pub last_seen: SystemTime,
    /// The version of the [shared rules](crate::Builder::shared_rules) in force there, 0 before the first one. `None` if it
    /// does not follow them.
    pub rules_version: Option<u64>,
    /// The state of its store at that time: the text of a [`HealthState`](crate::HealthState).
    pub state: String,
    /// The digest of its rules with their keys and limits: 32 hex digits.
    pub inventory: String,
}

/// The hex digits of an inventory's digest.
pub(super) const DIGEST_DIGITS: usize = 32;
/// The longest text of a member.
const MAX_MEMBER_BYTES: usize = 512;
/// The longest name of a host that is written.
const MAX_HOST_BYTES: usize = 255;

/// The part of an instance that stays the same.
#[derive(Debug)]
pub(super) struct Identity {
    id: String,
    host: String,
    pid: u32,
    since_millis: u128,
}

impl Identity {
    /// Returns a new identity in this process.
    pub(super) fn new(built_at: SystemTime) -> Self {
        // Each thread's first hasher has keys of the system's random source. A child of `fork` has other contents.
        let random = RandomState::new().hash_one((process::id(), SystemTime::now()));
        Self { id: format!("{random:016x}"), host: host(), pid: process::id(), since_millis: millis(built_at) }
    }

    /// Returns the id, the host and the process: words apart by spaces.
    pub(super) fn place(&self) -> String {
        let Self { id, host, pid, .. } = self;
        format!("{id} {host} {pid}")
    }

    /// Returns the member: words apart by spaces. A later version may add words at the end.
    pub(super) fn member(&self, rules_version: Option<u64>, state: &str) -> String {
        let Self { id, host, pid, since_millis } = self;
        let rules = rules_version.map_or("-".to_owned(), |version| version.to_string());
        format!("{id} {host} {pid} {} {since_millis} {rules} {state}", env!("CARGO_PKG_VERSION"))
    }
}

impl Instance {
    /// Reads a member of an inventory. `None` for a text that no limiter writes.
    pub(super) fn parse(member: &[u8], last_seen_millis: u64, inventory: &str) -> Option<Self> {
        let text = std::str::from_utf8(member).ok().filter(|text| text.len() <= MAX_MEMBER_BYTES)?;
        let mut words = text.split(' ');
        let mut word = || words.next().filter(|word| !word.is_empty());
        let id = word().filter(|id| is_hex(id, 16))?.to_owned();
        let host = word()?.to_owned();
        let pid = word()?.parse().ok()?;
        let version = word()?.to_owned();
        let since = time(word()?.parse().ok()?)?;
        let rules_version = match word()? {
            "-" => None,
            version => Some(version.parse().ok()?),
        };
        let (state, last_seen) = (word()?.to_owned(), time(last_seen_millis)?);
        Some(Self { id, host, pid, version, since, last_seen, rules_version, state, inventory: inventory.to_owned() })
    }
}

/// Returns whether a text has this number of hex digits in lower case, and nothing else.
pub(super) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name of this host as one word.
fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| env::var("HOSTNAME").ok()).or_else(|| env::var("COMPUTERNAME").ok()).unwrap_or_default();
    let name: String = name.trim().chars().filter(char::is_ascii_graphic).take(MAX_HOST_BYTES).collect();
    if name.is_empty() { "-".to_owned() } else { name }
}

fn millis(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

fn time(millis: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_read_as_it_was_written() {
        let built_at = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let identity = Identity::new(built_at);
        for (rules_version, state) in [(None, "up"), (Some(0), "down"), (Some(u64::MAX), "read_only")] {
            let member = identity.member(rules_version, state);
            assert!(member.len() <= MAX_MEMBER_BYTES, "{member}");
            let read = Instance::parse(member.as_bytes(), 5_000, "digest").expect("a member");
            assert_eq!((&read.id, &read.host, read.pid), (&identity.id, &identity.host, process::id()));
            assert_eq!((read.since, read.last_seen), (built_at, UNIX_EPOCH + Duration::from_secs(5)));
            assert_eq!((read.rules_version, &*read.state, &*read.inventory), (rules_version, state, "digest"));
            let later = format!("{member} and more");
            assert_eq!(Instance::parse(later.as_bytes(), 5_000, "digest"), Some(read));
        }
        assert_ne!(identity.id, Identity::new(built_at).id);
    }

    #[test]
    fn a_text_that_no_limiter_writes_is_none() {
        let valid = "0123456789abcdef web-1 12 0.1.0 17 3 up";
        let longest = format!("{valid} {}", "a".repeat(MAX_MEMBER_BYTES));
        let replaced = |from: &str, to: &str| valid.replacen(from, to, 1);
        let cases = [
            String::new(),
            " ".repeat(9),
            longest,
            replaced("0123456789abcdef", "0123456789ABCDEF"),
            replaced("0123456789abcdef", "0123"),
            replaced("web-1 ", ""),
            replaced(" 12 ", " -12 "),
            replaced(" 17 ", " 18446744073709551615 "),
            replaced(" 17 ", " 18446744073709551616 "),
            replaced(" 3 ", " x "),
            replaced(" up", ""),
        ];
        assert!(Instance::parse(valid.as_bytes(), 0, "").is_some());
        for case in cases.iter().filter(|case| !case.contains("18446744073709551615")) {
            assert_eq!(Instance::parse(case.as_bytes(), 0, ""), None, "{case}");
        }
        assert_eq!(Instance::parse(b"0123456789abcdef \xff 12 0.1.0 17 3 up", 0, ""), None);
        // A time that the system cannot express is none, or a very late one.
        let _ = Instance::parse(cases[7].as_bytes(), u64::MAX, "");
    }
}
