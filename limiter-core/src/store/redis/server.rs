//! A Redis server: its address, how to find it, and how to open a connection to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo};
use tokio::sync::Notify;

use crate::store::redis::command_error::escape_and_truncate;
use crate::{Error, ErrorKind};

mod connect;
mod connection_settings;
mod credentials;
mod data_connection;
mod failover;
mod lookups;
mod sentinels;
mod server_info;
mod socket;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod tls_socket;
mod url;

use connection_settings::ConnectionSettings;
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
    /// Sentinels replace the address.
    settings: ConnectionSettings,
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
        Self { settings: ConnectionSettings::new(info), discovery, provider: None }
    }

    /// Returns another node of the same cluster, with the same user, database and certificates.
    pub(super) fn other_node(&self, host: &str, port: u16) -> Self {
        let mode = match &self.discovery {
            Discovery::Fixed(mode) => *mode,
            Discovery::Sentinels(_) => ServerMode::Standalone,
        };
        let settings = self.settings.with_address(host, port);
        Self { settings, discovery: Discovery::Fixed(mode), provider: self.provider.clone() }
    }

    /// The database in use.
    pub(crate) fn database(&self) -> i64 {
        self.settings.info().redis_settings().db()
    }

    /// Returns the same server without the state that lookups by its sentinels have left.
    pub(super) fn clone_without_state(&self) -> Self {
        let discovery = match &self.discovery {
            Discovery::Fixed(mode) => Discovery::Fixed(*mode),
            Discovery::Sentinels(sentinels) => Discovery::Sentinels(sentinels.clone_without_state()),
        };
        Self { settings: self.settings.clone(), discovery, provider: self.provider.clone() }
    }

    /// The host of its address, empty for a unix socket.
    pub(super) fn host(&self) -> &str {
        match self.settings.info().addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        }
    }

    /// Sets the certificates.
    #[cfg(feature = "tls")]
    pub(crate) fn with_tls(mut self, tls: &Tls) -> Result<Self, Error> {
        self.settings = self.settings.with_tls(tls)?;
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
        let mut settings = self.settings.clone();
        if let Some(provider) = &self.provider {
            let credentials = provider.credentials(time_limit * 9 / 10).await?;
            settings = settings.map_info(|info| credentials.apply(info));
        }
        match &self.discovery {
            Discovery::Fixed(mode) => {
                let (connection, server_info) = connect_and_identify(settings, time_limit, lost).await?;
                server_info.check(*mode).map_err(|error| self.with_server_name(&error))?;
                Ok(connection)
            }
            Discovery::Sentinels(sentinels) => sentinels.open(&settings, time_limit, lost).await,
        }
    }

    /// Reports whether an attempt to connect also waits for sentinels or for the credentials provider.
    pub(super) fn needs_discovery_or_credentials(&self) -> bool {
        self.provider.is_some() || matches!(self.discovery, Discovery::Sentinels(_))
    }

    pub(super) fn is_tls(&self) -> bool {
        self.settings.is_tls()
    }

    /// Adds this server's name to the message of an error. Its kind stays.
    fn with_server_name(&self, error: &Error) -> Error {
        Error::new(error.kind(), format!("cannot use {self}: {error}"))
    }
}

/// Connects, and reads the server's version, mode and role.
async fn connect_and_identify(
    settings: ConnectionSettings,
    time_limit: Duration,
    lost: Arc<Notify>,
) -> Result<(DataConnection, ServerInfo), Error> {
    let url = display_url(settings.info());
    let connected = async {
        let connection = DataConnection::open(settings, time_limit, lost).await?;
        let server_info = server_info::fetch(&connection).await?;
        Ok((connection, server_info))
    };
    connected
        .await
        .map_err(|error: Error| Error::with_source(error.kind(), format!("cannot connect to {url}: {error}"), error))
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
            Discovery::Fixed(_) => f.write_str(&display_url(self.settings.info())),
            Discovery::Sentinels(sentinels) => fmt::Display::fmt(sentinels, f),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
