//! A client that calls Redis as a service of the Spring system does, in its last version.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rate_limited::Limit;
use redis::{Connection, RedisResult};

/// The Spring system trims a set only when that seems full, and stamps each call by the clock of its host.
///
/// KEYS: the set. ARGV: the time, the window and the cut-off in milliseconds, the limit, the new member.
/// Returns 200 for an allowed call and 500 for a denied one.
const SCRIPT: &str = "
    local set, now, window, cut_off = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
    local max, member = tonumber(ARGV[4]), ARGV[5]
    local is_full = redis.call('ZCARD', set) >= max
    if is_full then
        redis.call('ZREMRANGEBYSCORE', set, 0, cut_off)
        redis.call('PEXPIRE', set, window + 1000)
        if redis.call('ZCARD', set) >= max then return 500 end
    end
    redis.call('ZADD', set, now, member)
    if not is_full then redis.call('PEXPIRE', set, window + 1000) end
    return 200";

/// The time for a connection, and for a reply.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A service in Java.
pub(crate) struct JavaService {
    connection: Connection,
    /// The part of the members that differs between the hosts.
    host: String,
    calls: u64,
}

impl JavaService {
    pub(crate) fn connect(redis: &str, number: u32) -> RedisResult<Self> {
        let connection = redis::Client::open(redis)?.get_connection_with_timeout(TIMEOUT)?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        connection.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { connection, host: format!("{}.{number}.", std::process::id()), calls: 0 })
    }

    /// Makes a call, and returns whether it is allowed.
    pub(crate) fn call(&mut self, name: &str, limit: &Limit) -> RedisResult<bool> {
        self.calls += 1;
        let (now, window) = (unix_millis(), limit.window().as_millis());
        let status: u32 = redis::cmd("EVAL")
            .arg(SCRIPT)
            .arg(1)
            .arg(format!("CurrentLimiter:{name}"))
            .arg(now.to_string())
            .arg(window.to_string())
            .arg(now.saturating_sub(window).to_string())
            .arg(limit.max())
            .arg(format!("\"{}{now}.{}\"", self.host, self.calls))
            .query(&mut self.connection)?;
        Ok(status == 200)
    }

    /// Returns by how many milliseconds the clock of Redis is ahead of this host's. It is known within a call's time.
    pub(crate) fn clock_difference(&mut self) -> RedisResult<i128> {
        let before = unix_millis();
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut self.connection)?;
        let here = i128::try_from((before + unix_millis()) / 2).unwrap_or(i128::MAX);
        Ok(i128::from(seconds * 1_000 + micros / 1_000) - here)
    }
}

/// Returns the time of this host's clock, as `System.currentTimeMillis()` does.
fn unix_millis() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}
