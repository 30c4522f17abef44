//! A semaphore in a sorted set, with an entry for each call: a script takes a slot and another one returns it.

use redis::Script;
use redis::aio::MultiplexedConnection;

use crate::contestant::{Failure, failed};

const ENTER: &str = r"
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
";
const LEAVE: &str = "return redis.call('ZREM', KEYS[1], ARGV[1])";

/// The time after which the slot of a process that has died is free, in milliseconds.
const SLOT_TIME: u64 = 10_000;

#[derive(Clone)]
pub(super) struct Semaphore {
    connection: MultiplexedConnection,
    enter: Script,
    leave: Script,
    slots: u32,
}

impl Semaphore {
    /// One connection serves all tasks, as in `rate-limited`.
    pub(super) async fn connect(url: &str, slots: u32) -> Result<Self, Failure> {
        let client = redis::Client::open(url).map_err(failed)?;
        let mut connection = client.get_multiplexed_async_connection().await.map_err(failed)?;
        let (enter, leave) = (Script::new(ENTER), Script::new(LEAVE));
        enter.load_async(&mut connection).await.map_err(failed)?;
        leave.load_async(&mut connection).await.map_err(failed)?;
        Ok(Self { connection, enter, leave, slots })
    }

    pub(super) async fn enter_and_leave(&self, call: u64) -> Result<(), Failure> {
        let mut connection = self.connection.clone();
        let mut enter = self.enter.key("semaphore");
        enter.arg(self.slots).arg(SLOT_TIME).arg(call);
        let entered: u8 = enter.invoke_async(&mut connection).await.map_err(failed)?;
        let left: u8 = self.leave.key("semaphore").arg(call).invoke_async(&mut connection).await.map_err(failed)?;
        if (entered, left) == (1, 1) { Ok(()) } else { Err("the semaphore has too few slots".to_owned()) }
    }
}
