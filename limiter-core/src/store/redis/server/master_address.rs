//! The address of a master, as a sentinel reports it.

use redis::{Cmd, RedisResult, Value, cmd, from_redis_value};

/// A host name or IP address, and a port.
pub(super) type MasterAddress = (String, u16);

/// Builds the command that returns the address of a master, or nil if the sentinel does not monitor that name.
pub(super) fn get_master_addr(master: &str) -> Cmd {
    cmd("SENTINEL").arg("get-master-addr-by-name").arg(master).clone()
}

pub(super) fn parse_master_addr(reply: Value) -> RedisResult<MasterAddress> {
    Ok(from_redis_value(reply)?)
}
