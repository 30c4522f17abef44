//! Questions to a server that may have no answer yet.

use super::RedisServer;
use crate::resp::Reply;

impl RedisServer {
    /// A reply, or why there is none just now.
    pub(crate) fn ask(&self, command: &[&str]) -> Result<Reply, String> {
        match self.try_command(command) {
            Ok(Reply::Error(message)) => Err(format!("{:?} refuses {command:?}: {message}", self.address())),
            Ok(reply) => Ok(reply),
            Err(error) => Err(format!("{:?} fails at {command:?}: {error}", self.address())),
        }
    }

    /// How much of what this master wrote there is to replicate, in bytes.
    pub(crate) fn written(&self) -> Result<u64, String> {
        self.offset("master_repl_offset")
    }

    /// Whether this replica has all that its master had written at that offset.
    pub(crate) fn is_in_step_with(&self, written: u64) -> Result<(), String> {
        let replication = self.ask(&["INFO", "replication"])?.text();
        if !replication.contains("role:slave") || !replication.contains("master_link_status:up") {
            return Err(format!("{:?} does not follow: {replication}", self.address()));
        }
        match self.offset("slave_repl_offset")? {
            offset if offset < written => Err(format!("{:?} is at {offset} of {written}", self.address())),
            _ => Ok(()),
        }
    }

    fn offset(&self, name: &str) -> Result<u64, String> {
        let replication = self.ask(&["INFO", "replication"])?.text();
        let offset = replication.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok());
        offset.ok_or_else(|| format!("no {name} in {replication}"))
    }
}
