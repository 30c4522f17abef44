//! The sentinels that know where a master is.
//!
//! The client has its own way to ask them: one after the other, without a time for each. Here the next is asked as soon
//! as one is slow to answer, so that neither a dead sentinel nor one that was cut off costs an attempt.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ConnectionAddr, ConnectionInfo, Value, cmd, from_redis_value};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::store::redis::command_error::CommandError;
#[cfg(feature = "tls")]
use crate::store::redis::server::Tls;
use crate::store::redis::server::watch::Watch;
use crate::store::redis::server::{address, bracketed, connect, moved, reach};
use crate::{Error, ErrorKind};

/// How long one sentinel is waited for before the next is asked as well.
const HEAD_START: Duration = Duration::from_millis(50);

pub(super) struct Sentinels {
    each: Vec<ConnectionInfo>,
    /// The name they have for the master.
    master: String,
    /// Who is asked first: whose word was good the last time.
    first: AtomicUsize,
    /// Hears of another master, while one is in use.
    watch: Mutex<Option<Watch>>,
}

/// What stands in the way, from what says least.
#[derive(PartialEq, PartialOrd)]
enum Weight {
    /// A sentinel cannot be asked.
    Silent,
    /// It says no.
    Refused,
    /// It does not know the name.
    Unknown,
    /// It names a server that is no master, or cannot be reached.
    Master,
}

type Problem = (Weight, Error);

/// As sentinels put it: a name or an address, and a port.
pub(super) type Address = (String, u16);

impl Sentinels {
    pub(super) fn new(each: Vec<ConnectionInfo>, master: String) -> Self {
        Self { each, master, first: AtomicUsize::new(0), watch: Mutex::default() }
    }

    /// The same, of whom nobody has been asked.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.each.clone(), self.master.clone())
    }

    /// Asks them by TLS with these certificates.
    #[cfg(feature = "tls")]
    pub(super) fn apply(&mut self, tls: &Tls) -> Result<(), Error> {
        let each = std::mem::take(&mut self.each);
        self.each = each.into_iter().map(|sentinel| tls.apply(sentinel)).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// A connection to the master, as `info` describes it but for its address.
    pub(super) async fn open(
        &self,
        info: &ConnectionInfo,
        longest: Duration,
        lost: Arc<Notify>,
    ) -> Result<MultiplexedConnection, Error> {
        // Whoever waits for this says nothing of a master, so it ends before them.
        let until = Instant::now() + longest * 9 / 10;
        let mut others = self.in_turn();
        let mut asked = JoinSet::new();
        let mut tried = Vec::new();
        let mut worst: Option<Problem> = None;
        loop {
            if let Some(sentinel) = others.next() {
                let request = ask(self.each[sentinel].clone(), self.master.clone(), longest * 4 / 10);
                asked.spawn(async move { (sentinel, request.await) });
            }
            let left = until.saturating_duration_since(Instant::now());
            let max_wait = if others.len() > 0 { HEAD_START.min(left) } else { left };
            let problem = match timeout(max_wait, asked.join_next()).await {
                Err(_) if others.len() > 0 && !left.is_zero() => continue,
                Err(_) | Ok(None) => break,
                Ok(Some(Err(ended))) => {
                    (Weight::Silent, Error::with_source(ErrorKind::Unavailable, "no answer", ended))
                }
                Ok(Some(Ok((_, Err(problem))))) => problem,
                Ok(Some(Ok((_, Ok(found))))) if tried.contains(&found) => continue,
                Ok(Some(Ok((sentinel, Ok(found))))) => {
                    let limit = (longest * 4 / 10).min(until.saturating_duration_since(Instant::now()));
                    match self.open_at(&found, info, limit, Arc::clone(&lost)).await {
                        Ok(connection) => {
                            self.first.store(sentinel, Ordering::Relaxed);
                            self.watch(found, lost);
                            return Ok(connection);
                        }
                        Err(error) => {
                            // Who says so may be cut off from the others, which know better.
                            tried.push(found);
                            (Weight::Master, error)
                        }
                    }
                }
            };
            if worst.as_ref().is_none_or(|(weight, _)| *weight < problem.0) {
                worst = Some(problem);
            }
        }
        Err(self.failed(worst))
    }

    /// From now on `lost` is told when this is not the master any more. What was watched before is not in use.
    fn watch(&self, found: Address, lost: Arc<Notify>) {
        let each = self.in_turn().map(|sentinel| self.each[sentinel].clone()).collect();
        let watch = Watch::start(each, self.master.clone(), found, lost);
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch);
    }

    /// All of them, from the first.
    fn in_turn(&self) -> impl ExactSizeIterator<Item = usize> + use<> {
        let (count, first) = (self.each.len(), self.first.load(Ordering::Relaxed));
        (0..count).map(move |step| (first + step) % count)
    }

    async fn open_at(
        &self,
        (host, port): &Address,
        info: &ConnectionInfo,
        limit: Duration,
        lost: Arc<Notify>,
    ) -> Result<MultiplexedConnection, Error> {
        let info = moved(info, host, *port);
        let named = format!("the master of `{}` is {} by the sentinels", self.master, address(&info));
        let opened = timeout(limit, reach(info, limit, lost)).await;
        let opened = opened
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, format!("it did not answer within {limit:?}"))));
        opened
            .and_then(|(connection, greeting)| greeting.check_master().map(|()| connection))
            .map_err(|error| Error::new(error.kind(), format!("{named}: {error}")))
    }

    fn failed(&self, worst: Option<Problem>) -> Error {
        let count = self.each.len();
        match worst {
            Some((Weight::Silent, error)) => {
                let silent = format!("none of {count} sentinels can be asked for `{}`: {error}", self.master);
                Error::with_source(ErrorKind::Unavailable, silent, error)
            }
            Some((_, error)) => error,
            None => {
                let silent = format!("none of {count} sentinels has said in time where `{}` is", self.master);
                Error::new(ErrorKind::Unavailable, silent)
            }
        }
    }
}

pub(super) fn where_is(master: &str) -> Cmd {
    cmd("SENTINEL").arg("get-master-addr-by-name").arg(master).clone()
}

/// Where a sentinel says the master is.
async fn ask(info: ConnectionInfo, master: String, limit: Duration) -> Result<Address, Problem> {
    let sentinel = format!("the sentinel at {}", place(&info));
    let request = async {
        let mut connection = connect(info, limit, None).await?;
        let answer = connection.send_packed_command(&where_is(&master)).await.and_then(Value::extract_error);
        Ok(answer.map_err(CommandError::from)?)
    };
    let answer = timeout(limit, request)
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, format!("no answer within {limit:?}"))));
    let answer = answer.map_err(|error: Error| refused(&sentinel, &error))?;
    if answer == Value::Nil {
        let unknown =
            format!("{sentinel} knows no master `{master}`: the name in the URL is one that it is configured with");
        return Err((Weight::Unknown, Error::new(ErrorKind::Config, unknown)));
    }
    from_redis_value(answer).map_err(|_| {
        let foreign = format!("{sentinel} answered something else than an address");
        (Weight::Refused, Error::new(ErrorKind::Protocol, foreign))
    })
}

fn refused(sentinel: &str, error: &Error) -> Problem {
    let told = |hint: &str| Error::new(error.kind(), format!("{sentinel} cannot be asked: {error}{hint}"));
    match error.kind() {
        ErrorKind::Refused => {
            (Weight::Refused, told("; what it wants is in the URL as `?sentinel_password=…`, with `&sentinel_user=…`"))
        }
        ErrorKind::Config => {
            (Weight::Refused, told("; is it a sentinel, and not a server to connect to by `redis://`?"))
        }
        ErrorKind::Protocol => (Weight::Refused, told("")),
        _ => (Weight::Silent, told("")),
    }
}

fn place(info: &ConnectionInfo) -> String {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            format!("{}:{port}", bracketed(host))
        }
        _ => address(info),
    }
}

impl fmt::Display for Sentinels {
    /// As in a URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<_> = self.each.iter().map(place).collect();
        let tls = matches!(self.each.first().map(ConnectionInfo::addr), Some(ConnectionAddr::TcpTls { .. }));
        write!(f, "redis{}-sentinel://{}/{}", if tls { "s" } else { "" }, places.join(","), self.master)
    }
}
