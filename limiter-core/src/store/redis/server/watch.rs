//! A watch on the sentinels that reports when another server becomes the master.
//!
//! A broken connection reveals a master that died. A master that was replaced while alive, or isolated, keeps replying
//! until a sentinel reconfigures it, which takes ten seconds and more. Without this watch, processes would count on
//! different masters for that time.

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
use crate::store::redis::server::master_address::{MasterAddress, get_master_addr, parse_master_addr};

/// The channel on which sentinels publish a failover: the master's name, its old address and its new one.
const SWITCH_MASTER_CHANNEL: &str = "+switch-master";

/// The time limit for a subscription, from the attempt to connect to the last reply.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before the next sentinel is subscribed to.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The time between two checks that a subscribed sentinel still replies. A host that vanishes closes no connection.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The time limit for the reply to a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// A task that is subscribed to one sentinel at a time. Dropping it ends the task.
pub(super) struct MasterWatch(JoinHandle<()>);

impl MasterWatch {
    /// Starts a task that notifies `lost` when the master is no longer at this address.
    ///
    /// The first sentinel of the list must be the one that reported the address.
    pub(super) fn start(
        sentinels: Vec<ConnectionInfo>,
        master: String,
        address: MasterAddress,
        lost: Arc<Notify>,
    ) -> Self {
        let reports = AddressReports::new(address, sentinels.len());
        let state = WatchState { master, reports, lost, check_interval: CHECK_INTERVAL };
        Self::spawn(sentinels, state)
    }

    fn spawn(sentinels: Vec<ConnectionInfo>, mut state: WatchState) -> Self {
        Self(tokio::spawn(async move {
            loop {
                for (index, sentinel) in sentinels.iter().enumerate() {
                    let closed = Arc::new(Notify::new());
                    let subscription = state.subscribe(index, sentinel, &closed);
                    if let Ok(Ok(Some(connection))) = timeout(SUBSCRIBE_TIMEOUT, subscription).await {
                        state.check_until_closed(index, connection, &closed).await;
                    }
                    sleep(RETRY_PAUSE).await;
                }
            }
        }))
    }
}

impl Drop for MasterWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct WatchState {
    master: String,
    reports: AddressReports,
    lost: Arc<Notify>,
    check_interval: Duration,
}

/// The address in use, and which sentinels have reported it.
struct AddressReports {
    address: MasterAddress,
    /// One entry per sentinel.
    reported: Vec<bool>,
}

impl AddressReports {
    /// Creates the state in which only the first sentinel has reported the address.
    fn new(address: MasterAddress, sentinels: usize) -> Self {
        Self { address, reported: (0..sentinels).map(|index| index == 0).collect() }
    }

    /// Compares the address in use with a sentinel's reply, and records whether they agree.
    ///
    /// A sentinel that reported the address before and now reports another has seen a failover. One that never reported
    /// it may be behind the others, and may report the previous master until it catches up.
    fn evaluate(&mut self, index: usize, reply: &MasterAddress) -> Verdict {
        let is_same = *reply == self.address;
        self.reported[index] |= is_same;
        match (is_same, self.reported[index]) {
            (true, _) => Verdict::UpToDate,
            (false, true) => Verdict::Outdated,
            (false, false) => Verdict::Unknown,
        }
    }
}

/// The state of the address in use, as far as one sentinel's reply proves it.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    UpToDate,
    Outdated,
    Unknown,
}

impl WatchState {
    /// Subscribes, and returns the connection. `closed` is notified when it breaks. Returns `None` if the sentinel may
    /// be behind the others: then another sentinel must be subscribed to.
    ///
    /// Messages published while no connection was subscribed are lost, so each new connection also reads the address.
    async fn subscribe(
        &mut self,
        index: usize,
        sentinel: &ConnectionInfo,
        closed: &Arc<Notify>,
    ) -> Result<Option<MultiplexedConnection>, Error> {
        let settings = sentinel.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = sentinel.clone().set_redis_settings(settings);
        let mut connection = connect(info, SUBSCRIBE_TIMEOUT, Some(self.listener(closed))).await?;
        connection.subscribe(SWITCH_MASTER_CHANNEL).await.map_err(CommandError::from)?;
        let verdict = self.check(index, &mut connection).await?;
        Ok((verdict != Verdict::Unknown).then_some(connection))
    }

    /// Repeats the check until the connection breaks, the sentinel does not reply in time, or it may be behind the
    /// others.
    async fn check_until_closed(&mut self, index: usize, mut connection: MultiplexedConnection, closed: &Notify) {
        while timeout(self.check_interval, closed.notified()).await.is_err() {
            match timeout(CHECK_TIMEOUT, self.check(index, &mut connection)).await {
                Ok(Ok(Verdict::UpToDate | Verdict::Outdated)) => {}
                Ok(Ok(Verdict::Unknown) | Err(_)) | Err(_) => return,
            }
        }
    }

    /// Reads the address from the sentinel, and notifies `lost` if the address in use is outdated.
    async fn check(&mut self, index: usize, connection: &mut MultiplexedConnection) -> Result<Verdict, Error> {
        let reply = connection.send_packed_command(&get_master_addr(&self.master)).await.map_err(CommandError::from)?;
        let verdict = parse_master_addr(reply).map_or(Verdict::Unknown, |reply| self.reports.evaluate(index, &reply));
        if verdict == Verdict::Outdated {
            self.lost.notify_one();
        }
        Ok(verdict)
    }

    fn listener(&self, closed: &Arc<Notify>) -> PushListener {
        let (host, port) = &self.reports.address;
        let (prefix, current) = (format!("{} ", self.master), format!(" {host} {port}"));
        let (closed, lost) = (Arc::clone(closed), Arc::clone(&self.lost));
        Box::new(move |push: PushInfo| match push.kind {
            PushKind::Disconnection => closed.notify_one(),
            PushKind::Message => {
                let message = push.data.into_iter().nth(1).and_then(|text| from_redis_value::<String>(text).ok());
                // A late message may announce the address that is already in use.
                if message.is_some_and(|message| message.starts_with(&prefix) && !message.ends_with(&current)) {
                    lost.notify_one();
                }
            }
            _ => {}
        })
    }
}

#[cfg(test)]
mod tests;
