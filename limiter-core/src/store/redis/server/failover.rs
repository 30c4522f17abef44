//! The failover of a living master that sentinels have announced.
//!
//! A failover on command promotes a replica while the master still serves. The sentinels name the new master only when
//! they know that it is one, up to a second later. All that the old master counts meanwhile is lost. The sentinel that
//! leads the failover publishes each of its steps, and no two steps come at the same time. So the master is left before
//! the step that promotes the replica.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, RedisResult, Value, cmd, from_redis_value};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// A failover that sentinels have announced and not ended.
#[derive(Debug, Default)]
pub(super) struct AnnouncedFailover {
    announced: Mutex<Option<Announced>>,
    /// Notified when the failover has ended.
    ended: Notify,
}

/// The master that is replaced, and the time of the announcement.
#[derive(Debug)]
struct Announced {
    old: MasterAddress,
    at: Instant,
}

/// An announcement about the master in use, on a channel of a sentinel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Announcement {
    /// A replica is promoted next, or was promoted.
    Promotion,
    /// The failover was given up.
    Aborted,
    /// There is another master.
    Switched,
}

/// The channel of failovers that have ended: the name of the master, its old address and its new one.
pub(super) const SWITCH_CHANNEL: &str = "+switch-master";
/// The channels of their steps: before the promotion, with it, after it, and in place of the end.
pub(super) const STEP_CHANNELS: [&str; 4] =
    [SEND_CHANNEL, "+failover-state-wait-promotion", "+promoted-slave", ABORT_CHANNEL];
const SEND_CHANNEL: &str = "+failover-state-send-slaveof-noone";
const ABORT_CHANNEL: &str = "-failover-abort-slave-timeout";

/// The longest time for which a master is not used because of an announcement. Then the sentinels are believed again.
const MAX_TIME: Duration = Duration::from_secs(10);
/// The time after an announcement for which further ones are ignored, if the failover has not ended in `MAX_TIME`.
const REPEAT_TIME: Duration = Duration::from_secs(60);
/// The time after which the sentinels are queried again, also without an announcement of the end.
const QUERY_PAUSE: Duration = Duration::from_millis(100);

impl AnnouncedFailover {
    /// Records an announcement about the master at this address. Returns whether its connection is to be closed.
    pub(super) fn record(&self, announcement: Announcement, old: &MasterAddress) -> bool {
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        match announcement {
            Announcement::Promotion => {
                let is_known =
                    announced.as_ref().is_some_and(|known| known.old == *old && known.at.elapsed() < REPEAT_TIME);
                if !is_known {
                    *announced = Some(Announced { old: old.clone(), at: Instant::now() });
                }
                !is_known
            }
            Announcement::Aborted => {
                *announced = None;
                self.ended.notify_one();
                false
            }
            Announcement::Switched => {
                self.ended.notify_one();
                true
            }
        }
    }

    /// Returns whether the master at this address is being replaced.
    pub(super) fn replaces(&self, address: &MasterAddress) -> bool {
        let announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        announced.as_ref().is_some_and(|known| known.old == *address && known.at.elapsed() < MAX_TIME)
    }

    /// Returns whether a failover is going on.
    pub(super) fn is_going_on(&self) -> bool {
        let announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        announced.as_ref().is_some_and(|known| known.at.elapsed() < MAX_TIME)
    }

    /// Records that the master at this address is used. A failover of another one has ended.
    pub(super) fn master_used(&self, address: &MasterAddress) {
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        announced.take_if(|known| known.old != *address);
    }

    /// Waits until the sentinels are to be queried again.
    pub(super) async fn ended(&self) {
        let _ = timeout(QUERY_PAUSE, self.ended.notified()).await;
    }
}

impl Announcement {
    /// Returns the meaning of a message for the master of this name and address, if it has one.
    pub(super) fn parse(channel: &str, message: &str, master: &str, (host, port): &MasterAddress) -> Option<Self> {
        match channel {
            // A late message may announce the address that is already in use.
            SWITCH_CHANNEL => {
                let is_other =
                    message.starts_with(&format!("{master} ")) && !message.ends_with(&format!(" {host} {port}"));
                is_other.then_some(Self::Switched)
            }
            ABORT_CHANNEL => (message == format!("master {master} {host} {port}")).then_some(Self::Aborted),
            _ if STEP_CHANNELS.contains(&channel) => {
                message.ends_with(&format!(" @ {master} {host} {port}")).then_some(Self::Promotion)
            }
            _ => None,
        }
    }
}

// The address of a master, as a sentinel reports it.

/// A host name or IP address, and a port.
pub(super) type MasterAddress = (String, u16);

/// Builds the command that returns the address of a master, or nil if the sentinel does not monitor that name.
pub(super) fn get_master_addr(master: &str) -> Cmd {
    cmd("SENTINEL").arg("get-master-addr-by-name").arg(master).clone()
}

pub(super) fn parse_master_addr(reply: Value) -> RedisResult<MasterAddress> {
    Ok(from_redis_value(reply)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> MasterAddress {
        ("127.0.0.1".to_owned(), port)
    }

    #[test]
    fn announcements_of_other_masters_mean_nothing() {
        let parse = |channel, message| Announcement::parse(channel, message, "mymaster", &address(1));
        let step = "slave 127.0.0.1:2 127.0.0.1 2 @ mymaster 127.0.0.1 1";
        for channel in &STEP_CHANNELS[..3] {
            assert_eq!(parse(channel, step), Some(Announcement::Promotion));
            assert_eq!(parse(channel, "slave 127.0.0.1:2 127.0.0.1 2 @ other 127.0.0.1 1"), None);
            assert_eq!(parse(channel, "slave 127.0.0.1:1 127.0.0.1 1 @ mymaster 127.0.0.1 2"), None);
            assert_eq!(parse(channel, ""), None);
        }
        assert_eq!(parse(ABORT_CHANNEL, "master mymaster 127.0.0.1 1"), Some(Announcement::Aborted));
        assert_eq!(parse(ABORT_CHANNEL, "master other 127.0.0.1 1"), None);
        assert_eq!(parse(SWITCH_CHANNEL, "mymaster 127.0.0.1 1 127.0.0.1 2"), Some(Announcement::Switched));
        assert_eq!(parse(SWITCH_CHANNEL, "mymaster 127.0.0.1 2 127.0.0.1 1"), None);
        assert_eq!(parse(SWITCH_CHANNEL, "mymaster2 127.0.0.1 1 127.0.0.1 2"), None);
        assert_eq!(parse("+sdown", step), None);
    }

    /// A sentinel that announces failovers again and again must not keep the master from being used.
    #[tokio::test(start_paused = true)]
    async fn master_is_used_again_after_an_abort_and_when_its_failover_does_not_end() {
        let (failover, old) = (AnnouncedFailover::default(), address(1));
        assert!(!failover.replaces(&old));
        for _ in 0..3 {
            assert!(failover.record(Announcement::Promotion, &old));
            assert!(!failover.record(Announcement::Promotion, &old), "the next step of the same failover");
            assert!(failover.replaces(&old) && !failover.replaces(&address(2)));
            failover.record(Announcement::Aborted, &old);
            assert!(!failover.replaces(&old));
        }
        assert!(failover.record(Announcement::Promotion, &old));
        tokio::time::advance(MAX_TIME - Duration::from_millis(1)).await;
        assert!(failover.replaces(&old));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!failover.replaces(&old));
        assert!(!failover.record(Announcement::Promotion, &old) && !failover.replaces(&old));
        tokio::time::advance(REPEAT_TIME).await;
        assert!(failover.record(Announcement::Promotion, &old) && failover.replaces(&old));
    }
}
