//! Masters and sentinels that go, come back and are replaced.

use std::time::{Duration, Instant};

use super::settle::seen;
use super::{NAME, Sentinels};
use crate::nodes::{NodeId, Promotion};
use crate::wait;

/// The time that a failover may take: far more than one vote without a majority before it, or a sentinel that was not
/// scheduled for two seconds and does nothing for thirty (TILT).
const LIMIT: Duration = Duration::from_secs(120);

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
    /// That is not so within 120 s: with the ends of the logs.
    #[must_use]
    pub fn wait_for_promotion(&self, fallen: NodeId) -> Promotion {
        let mut first = None;
        let promoted = || self.promotion(fallen, &mut first);
        wait::until("a promotion that every sentinel knows", LIMIT, || self.log_tails(), promoted)
    }

    /// Has the sentinels replace a master that is alive (`SENTINEL FAILOVER`), and waits until every one says so. The
    /// old master becomes a replica: [`settle`](Self::settle) waits for that. A failover that is refused or aborted, as
    /// on a machine under load, is started again.
    ///
    /// # Panics
    ///
    /// They are not done within 120 s: with the ends of the logs.
    #[must_use]
    pub fn fail_over(&self) -> Promotion {
        let old = self.master();
        let mut first = None;
        let promoted = || {
            self.promotion(old, &mut first).or_else(|reason| {
                self.start_failover(old)?;
                Err(reason)
            })
        };
        wait::until("a failover on command that every sentinel knows", LIMIT, || self.log_tails(), promoted)
    }

    /// The promotion of another server than this one, if every sentinel that runs knows it. `first` is the latest master
    /// and when it was first seen as such.
    fn promotion(&self, fallen: NodeId, first: &mut Option<Promotion>) -> Result<Promotion, String> {
        let master = self.master_but(fallen)?;
        let promotion = match *first {
            Some(promotion) if promotion.master == master => promotion,
            _ => *first.insert(Promotion { master, at: Instant::now() }),
        };
        for (_, sentinel) in self.sentinels.running() {
            let said = self.master_by(sentinel)?;
            if said != master {
                return Err(format!("a sentinel says {said:?}, not {master:?}"));
            }
        }
        Ok(promotion)
    }

    /// A server other than this one that says it is a master.
    fn master_but(&self, fallen: NodeId) -> Result<NodeId, String> {
        for (node, server) in self.nodes.running().filter(|(node, _)| *node != fallen) {
            if server.ask(&["INFO", "replication"])?.text().contains("role:master") {
                return Ok(node);
            }
        }
        Err(format!("no server is a master but {fallen:?}"))
    }

    /// Starts a failover at the first sentinel that acts, if it names this master and has none under way.
    fn start_failover(&self, old: NodeId) -> Result<(), String> {
        for (_, sentinel) in self.sentinels.running() {
            // In TILT mode it would begin a failover and not go on with it.
            if !sentinel.ask(&["INFO", "sentinel"])?.text().contains("sentinel_tilt:0") {
                continue;
            }
            // The flags first: a failover that is under way may end before the next question.
            let flags = seen(sentinel.ask(&["SENTINEL", "MASTER", NAME])?).remove("flags").unwrap_or_default();
            if !flags.contains("failover_in_progress") && self.master_by(sentinel)? == old {
                sentinel.ask(&["SENTINEL", "FAILOVER", NAME])?;
            }
            return Ok(());
        }
        Err("every sentinel is in TILT mode".to_owned())
    }
}
