//! The sentinels that monitor a master.
//!
//! The client's own Sentinel support queries them one after the other, without a timeout for each. Here the next
//! sentinel is queried as soon as one is slow. So a dead or isolated sentinel does not use up an attempt to connect.

use std::collections::VecDeque;
use std::error::Error as _;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion, PushInfo, PushKind, Value, from_redis_value};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::store::redis::command_error::CommandError;
#[cfg(feature = "tls")]
use crate::store::redis::server::Tls;
use crate::store::redis::server::connect::{PushListener, connect};
use crate::store::redis::server::failover::{
    AnnouncedFailover, Announcement, MasterAddress, STEP_CHANNELS, SWITCH_CHANNEL, get_master_addr, parse_master_addr,
};
use crate::store::redis::server::{
    ConnectionSettings, DataConnection, connect_and_identify, display_host, display_url,
};
use crate::{Error, ErrorKind};

/// The time that one sentinel has to reply before the next one is queried as well.
const NEXT_QUERY_DELAY: Duration = Duration::from_millis(50);

pub(super) struct Sentinels {
    sentinels: Vec<ConnectionInfo>,
    /// The name under which the sentinels monitor the master.
    master: String,
    /// The index of the sentinel to query first: the last one whose reply led to a master.
    first: AtomicUsize,
    /// Watches the master in use for a failover.
    watch: Mutex<Option<MasterWatch>>,
    failover: Arc<AnnouncedFailover>,
}

/// The kind of a failed query, the least informative one first. The error of the most informative one is returned.
#[derive(PartialEq, PartialOrd)]
enum Severity {
    /// The sentinel is unreachable or did not reply.
    NoReply,
    /// It rejected the query.
    Rejected,
    /// It does not monitor a master of that name.
    UnknownMaster,
    /// It reported a server that is not a master, or that is unreachable.
    BadMaster,
}

type Failure = (Severity, Error);

impl Sentinels {
    pub(super) fn new(sentinels: Vec<ConnectionInfo>, master: String) -> Self {
        Self { sentinels, master, first: AtomicUsize::new(0), watch: Mutex::default(), failover: Arc::default() }
    }

    /// Returns the same sentinels without a preferred one and without a watch.
    pub(super) fn clone_without_state(&self) -> Self {
        Self::new(self.sentinels.clone(), self.master.clone())
    }

    /// Sets the certificates for the connections to the sentinels.
    ///
    /// # Errors
    /// The certificates cannot be used, or a sentinel's address is without TLS.
    #[cfg(feature = "tls")]
    pub(super) fn set_tls(&mut self, tls: &Tls) -> Result<(), Error> {
        let sentinels = std::mem::take(&mut self.sentinels);
        self.sentinels = sentinels.into_iter().map(|sentinel| tls.apply(sentinel)).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Opens a connection to the master with these settings, whose address is not used. During an announced failover it
    /// waits for the new master.
    pub(super) async fn open(
        &self,
        settings: &ConnectionSettings,
        time_limit: Duration,
        lost: Arc<Notify>,
    ) -> Result<DataConnection, Error> {
        // The caller's own timeout has no details, so this ends before it.
        let deadline = Instant::now() + time_limit * 9 / 10;
        loop {
            let opened = self.open_named(settings, time_limit, deadline, &lost).await;
            if opened.is_ok() || !self.failover.is_going_on() || Instant::now() >= deadline {
                return opened;
            }
            self.failover.ended().await;
        }
    }

    /// Opens a connection to the master that the sentinels name now. During an announced failover those that still name
    /// the old one are queried again, while others have not replied.
    async fn open_named(
        &self,
        settings: &ConnectionSettings,
        time_limit: Duration,
        deadline: Instant,
        lost: &Arc<Notify>,
    ) -> Result<DataConnection, Error> {
        let mut unqueried: VecDeque<_> = self.query_order().collect();
        let mut queries = JoinSet::new();
        let mut tried = Vec::new();
        // The sentinels that name the master that is being replaced.
        let mut outdated = Vec::new();
        let mut worst: Option<Failure> = None;
        loop {
            if let Some(index) = unqueried.pop_front() {
                let query = query_master_addr(self.sentinels[index].clone(), self.master.clone(), time_limit * 4 / 10);
                queries.spawn(async move { (index, query.await) });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let max_wait = if unqueried.is_empty() { left } else { NEXT_QUERY_DELAY.min(left) };
            let mut ended = pin!(self.failover.ended());
            let reply = poll_fn(|context| match queries.poll_join_next(context) {
                Poll::Pending | Poll::Ready(None) if !outdated.is_empty() => {
                    ended.as_mut().poll(context).map(|()| None)
                }
                reply => reply,
            });
            let failure = match timeout(max_wait, reply).await {
                Err(_) if !unqueried.is_empty() && !left.is_zero() => continue,
                Ok(None) if !outdated.is_empty() => {
                    unqueried.extend(outdated.drain(..));
                    continue;
                }
                Err(_) | Ok(None) => break,
                Ok(Some(Err(ended))) => {
                    (Severity::NoReply, Error::with_source(ErrorKind::Unavailable, "no reply", ended))
                }
                Ok(Some(Ok((_, Err(failure))))) => failure,
                Ok(Some(Ok((_, Ok(address))))) if tried.contains(&address) => continue,
                Ok(Some(Ok((index, Ok(address))))) if self.failover.replaces(&address) => {
                    outdated.push(index);
                    let (host, port) = &address;
                    let problem = format!(
                        "the sentinels are replacing the master of `{}` at {}:{port}",
                        self.master,
                        display_host(host)
                    );
                    (Severity::BadMaster, Error::new(ErrorKind::Unavailable, problem))
                }
                Ok(Some(Ok((index, Ok(address))))) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    match self.open_master(&address, settings, left.min(time_limit * 4 / 10), Arc::clone(lost)).await {
                        Ok(connection) => {
                            self.first.store(index, Ordering::Relaxed);
                            self.start_watch(address, Arc::clone(lost));
                            return Ok(connection);
                        }
                        Err(error) => {
                            // This sentinel may be isolated from the others, whose replies are newer.
                            tried.push(address);
                            (Severity::BadMaster, error)
                        }
                    }
                }
            };
            if worst.as_ref().is_none_or(|(severity, _)| *severity < failure.0) {
                worst = Some(failure);
            }
        }
        Err(self.error(worst))
    }

    /// Starts to watch the master in use, and stops the watch of the one before. `lost` is notified when another server
    /// becomes the master.
    fn start_watch(&self, address: MasterAddress, lost: Arc<Notify>) {
        let sentinels = self.query_order().map(|index| self.sentinels[index].clone()).collect();
        self.failover.master_used(&address);
        let (name, failover) = (self.master.clone(), Arc::clone(&self.failover));
        let watch = MasterWatch::start(sentinels, &WatchedMaster { name, address, lost, failover });
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch);
    }

    /// The indices of all sentinels, the preferred one first.
    fn query_order(&self) -> impl ExactSizeIterator<Item = usize> + use<> {
        let (count, first) = (self.sentinels.len(), self.first.load(Ordering::Relaxed));
        (0..count).map(move |step| (first + step) % count)
    }

    async fn open_master(
        &self,
        (host, port): &MasterAddress,
        settings: &ConnectionSettings,
        time_limit: Duration,
        lost: Arc<Notify>,
    ) -> Result<DataConnection, Error> {
        let settings = settings.with_address(host, *port);
        let opened = timeout(time_limit, connect_and_identify(settings.clone(), time_limit, lost)).await;
        let opened = opened.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unavailable, format!("it did not reply within {time_limit:?}")))
        });
        opened.and_then(|(connection, server_info)| server_info.check_master().map(|()| connection)).map_err(|error| {
            let url = display_url(settings.info());
            Error::new(error.kind(), format!("the sentinels report {url} as the master of `{}`: {error}", self.master))
        })
    }

    fn error(&self, worst: Option<Failure>) -> Error {
        let count = self.sentinels.len();
        match worst {
            Some((Severity::NoReply, error)) => {
                let problem = format!("none of {count} sentinels replied for the master `{}`: {error}", self.master);
                Error::with_source(ErrorKind::Unavailable, problem, error)
            }
            Some((_, error)) => error,
            None => {
                let problem = format!("none of {count} sentinels replied in time for the master `{}`", self.master);
                Error::new(ErrorKind::Unavailable, problem)
            }
        }
    }
}

/// Reads the address of the master from one sentinel.
async fn query_master_addr(
    info: ConnectionInfo,
    master: String,
    time_limit: Duration,
) -> Result<MasterAddress, Failure> {
    let sentinel = format!("the sentinel at {}", display_address(&info));
    let query = async {
        let mut connection = connect(info, time_limit, None).await?;
        let reply = connection.send_packed_command(&get_master_addr(&master)).await.and_then(Value::extract_error);
        Ok(reply.map_err(CommandError::from)?)
    };
    let reply = timeout(time_limit, query)
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, format!("no reply within {time_limit:?}"))));
    let reply = reply.map_err(|error: Error| query_failure(&sentinel, &error))?;
    if reply == Value::Nil {
        let problem = format!(
            "{sentinel} has no master named `{master}`: write the name from its `sentinel monitor` setting into the URL"
        );
        return Err((Severity::UnknownMaster, Error::new(ErrorKind::Config, problem)));
    }
    parse_master_addr(reply).map_err(|_| {
        let problem = format!("{sentinel} sent a reply that is not an address");
        (Severity::Rejected, Error::new(ErrorKind::Protocol, problem))
    })
}

fn query_failure(sentinel: &str, error: &Error) -> Failure {
    let with_hint = |hint: &str| Error::new(error.kind(), format!("the query to {sentinel} failed: {error}{hint}"));
    match error.kind() {
        // Only a network error has a source. TLS has rejected a certificate, so a password would not help.
        ErrorKind::Refused if error.source().is_some() => (Severity::Rejected, with_hint("")),
        ErrorKind::Refused => (
            Severity::Rejected,
            with_hint(
                "; write its password into the URL as `?sentinel_password=…`, and its user as `&sentinel_user=…`",
            ),
        ),
        ErrorKind::Config => {
            (Severity::Rejected, with_hint("; if it is a server and not a sentinel, write `redis://`"))
        }
        ErrorKind::Protocol => (Severity::Rejected, with_hint("")),
        _ => (Severity::NoReply, with_hint("")),
    }
}

/// Formats a host and port without a scheme.
fn display_address(info: &ConnectionInfo) -> String {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            format!("{}:{port}", display_host(host))
        }
        _ => display_url(info),
    }
}

impl fmt::Display for Sentinels {
    /// Writes the URL, without user, password and database.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<_> = self.sentinels.iter().map(display_address).collect();
        let tls = matches!(self.sentinels.first().map(ConnectionInfo::addr), Some(ConnectionAddr::TcpTls { .. }));
        write!(f, "redis{}-sentinel://{}/{}", if tls { "s" } else { "" }, addresses.join(","), self.master)
    }
}

// A watch on the sentinels that reports when another server becomes the master.
//
// A broken connection reveals a master that died. A master that was replaced while alive, or isolated, keeps replying
// until a sentinel reconfigures it, which takes ten seconds and more. Without this watch, processes would count on
// different masters for that time.
//
// Every sentinel is watched, since only the one that leads a failover announces its steps.

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
