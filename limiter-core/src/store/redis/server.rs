//! Which Redis, and how to open a connection to it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, PushInfo,
    PushKind, RedisError, RedisResult,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::failure::Refusal;
use crate::{Error, ErrorKind};

/// A server by its URL. `Display` and `Debug` give the address alone, without user or password.
pub(crate) struct Server {
    client: Client,
    address: String,
}

/// Commands that may wait in the client for the socket. More wait before it, each for its own deadline at most.
const QUEUE: usize = 4096;

impl Server {
    /// Reads a URL with one of the schemes `redis`, `rediss` and `redis+unix`.
    pub(crate) fn named(url: &str) -> Result<Self, Error> {
        // The client's own words may repeat parts of the URL, so they are left out.
        let unreadable = |_: RedisError| {
            Error::new(
                ErrorKind::Config,
                "the store's URL cannot be read: write `redis://[user:password@]host[:port][/database]` or \
                 `redis+unix:///path[?db=1]`, with special characters in the password percent-encoded",
            )
        };
        let info = url.into_connection_info().map_err(unreadable)?;
        let address = address(&info);
        // Its version of the protocol tells of a lost connection at once, without a command to fail first.
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        // Without this a small command waits in the kernel until the one before it has been acknowledged.
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        let client = Client::open(info).map_err(unreadable)?;
        Ok(Self { client, address })
    }

    /// Reads `redis-cluster://[user:password@]host:port,host:port`.
    pub(crate) fn seeds(url: &str) -> Result<Vec<Self>, Error> {
        let (scheme, rest) = url.split_once("-cluster://").unwrap_or(("redis", url));
        let (login, hosts) = rest.rsplit_once('@').map_or(("", rest), |(login, hosts)| (login, hosts));
        let at = if login.is_empty() { "" } else { "@" };
        hosts.split(',').map(|host| Self::named(&format!("{scheme}://{login}{at}{host}"))).collect()
    }

    /// Another server with the same settings.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        let info = self.client.get_connection_info().clone();
        let addr = match info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host: host.to_owned(),
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host.to_owned(), port),
        };
        let info = info.set_addr(addr);
        Self { address: address(&info), client: Client::open(info).unwrap_or_else(|_| self.client.clone()) }
    }

    pub(super) fn host(&self) -> &str {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        }
    }

    /// Opens a connection within `longest`, which tells `lost` when it breaks.
    pub(super) async fn open(&self, longest: Duration, lost: Arc<Notify>) -> Result<MultiplexedConnection, Error> {
        let opened = if self.is_tls() {
            // For each connection the client reads the certificates that the system trusts. That takes longer than a
            // call may wait, so it happens elsewhere.
            let (client, runtime) = (self.client.clone(), Handle::current());
            let connect = move || runtime.block_on(timeout(longest, connect(client, lost)));
            spawn_blocking(connect).await.unwrap_or(Ok(Err(broken()))).unwrap_or_else(|_| Err(broken()))
        } else {
            connect(self.client.clone(), lost).await
        };
        opened.map_err(|error| {
            let error = Error::from(Refusal::from(error));
            Error::with_source(error.kind(), format!("cannot connect to {}: {error}", self.address), error)
        })
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. })
    }
}

async fn connect(client: Client, lost: Arc<Notify>) -> RedisResult<MultiplexedConnection> {
    #[cfg(feature = "tls")]
    provide_cryptography();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE)
        .set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                lost.notify_one();
            }
            Ok::<(), redis::aio::SendError>(())
        });
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// The attempt ended without a word of the client's own.
fn broken() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

/// Makes sure that rustls has a provider, which it does not choose by itself where a program is built with several.
/// One that the program has installed before stays.
#[cfg(feature = "tls")]
fn provide_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error says that another thread was first.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn address(info: &ConnectionInfo) -> String {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => format!("redis://{host}:{port}"),
        ConnectionAddr::TcpTls { host, port, .. } => format!("rediss://{host}:{port}"),
        ConnectionAddr::Unix(path) => format!("redis+unix://{}", path.display()),
        _ => "the store".to_owned(),
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
