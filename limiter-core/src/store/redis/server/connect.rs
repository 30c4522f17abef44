//! One attempt to connect with the `redis` client.

use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::AsyncDNSResolver;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, PushInfo, PushKind, RedisFuture, RedisResult,
};
use tokio::sync::Notify;

use crate::Error;
use crate::store::redis::command_error::CommandError;
use crate::store::redis::server::lookups::{poll_on_blocking_threads, resolve};

/// The most commands that the client buffers for the socket. Further commands wait for a place, each at most until its
/// deadline.
const MAX_BUFFERED_COMMANDS: usize = 4096;

/// A callback for push messages of the server, and for the client's report of a broken connection. Needs RESP3.
pub(super) type PushListener = Box<dyn Fn(PushInfo) + Send + Sync>;

/// Returns a listener that notifies `lost` when the connection breaks.
pub(super) fn notify_on_disconnect(lost: Arc<Notify>) -> PushListener {
    Box::new(move |push| {
        if push.kind == PushKind::Disconnection {
            lost.notify_one();
        }
    })
}

/// Opens a connection. Only the lookup of the host name is limited in time, to nine tenths of `time_limit`. The caller
/// must limit the rest.
pub(super) async fn connect(
    info: ConnectionInfo,
    time_limit: Duration,
    listener: Option<PushListener>,
) -> Result<MultiplexedConnection, Error> {
    let opened = async {
        let addresses = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                resolve(host, *port, time_limit * 9 / 10).await?
            }
            _ => Vec::new(),
        };
        let is_tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        let attempt = attempt(info, addresses, listener);
        if is_tls {
            // For each connection the client reads the certificates that the system trusts. That blocks for longer than
            // a call's deadline.
            poll_on_blocking_threads(attempt).await
        } else {
            attempt.await
        }
    };
    opened.await.map_err(|error| CommandError::from(error).into())
}

async fn attempt(
    info: ConnectionInfo,
    addresses: Vec<SocketAddr>,
    listener: Option<PushListener>,
) -> RedisResult<MultiplexedConnection> {
    #[cfg(feature = "tls")]
    super::tls::install_crypto_provider();
    // No timeout, so the attempt uses no timer. `poll_on_blocking_threads` relies on that.
    let mut config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_dns_resolver(FixedAddresses(addresses))
        .set_pipeline_buffer_size(MAX_BUFFERED_COMMANDS);
    if let Some(listener) = listener {
        config = config.set_push_sender(move |push| {
            listener(push);
            Ok::<(), redis::aio::SendError>(())
        });
    }
    Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await
}

/// The addresses of one host, at least one. The client connects to all of them, and uses the first that succeeds.
struct FixedAddresses(Vec<SocketAddr>);

impl AsyncDNSResolver for FixedAddresses {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _host: &'b str,
        _port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(ready(Ok(Box::new(self.0.iter().copied()) as _)))
    }
}
