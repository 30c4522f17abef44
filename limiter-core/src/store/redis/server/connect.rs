//! One attempt to connect, by the client's own means.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, PushInfo, PushKind, RedisError, RedisResult,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::Error;
use crate::store::redis::failure::Refusal;

/// Commands that may wait in the client for the socket. More wait before it, each for its own deadline at most.
const QUEUE: usize = 4096;

/// What a server says without being asked, and the client of a connection that has broken. Needs RESP3.
pub(super) type Listener = Box<dyn Fn(PushInfo) + Send + Sync>;

/// Tells `lost` when the connection breaks.
pub(super) fn telling(lost: Arc<Notify>) -> Listener {
    Box::new(move |push| {
        if push.kind == PushKind::Disconnection {
            lost.notify_one();
        }
    })
}

/// Opens a connection. Whoever calls this watches the time.
pub(super) async fn connect(
    info: ConnectionInfo,
    longest: Duration,
    listener: Option<Listener>,
) -> Result<MultiplexedConnection, Error> {
    let opened = if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        // For each connection the client reads the certificates that the system trusts. That takes longer than a
        // call may wait, so it happens elsewhere.
        let runtime = Handle::current();
        let connect = move || runtime.block_on(timeout(longest, attempt(info, listener)));
        spawn_blocking(connect).await.unwrap_or(Ok(Err(broken()))).unwrap_or_else(|_| Err(broken()))
    } else {
        attempt(info, listener).await
    };
    opened.map_err(|error| Refusal::from(error).into())
}

async fn attempt(info: ConnectionInfo, listener: Option<Listener>) -> RedisResult<MultiplexedConnection> {
    #[cfg(feature = "tls")]
    super::tls::provide_cryptography();
    let mut config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE);
    if let Some(listener) = listener {
        config = config.set_push_sender(move |push| {
            listener(push);
            Ok::<(), redis::aio::SendError>(())
        });
    }
    Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await
}

/// The attempt ended without a word of the client's own.
fn broken() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}
