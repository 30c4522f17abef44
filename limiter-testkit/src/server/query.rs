//! Queries to a server that may not be ready yet.

use super::RedisServer;
use crate::resp::Reply;

impl RedisServer {
    /// Runs a command and returns its reply, or the reason why there is none yet.
    pub(crate) fn query(&self, command: &[&str]) -> Result<Reply, String> {
        match self.try_command(command) {
            Ok(Reply::Error(message)) => Err(format!("{:?} rejects {command:?}: {message}", self.address())),
            Ok(reply) => Ok(reply),
            Err(error) => Err(format!("{:?} fails at {command:?}: {error}", self.address())),
        }
    }

    /// Returns this master's replication offset: the bytes that it has written for its replicas.
    pub(crate) fn master_offset(&self) -> Result<u64, String> {
        self.replication_offset("master_repl_offset")
    }

    /// Returns `Ok` if this replica has all data up to that offset of its master.
    pub(crate) fn check_replicated_to(&self, master_offset: u64) -> Result<(), String> {
        let replication = self.query(&["INFO", "replication"])?.text();
        if !replication.contains("role:slave") || !replication.contains("master_link_status:up") {
            return Err(format!("{:?} does not follow: {replication}", self.address()));
        }
        match self.replication_offset("slave_repl_offset")? {
            offset if offset < master_offset => Err(format!("{:?} is at {offset} of {master_offset}", self.address())),
            _ => Ok(()),
        }
    }

    fn replication_offset(&self, name: &str) -> Result<u64, String> {
        let replication = self.query(&["INFO", "replication"])?.text();
        let offset = replication.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok());
        offset.ok_or_else(|| format!("no {name} in {replication}"))
    }
}
