//! The versions of the peers, from the lock file of this build.

const LOCK: &str = include_str!("../../../Cargo.lock");

const PEERS: [&str; 5] = ["governor", "trypema", "throttlecrab", "skp-ratelimit", "tower-rate-limit-redis"];

/// Returns names and versions, such as `governor 0.10.4, …`.
#[must_use]
pub fn peer_versions() -> String {
    let with_version = |name: &&str| format!("{name} {}", version(LOCK, name).unwrap_or("of no known version"));
    PEERS.iter().map(with_version).collect::<Vec<_>>().join(", ")
}

fn version<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let rest = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?.1;
    Some(rest.split_once('"')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_a_version() {
        assert_eq!(version("[[package]]\nname = \"a\"\nversion = \"1.2.3\"\n", "a"), Some("1.2.3"));
        assert!(!peer_versions().contains("no known version"), "{}", peer_versions());
    }
}
