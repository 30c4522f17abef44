//! Which Redis, and how to open a connection to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion};
use tokio::sync::Notify;

use crate::store::redis::server_text::printable;
use crate::{Error, ErrorKind};

mod connect;
mod credentials;
mod greeting;
mod lookups;
mod sentinels;
mod single_flight;
#[cfg(feature = "tls")]
mod tls;
mod url;
mod watch;

use connect::{connect, telling};
pub use credentials::Credentials;
pub(crate) use credentials::Provider;
use greeting::{Greeting, Mode};
use sentinels::Sentinels;
#[cfg(feature = "tls")]
pub use tls::Tls;

/// A server, by its address or by the sentinels that know it. `Display` and `Debug` give addresses alone, without user
/// or password.
pub(crate) struct Server {
    /// As whom, in which database, by which certificates; and where, unless sentinels say that.
    info: ConnectionInfo,
    way: Way,
    provider: Option<Provider>,
}

/// What leads to a server.
enum Way {
    /// Its address, where there is a server of this mode.
    Address(Mode),
    /// The address that sentinels have for its name.
    Sentinels(Sentinels),
}

impl Server {
    /// A client of the program's own, as far as it says where the server is and who asks.
    pub(crate) fn of(client: &redis::Client) -> Self {
        Self::at_address(client.get_connection_info().clone(), Mode::Standalone)
    }

    fn at_address(info: ConnectionInfo, mode: Mode) -> Self {
        Self { info: adjusted(info), way: Way::Address(mode), provider: None }
    }

    fn by_sentinels(info: ConnectionInfo, sentinels: Sentinels) -> Self {
        Self { info: adjusted(info), way: Way::Sentinels(sentinels), provider: None }
    }

    /// The same user, database and certificates at another address: another node of the same cluster.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        let mode = match &self.way {
            Way::Address(mode) => *mode,
            Way::Sentinels(_) => Mode::Standalone,
        };
        let info = moved(&self.info, host, port);
        Self { info, way: Way::Address(mode), provider: self.provider.clone() }
    }

    /// The same server, without what has been found out of its sentinels.
    pub(super) fn anew(&self) -> Self {
        let way = match &self.way {
            Way::Address(mode) => Way::Address(*mode),
            Way::Sentinels(sentinels) => Way::Sentinels(sentinels.anew()),
        };
        Self { info: self.info.clone(), way, provider: self.provider.clone() }
    }

    /// The host of its address; none of a socket.
    pub(super) fn host(&self) -> &str {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        }
    }

    /// The same, by these certificates.
    #[cfg(feature = "tls")]
    pub(crate) fn with_tls(mut self, tls: &Tls) -> Result<Self, Error> {
        self.info = tls.apply(self.info)?;
        if let Way::Sentinels(sentinels) = &mut self.way {
            sentinels.apply(tls)?;
        }
        Ok(self)
    }

    /// The same, with the user and the password that the program gives each time.
    pub(crate) fn with_provider(mut self, provider: Provider) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Opens a connection within `longest`, which tells `lost` when it breaks. What answers is known to be a server of
    /// the kind that was named, and one that the limiter can use.
    pub(super) async fn open(&self, longest: Duration, lost: Arc<Notify>) -> Result<MultiplexedConnection, Error> {
        let info = match &self.provider {
            Some(provider) => provider.credentials(longest * 9 / 10).await?.apply(&self.info),
            None => self.info.clone(),
        };
        match &self.way {
            Way::Address(mode) => {
                let (connection, greeting) = reach(info, longest, lost).await?;
                greeting.check(*mode).map_err(|error| self.cannot_be_used(&error))?;
                Ok(connection)
            }
            Way::Sentinels(sentinels) => sentinels.open(&info, longest, lost).await,
        }
    }

    /// Whether it takes others to connect: sentinels, or the program itself.
    pub(super) fn asks_others(&self) -> bool {
        self.provider.is_some() || matches!(self.way, Way::Sentinels(_))
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    fn cannot_be_used(&self, error: &Error) -> Error {
        Error::new(error.kind(), format!("cannot use {self}: {error}"))
    }
}

/// Connects, and hears what is there.
async fn reach(
    info: ConnectionInfo,
    longest: Duration,
    lost: Arc<Notify>,
) -> Result<(MultiplexedConnection, Greeting), Error> {
    let address = address(&info);
    let reached = async {
        let connection = connect(info, longest, Some(telling(lost))).await?;
        let greeting = greeting::exchange(connection.clone()).await?;
        Ok((connection, greeting))
    };
    reached.await.map_err(|error: Error| {
        Error::with_source(error.kind(), format!("cannot connect to {address}: {error}"), error)
    })
}

/// What the limiter needs of a connection, whoever described it.
fn adjusted(info: ConnectionInfo) -> ConnectionInfo {
    // Its version of the protocol tells of a lost connection at once, without a command to fail first.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    // Without this a small command waits in the kernel until the one before it has been acknowledged.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    info.set_redis_settings(settings).set_tcp_settings(tcp)
}

/// The same at another address, by TLS where it was by TLS.
fn moved(info: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let address = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    };
    info.clone().set_addr(address)
}

/// As in a URL.
fn address(info: &ConnectionInfo) -> String {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => format!("redis://{}:{port}", bracketed(host)),
        ConnectionAddr::TcpTls { host, port, .. } => format!("rediss://{}:{port}", bracketed(host)),
        ConnectionAddr::Unix(path) => format!("redis+unix://{}", path.display()),
        _ => "the store".to_owned(),
    }
}

/// A host as in a URL. It may be one that a server has given.
fn bracketed(host: &str) -> String {
    let host = printable(host);
    if host.contains(':') { format!("[{host}]") } else { host }
}

fn unusable(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, problem)
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            Way::Address(_) => f.write_str(&address(&self.info)),
            Way::Sentinels(sentinels) => fmt::Display::fmt(sentinels, f),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
