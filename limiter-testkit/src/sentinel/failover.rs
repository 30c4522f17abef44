//! Kills, pauses and restarts servers and sentinels, and waits for failovers.

use std::time::{Duration, Instant};

use super::settle::parse_fields;
use super::{MASTER_NAME, Sentinels};
use crate::nodes::{NodeId, Promotion};
use crate::wait;

/// The time in which a failover must complete. It allows for a vote without a majority, and for a sentinel in TILT
/// mode: one that was not scheduled for two seconds does nothing for thirty.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(120);

impl Sentinels {
    /// Kills a data server (`SIGKILL`). All its connections and data are lost.
    pub fn kill(&mut self, node: NodeId) {
        self.nodes.kill(node);
    }

    /// Stops a data server (`SIGSTOP`). The sentinels consider it down.
    ///
    /// # Panics
    ///
    /// The server has been killed.
    pub fn pause(&mut self, node: NodeId) {
        self.nodes.pause(node);
    }

    /// Continues a paused server. If it was replaced, it acts as a second master until the sentinels reconfigure it.
    ///
    /// # Panics
    ///
    /// The server has been killed.
    pub fn resume(&mut self, node: NodeId) {
        self.nodes.resume(node);
    }

    /// Restarts a server at the same address, with no data and in its last role. If it was replaced, it acts as a
    /// second master until the sentinels reconfigure it. [`settle`](Self::settle) waits for that, which takes up to 20
    /// s with Redis 6.2.
    ///
    /// # Panics
    ///
    /// The server does not reply in time.
    pub fn restart(&mut self, node: NodeId) {
        self.nodes.restart(node);
    }

    /// Kills a sentinel (`SIGKILL`). Two sentinels can still replace a master, one cannot.
    pub fn kill_sentinel(&mut self, sentinel: NodeId) {
        self.sentinels.kill(sentinel);
    }

    /// Restarts a sentinel with its state.
    ///
    /// # Panics
    ///
    /// The sentinel does not reply in time.
    pub fn restart_sentinel(&mut self, sentinel: NodeId) {
        self.sentinels.restart(sentinel);
        self.shorten_periods(sentinel);
    }

    /// Waits until another server has replaced this master and every running sentinel reports it.
    ///
    /// # Panics
    ///
    /// There is no such promotion within 120 s. The message has the ends of the logs.
    #[must_use]
    pub fn wait_for_promotion(&self, fallen: NodeId) -> Promotion {
        let mut first = None;
        let promoted = || self.promotion(fallen, &mut first);
        wait::poll_until("a promotion that every sentinel knows", FAILOVER_TIMEOUT, || self.log_tails(), promoted)
    }

    /// Makes the sentinels replace a running master (`SENTINEL FAILOVER`), and waits until every sentinel reports it. A
    /// failover that is rejected or aborted, as on a machine under load, is started again.
    ///
    /// The old master becomes a replica a moment later: [`settle`](Self::settle) waits for that.
    ///
    /// # Panics
    ///
    /// The failover does not complete within 120 s. The message has the ends of the logs.
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
        wait::poll_until(
            "a failover on command that every sentinel knows",
            FAILOVER_TIMEOUT,
            || self.log_tails(),
            promoted,
        )
    }

    /// Returns the promotion of a server other than this one, if every running sentinel reports it. `first` keeps the
    /// latest master and the time at which it was first seen.
    fn promotion(&self, fallen: NodeId, first: &mut Option<Promotion>) -> Result<Promotion, String> {
        let master = self.master_except(fallen)?;
        let promotion = match *first {
            Some(promotion) if promotion.master == master => promotion,
            _ => *first.insert(Promotion { master, at: Instant::now() }),
        };
        for (_, sentinel) in self.sentinels.running() {
            let reported = self.master_reported_by(sentinel)?;
            if reported != master {
                return Err(format!("a sentinel reports {reported:?}, not {master:?}"));
            }
        }
        Ok(promotion)
    }

    /// Returns a server other than this one that reports the role of a master.
    fn master_except(&self, fallen: NodeId) -> Result<NodeId, String> {
        for (node, server) in self.nodes.running().filter(|(node, _)| *node != fallen) {
            if server.query(&["INFO", "replication"])?.text().contains("role:master") {
                return Ok(node);
            }
        }
        Err(format!("no server except {fallen:?} is a master"))
    }

    /// Starts a failover at the first sentinel that is not in TILT mode, if it reports this master and has no failover
    /// in progress.
    fn start_failover(&self, old: NodeId) -> Result<(), String> {
        for (_, sentinel) in self.sentinels.running() {
            // A sentinel in TILT mode would start a failover and not continue it.
            if !sentinel.query(&["INFO", "sentinel"])?.text().contains("sentinel_tilt:0") {
                continue;
            }
            // The flags are read first, because a failover in progress may end before the next command.
            let flags =
                parse_fields(sentinel.query(&["SENTINEL", "MASTER", MASTER_NAME])?).remove("flags").unwrap_or_default();
            if !flags.contains("failover_in_progress") && self.master_reported_by(sentinel)? == old {
                sentinel.query(&["SENTINEL", "FAILOVER", MASTER_NAME])?;
            }
            return Ok(());
        }
        Err("every sentinel is in TILT mode".to_owned())
    }
}
