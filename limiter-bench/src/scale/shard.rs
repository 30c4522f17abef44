//! The cluster of the run: one master that holds counts, and empty ones.

use std::panic;
use std::time::Duration;

use limiter_testkit::{Client, Cluster, NodeId};

use super::MASTERS;
use super::names::shard_slots;
use crate::contestant::{Failure, failed};
use crate::server::panic_message;

/// The milliseconds after which a silent master is considered dead. A full one may be silent while it grows its tables.
/// While the cluster forms it is short: masters report their slots about that often.
const NODE_TIMEOUT_MS: &str = "30000";
/// The same while fifteen servers start at a time.
const FIRST_NODE_TIMEOUT: Duration = Duration::from_secs(3);

/// The cluster, and the client that reads the figures of its full master. All servers end when this value is dropped.
#[derive(Debug)]
pub struct Shard {
    cluster: Cluster,
    client: Client,
    /// The process of the full master.
    pub(super) process: u32,
}

/// The figures of the full master at one instant.
#[derive(Debug, Clone, Copy, Default)]
pub struct MasterFigures {
    /// The memory in use, in bytes.
    pub used_memory: u64,
    /// The keys.
    pub keys: u64,
    /// The keys that have expired since its start.
    pub expired: u64,
    /// The script calls since its start.
    pub script_calls: u64,
}

impl Shard {
    /// Starts the masters. Each refuses writes above this many bytes of memory, and keeps nothing on a disk.
    ///
    /// # Errors
    ///
    /// They do not start, or form no cluster. The failure is one line.
    pub fn start(max_memory: u64) -> Result<Self, Failure> {
        let start = move || {
            let cluster =
                Cluster::builder().masters(usize::from(MASTERS)).masters_only().node_timeout(FIRST_NODE_TIMEOUT);
            cluster.setting("maxmemory", &max_memory.to_string()).setting("maxmemory-policy", "noeviction").start()
        };
        let hook = panic::take_hook();
        panic::set_hook(Box::new(|_| {})); // the failure below has its message
        let started = panic::catch_unwind(start);
        panic::set_hook(hook);
        let cluster = started.map_err(|payload| failed(panic_message(&*payload)))?;
        for node in cluster.nodes() {
            cluster.server(node).command(&["CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MS]);
        }
        let full = cluster.master_of(shard_slots().start);
        let client = cluster.server(full).client().map_err(failed)?;
        let mut shard = Self { cluster, client, process: 0 };
        shard.check_slots(full)?;
        shard.process = shard.figure("server", "process_id:")?;
        Ok(shard)
    }

    fn check_slots(&self, full: NodeId) -> Result<(), Failure> {
        let (owned, expected) = (self.cluster.slots_of(full), shard_slots());
        if owned == [expected.start..=expected.end - 1] {
            return Ok(());
        }
        Err(format!("the full master owns the slots {owned:?}, and the names are those of {expected:?}"))
    }

    /// Returns the URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        self.cluster.url()
    }

    /// Returns the version, such as `7.0`.
    #[must_use]
    pub fn version(&self) -> String {
        let (major, minor) = self.cluster.server(self.cluster.master_of(0)).version();
        format!("{major}.{minor}")
    }

    /// Returns the figures of the full master.
    ///
    /// # Errors
    ///
    /// It does not reply.
    pub fn figures(&mut self) -> Result<MasterFigures, Failure> {
        let calls = self.info("commandstats")?;
        let calls = calls.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next());
        let script_calls = calls.map_or(Ok(0), str::parse).map_err(failed)?;
        let keys = self.client.call(&["DBSIZE"]).map_err(failed)?.integer();
        Ok(MasterFigures {
            used_memory: self.figure("memory", "used_memory:")?,
            keys: u64::try_from(keys).map_err(failed)?,
            expired: self.figure("stats", "expired_keys:")?,
            script_calls,
        })
    }

    fn figure<T: std::str::FromStr<Err: std::fmt::Display>>(
        &mut self,
        section: &str,
        name: &str,
    ) -> Result<T, Failure> {
        let text = self.info(section)?;
        let figure = text.lines().find_map(|line| line.strip_prefix(name));
        figure.ok_or_else(|| format!("INFO without {name}"))?.trim().parse().map_err(failed)
    }

    fn info(&mut self, section: &str) -> Result<String, Failure> {
        Ok(self.client.call(&["INFO", section]).map_err(failed)?.text())
    }
}
