//! A watch on the sentinels that reports when another server becomes the master.
//!
//! A broken connection reveals a master that died. A master that was replaced while alive, or isolated, keeps replying
//! until a sentinel reconfigures it, which takes ten seconds and more. Without this watch, processes would count on
//! different masters for that time.
//!
//! Every sentinel is watched, since only the one that leads a failover announces its steps.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionInfo, ProtocolVersion, PushInfo, PushKind, from_redis_value};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::Error;
use crate::store::redis::command_error::CommandError;
use crate::store::redis::server::connect::{PushListener, connect};
use crate::store::redis::server::failover::{AnnouncedFailover, Announcement, STEP_CHANNELS, SWITCH_CHANNEL};
use crate::store::redis::server::master_address::{MasterAddress, get_master_addr, parse_master_addr};

/// The time limit for a subscription, from the attempt to connect to the last reply.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before a sentinel is subscribed to again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The time between two checks that a subscribed sentinel still replies. A host that vanishes closes no connection.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The time limit for the reply to a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// Tasks that are subscribed to one sentinel each. Dropping it ends them.
pub(super) struct MasterWatch(Vec<JoinHandle<()>>);

/// A master in use that is watched.
#[derive(Clone)]
pub(super) struct WatchedMaster {
    /// Its name for the sentinels.
    pub(super) name: String,
    pub(super) address: MasterAddress,
    /// Notified when its connection is to be closed.
    pub(super) lost: Arc<Notify>,
    pub(super) failover: Arc<AnnouncedFailover>,
}

impl MasterWatch {
    /// Starts tasks that notify `lost` when the master is no longer at this address, or is about to be replaced.
    ///
    /// The first sentinel of the list must be the one that reported the address.
    pub(super) fn start(sentinels: Vec<ConnectionInfo>, master: &WatchedMaster) -> Self {
        Self::start_with(sentinels, master, CHECK_INTERVAL)
    }

    fn start_with(sentinels: Vec<ConnectionInfo>, master: &WatchedMaster, check_interval: Duration) -> Self {
        let watch = |(index, sentinel)| {
            let (master, has_reported) = (master.clone(), index == 0);
            tokio::spawn(SentinelWatch { sentinel, master, has_reported, check_interval }.run())
        };
        Self(sentinels.into_iter().enumerate().map(watch).collect())
    }
}

impl Drop for MasterWatch {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// The watch on one sentinel.
struct SentinelWatch {
    sentinel: ConnectionInfo,
    master: WatchedMaster,
    /// It has reported the address in use.
    has_reported: bool,
    check_interval: Duration,
}

/// The state of the address in use, as far as one sentinel's reply proves it.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    UpToDate,
    Outdated,
    Unknown,
}

impl SentinelWatch {
    /// Subscribes to the sentinel, again whenever the connection is lost. Never returns.
    async fn run(mut self) {
        loop {
            let closed = Arc::new(Notify::new());
            let subscription = self.subscribe(&closed);
            if let Ok(Ok(Some(connection))) = timeout(SUBSCRIBE_TIMEOUT, subscription).await {
                self.check_until_closed(connection, &closed).await;
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Subscribes, and returns the connection. `closed` is notified when it breaks. Returns `None` if the sentinel may
    /// be behind the others.
    ///
    /// Messages published while no connection was subscribed are lost, so each new connection also reads the address.
    async fn subscribe(&mut self, closed: &Arc<Notify>) -> Result<Option<MultiplexedConnection>, Error> {
        let settings = self.sentinel.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = self.sentinel.clone().set_redis_settings(settings);
        let mut connection = connect(info, SUBSCRIBE_TIMEOUT, Some(self.listener(closed))).await?;
        connection.subscribe(SWITCH_CHANNEL).await.map_err(CommandError::from)?;
        // The user of an older release may read the first channel alone.
        let _ = connection.subscribe(&STEP_CHANNELS[..]).await;
        let verdict = self.check(&mut connection).await?;
        Ok((verdict != Verdict::Unknown).then_some(connection))
    }

    /// Repeats the check until the connection breaks, the sentinel does not reply in time, or it may be behind the
    /// others.
    async fn check_until_closed(&mut self, mut connection: MultiplexedConnection, closed: &Notify) {
        while timeout(self.check_interval, closed.notified()).await.is_err() {
            match timeout(CHECK_TIMEOUT, self.check(&mut connection)).await {
                Ok(Ok(Verdict::UpToDate | Verdict::Outdated)) => {}
                Ok(Ok(Verdict::Unknown) | Err(_)) | Err(_) => return,
            }
        }
    }

    /// Reads the address from the sentinel, and notifies `lost` if the address in use is outdated.
    async fn check(&mut self, connection: &mut MultiplexedConnection) -> Result<Verdict, Error> {
        let command = get_master_addr(&self.master.name);
        let reply = connection.send_packed_command(&command).await.map_err(CommandError::from)?;
        let verdict = parse_master_addr(reply).map_or(Verdict::Unknown, |reply| self.evaluate(&reply));
        if verdict == Verdict::Outdated {
            self.master.lost.notify_one();
        }
        Ok(verdict)
    }

    /// Compares the address in use with the sentinel's reply, and records whether they agree.
    ///
    /// A sentinel that reported the address before and now reports another has seen a failover. One that never reported
    /// it may be behind the others, and may report the previous master until it catches up.
    fn evaluate(&mut self, reply: &MasterAddress) -> Verdict {
        let is_same = *reply == self.master.address;
        self.has_reported |= is_same;
        match (is_same, self.has_reported) {
            (true, _) => Verdict::UpToDate,
            (false, true) => Verdict::Outdated,
            (false, false) => Verdict::Unknown,
        }
    }

    fn listener(&self, closed: &Arc<Notify>) -> PushListener {
        let (closed, master) = (Arc::clone(closed), self.master.clone());
        Box::new(move |push: PushInfo| match push.kind {
            PushKind::Disconnection => closed.notify_one(),
            PushKind::Message => {
                let mut texts = push.data.into_iter().map(|text| from_redis_value::<String>(text).ok());
                let (Some(channel), Some(message)) = (texts.next().flatten(), texts.next().flatten()) else { return };
                let announcement = Announcement::parse(&channel, &message, &master.name, &master.address);
                if announcement.is_some_and(|announcement| master.failover.record(announcement, &master.address)) {
                    master.lost.notify_one();
                }
            }
            _ => {}
        })
    }
}

#[cfg(test)]
mod tests;
