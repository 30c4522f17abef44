//! Masters and sentinels that go, come back and are replaced.

use std::time::{Duration, Instant};

use super::{NAME, Sentinels};
use crate::nodes::{NodeId, Promotion};
use crate::wait;

/// How long the sentinels may take, with one vote without a majority before.
const LIMIT: Duration = Duration::from_secs(20);

impl Sentinels {
    /// Ends a server that has the data at once (`SIGKILL`), and with it all connections and data.
    pub fn kill(&mut self, node: NodeId) {
        self.nodes.kill(node);
    }

    /// Stops a server that has the data as it is (`SIGSTOP`). The sentinels hold it for dead.
    ///
    /// # Panics
    ///
    /// It has been killed.
    pub fn pause(&mut self, node: NodeId) {
        self.nodes.pause(node);
    }

    /// Lets a paused server go on. If it was replaced, it is a master like the new one until the sentinels see it.
    ///
    /// # Panics
    ///
    /// It has been killed.
    pub fn resume(&mut self, node: NodeId) {
        self.nodes.resume(node);
    }

    /// Starts a server anew at the same address, with no data and in its last role. If it was replaced, it is a master
    /// like the new one until the sentinels see it: [`settle`](Self::settle) waits for that, with Redis 6.2 up to 20 s.
    ///
    /// # Panics
    ///
    /// It does not answer within 5 s.
    pub fn restart(&mut self, node: NodeId) {
        self.nodes.restart(node);
    }

    /// Ends a sentinel at once (`SIGKILL`). Two can still replace a master, one cannot.
    pub fn kill_sentinel(&mut self, sentinel: NodeId) {
        self.sentinels.kill(sentinel);
    }

    /// Starts a sentinel anew; it remembers what it knew.
    ///
    /// # Panics
    ///
    /// It does not answer within 5 s.
    pub fn restart_sentinel(&mut self, sentinel: NodeId) {
        self.sentinels.restart(sentinel);
        self.make_quick(sentinel);
    }

    /// Waits until another server is the master in place of this one, and every sentinel that runs says so.
    ///
    /// # Panics
    ///
    /// That is not so within 20 s: with the ends of the logs.
    #[must_use]
    pub fn wait_for_promotion(&self, fallen: NodeId) -> Promotion {
        let logs = || self.log_tails();
        let master = wait::until("a promotion", LIMIT, logs, || {
            for (node, server) in self.nodes.running().filter(|(node, _)| *node != fallen) {
                if server.ask(&["INFO", "replication"])?.text().contains("role:master") {
                    return Ok(node);
                }
            }
            Err(format!("nobody is a master but {fallen:?}"))
        });
        let at = Instant::now();
        wait::until("every sentinel knows of the promotion", LIMIT, logs, || {
            for (_, sentinel) in self.sentinels.running() {
                let said = self.master_by(sentinel)?;
                if said != master {
                    return Err(format!("a sentinel says {said:?}, not {master:?}"));
                }
            }
            Ok(())
        });
        Promotion { master, at }
    }

    /// Has the sentinels replace a master that is alive (`SENTINEL FAILOVER`), and waits until every one says so. The
    /// old master becomes a replica: [`settle`](Self::settle) waits for that.
    ///
    /// # Panics
    ///
    /// They refuse, which they do during another failover, or are not done within 20 s: with the ends of the logs.
    pub fn fail_over(&self) -> Promotion {
        let old = self.master();
        let (_, sentinel) = self.sentinels.running().next().expect("a sentinel that runs");
        sentinel.command(&["SENTINEL", "FAILOVER", NAME]);
        self.wait_for_promotion(old)
    }
}
