//! A client that behaves like a service of the Spring system, with its defects.

use limiter_testkit::{Client, Random, RedisServer};

/// The script of the Spring system. Its count includes expired entries, which it trims only when the set seems full, up
/// to and including the cut-off. It sets the expiry before it adds the entry, so a set that the trim emptied has none.
const SCRIPT: &str = "
    local set, now, window, max = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
    local expired, member = ARGV[4], ARGV[5]
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

/// A version of that system, which has no releases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Version {
    /// The version of 17 January to 26 February 2022. A call that finds room only by a trim gets no entry.
    January2022,
    /// The last version, since 26 February 2022. Each allowed call has an entry.
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
    /// Creates a host with the last version.
    pub(super) fn connect(server: &RedisServer) -> Self {
        let client = server.client().expect("the server is there");
        Self { client, version: Version::Last, address: "19216817".to_owned(), random: Random::new(7) }
    }

    /// Returns the same host with another version.
    pub(super) fn version(self, version: Version) -> Self {
        Self { version, ..self }
    }

    /// Returns the same host with another address. All hosts draw the same random numbers.
    pub(super) fn address(self, address: &str) -> Self {
        Self { address: address.replace('.', ""), ..self }
    }

    /// Makes a call at a time of the host's clock, and returns whether it is allowed.
    pub(super) fn allows(&mut self, name: &str, now_ms: u64, window_ms: u64, max: u32) -> bool {
        let (set, expired) = (format!("CurrentLimiter:{name}"), now_ms.saturating_sub(window_ms));
        // Members are stored as JSON strings, with their quotes.
        let (address, random) = (&self.address, (self.random.below(100), self.random.below(1 << 50)));
        let member = format!("\"{address}{now_ms}{}.{}\"", random.0, random.1);
        let numbers = [now_ms, window_ms, u64::from(max), expired].map(|number| number.to_string());
        let [now, window, max, expired] = &numbers;
        let adds_after_trim = if self.version == Version::Last { "1" } else { "0" };
        let call = ["EVAL", SCRIPT, "1", &set, now, window, max, expired, &member, adds_after_trim];
        self.client.call(&call).expect("the server answers").integer() == 200
    }
}
