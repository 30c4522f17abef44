//! A Redis server: its address, how to find it, and how to open a connection to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion};
use tokio::sync::Notify;

use crate::store::redis::server_text::escape_and_truncate;
use crate::{Error, ErrorKind};

mod connect;
mod credentials;
mod data_connection;
mod handshake;
mod lookups;
mod master_address;
mod sentinels;
mod server_info;
mod single_flight;
mod socket;
#[cfg(feature = "tls")]
mod tls;
mod url;
mod watch;

use connect::connect;
pub use credentials::Credentials;
pub(crate) use credentials::Provider;
pub(crate) use data_connection::DataConnection;
use sentinels::Sentinels;
use server_info::{ServerInfo, ServerMode};
#[cfg(feature = "tls")]
pub use tls::Tls;

/// A server, named by its address or by the sentinels that monitor it.
///
/// `Display` and `Debug` print addresses only, without user or password.
pub(crate) struct Server {
    /// User, password, database, certificates and address. Sentinels replace the address.
    info: ConnectionInfo,
    discovery: Discovery,
    provider: Option<Provider>,
}

/// The way to find a server's address.
enum Discovery {
    /// The address is in `ConnectionInfo`. A server of this mode is expected there.
    Fixed(ServerMode),
    /// Sentinels report the address of the master.
    Sentinels(Sentinels),
}

impl Server {
    /// Returns the server that a client of the program connects to, with the client's user, database and certificates.
    pub(crate) fn from_client(client: &redis::Client) -> Self {
        Self::new(client.get_connection_info().clone(), Discovery::Fixed(ServerMode::Standalone))
    }

    fn new(info: ConnectionInfo, discovery: Discovery) -> Self {
        Self { info: with_required_settings(info), discovery, provider: None }
    }

    /// Returns another node of the same cluster, with the same user, database and certificates.
    pub(super) fn other_node(&self, host: &str, port: u16) -> Self {
        let mode = match &self.discovery {
            Discovery::Fixed(mode) => *mode,
            Discovery::Sentinels(_) => ServerMode::Standalone,
        };
        let info = with_address(&self.info, host, port);
        Self { info, discovery: Discovery::Fixed(mode), provider: self.provider.clone() }
    }

    /// Returns the same server without the state that lookups by its sentinels have left.
    pub(super) fn clone_without_state(&self) -> Self {
        let discovery = match &self.discovery {
            Discovery::Fixed(mode) => Discovery::Fixed(*mode),
            Discovery::Sentinels(sentinels) => Discovery::Sentinels(sentinels.clone_without_state()),
        };
        Self { info: self.info.clone(), discovery, provider: self.provider.clone() }
    }

    /// The host of its address, empty for a unix socket.
    pub(super) fn host(&self) -> &str {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        }
    }

    /// Sets the certificates.
    #[cfg(feature = "tls")]
    pub(crate) fn with_tls(mut self, tls: &Tls) -> Result<Self, Error> {
        self.info = tls.apply(self.info)?;
        if let Discovery::Sentinels(sentinels) = &mut self.discovery {
            sentinels.set_tls(tls)?;
        }
        Ok(self)
    }

    /// Sets the provider of the user and the password. It is called before each attempt to connect.
    pub(crate) fn with_provider(mut self, provider: Provider) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Opens a connection within `time_limit`, and checks that the server is of the expected mode and can be used.
    ///
    /// `lost` is notified when the connection breaks, or when sentinels report another master.
    pub(super) async fn open(&self, time_limit: Duration, lost: Arc<Notify>) -> Result<DataConnection, Error> {
        let info = match &self.provider {
            Some(provider) => provider.credentials(time_limit * 9 / 10).await?.apply(&self.info),
            None => self.info.clone(),
        };
        match &self.discovery {
            Discovery::Fixed(mode) => {
                let (connection, server_info) = connect_and_identify(info, time_limit, lost).await?;
                server_info.check(*mode).map_err(|error| self.with_server_name(&error))?;
                Ok(connection)
            }
            Discovery::Sentinels(sentinels) => sentinels.open(&info, time_limit, lost).await,
        }
    }

    /// Reports whether an attempt to connect also waits for sentinels or for the credentials provider.
    pub(super) fn needs_discovery_or_credentials(&self) -> bool {
        self.provider.is_some() || matches!(self.discovery, Discovery::Sentinels(_))
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// Adds this server's name to the message of an error. Its kind stays.
    fn with_server_name(&self, error: &Error) -> Error {
        Error::new(error.kind(), format!("cannot use {self}: {error}"))
    }
}

/// Connects, and reads the server's version, mode and role.
async fn connect_and_identify(
    info: ConnectionInfo,
    time_limit: Duration,
    lost: Arc<Notify>,
) -> Result<(DataConnection, ServerInfo), Error> {
    let url = display_url(&info);
    let connected = async {
        let connection = DataConnection::open(info, time_limit, lost).await?;
        let server_info = server_info::fetch(&connection).await?;
        Ok((connection, server_info))
    };
    connected
        .await
        .map_err(|error: Error| Error::with_source(error.kind(), format!("cannot connect to {url}: {error}"), error))
}

/// Sets the options that the limiter needs on every connection.
fn with_required_settings(info: ConnectionInfo) -> ConnectionInfo {
    // With RESP3 the client reports a lost connection at once, before a command fails.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    // Without this the kernel delays a small command until the one before it has been acknowledged.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    info.set_redis_settings(settings).set_tcp_settings(tcp)
}

/// Replaces the address, and keeps everything else, TLS included.
fn with_address(info: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let address = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    };
    info.clone().set_addr(address)
}

/// Formats the address as a URL, without user and password.
fn display_url(info: &ConnectionInfo) -> String {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => format!("redis://{}:{port}", display_host(host)),
        ConnectionAddr::TcpTls { host, port, .. } => format!("rediss://{}:{port}", display_host(host)),
        ConnectionAddr::Unix(path) => format!("redis+unix://{}", path.display()),
        _ => "the store".to_owned(),
    }
}

/// Formats a host as in a URL. The host may come from a server, so it is escaped.
fn display_host(host: &str) -> String {
    let host = escape_and_truncate(host);
    if host.contains(':') { format!("[{host}]") } else { host }
}

fn config_error(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, problem)
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.discovery {
            Discovery::Fixed(_) => f.write_str(&display_url(&self.info)),
            Discovery::Sentinels(sentinels) => fmt::Display::fmt(sentinels, f),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
