//! The other side: a service of the Spring system, in our own words and with its defects.

use limiter_testkit::{Client, Random, RedisServer};

/// The count includes entries that are over: they are trimmed only when the set seems full, up to the cut-off and with it.
/// The expiry is set before the entry is added, so a set that the trim has emptied has none.
const SCRIPT: &str = "
    local set, now, window, max, expired, member = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
    local adds_after_trim = ARGV[6] == '1'
    if redis.call('ZCARD', set) < max then
        redis.call('ZADD', set, now, member)
        redis.call('PEXPIRE', set, window + 1000)
        return 200
    end
    redis.call('ZREMRANGEBYSCORE', set, 0, expired)
    local left = redis.call('ZCARD', set)
    redis.call('PEXPIRE', set, window + 1000)
    if left < max then
        if adds_after_trim then redis.call('ZADD', set, now, member) end
        return 200
    end
    return 500";

/// A state of that system, which has no releases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Version {
    /// 17 January to 26 February 2022: a call that finds room only by trimming is allowed without an entry.
    January2022,
    /// Since 26 February 2022, the last one: each allowed call has an entry.
    Last,
}

/// A host with a limiter of that system.
pub(super) struct Spring {
    client: Client,
    version: Version,
    /// The IPv4 address without its dots.
    address: String,
    random: Random,
}

impl Spring {
    /// A host with the last version.
    pub(super) fn on(server: &RedisServer) -> Self {
        let client = server.client().expect("the server is there");
        Self { client, version: Version::Last, address: "19216817".to_owned(), random: Random::new(7) }
    }

    /// The same host with another version.
    pub(super) fn version(self, version: Version) -> Self {
        Self { version, ..self }
    }

    /// The same host with another address: all draw the same random numbers.
    pub(super) fn address(self, address: &str) -> Self {
        Self { address: address.replace('.', ""), ..self }
    }

    /// Its clock is its own, and in whole milliseconds.
    pub(super) fn allows(&mut self, name: &str, now_ms: u64, window_ms: u64, max: u32) -> bool {
        let (set, expired) = (format!("CurrentLimiter:{name}"), now_ms.saturating_sub(window_ms));
        // Stored with the quotes of a JSON text.
        let (address, random) = (&self.address, (self.random.below(100), self.random.below(1 << 50)));
        let member = format!("\"{address}{now_ms}{}.{}\"", random.0, random.1);
        let numbers = [now_ms, window_ms, u64::from(max), expired].map(|number| number.to_string());
        let [now, window, max, expired] = &numbers;
        let adds_after_trim = if self.version == Version::Last { "1" } else { "0" };
        let call = ["EVAL", SCRIPT, "1", &set, now, window, max, expired, &member, adds_after_trim];
        self.client.call(&call).expect("the server answers").integer() == 200
    }
}
