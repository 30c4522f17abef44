//! The other side: what a service of the Spring system does, in its own words.

use limiter_testkit::{Client, Random, RedisServer};

/// Counts first, and trims only when it seems full: then the set's expiry is set before the entry is added.
const SCRIPT: &str = "
    local set, now, window, max, expired, member = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
    if redis.call('ZCARD', set) < max then
        redis.call('ZADD', set, now, member)
        redis.call('PEXPIRE', set, window + 1000)
        return 200
    end
    redis.call('ZREMRANGEBYSCORE', set, 0, expired)
    local left = redis.call('ZCARD', set)
    redis.call('PEXPIRE', set, window + 1000)
    if left < max then
        redis.call('ZADD', set, now, member)
        return 200
    end
    return 500";

/// A host with a limiter of that system.
pub(super) struct Spring {
    client: Client,
    random: Random,
}

impl Spring {
    pub(super) fn on(server: &RedisServer) -> Self {
        Self { client: server.client().expect("the server is there"), random: Random::new(7) }
    }

    /// Its clock is its own, and in whole milliseconds.
    pub(super) fn allows(&mut self, name: &str, now_ms: u64, window_ms: u64, max: u32) -> bool {
        let (set, expired) = (format!("CurrentLimiter:{name}"), now_ms.saturating_sub(window_ms));
        let member = format!("\"19216817{now_ms}{}.{}\"", self.random.below(100), self.random.below(1 << 50));
        let numbers = [now_ms, window_ms, u64::from(max), expired].map(|number| number.to_string());
        let [now, window, max, expired] = &numbers;
        let call = ["EVAL", SCRIPT, "1", &set, now, window, max, expired, &member];
        self.client.call(&call).expect("the server answers").integer() == 200
    }
}
