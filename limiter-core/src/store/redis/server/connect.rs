//! One attempt to connect, by the client's own means.

use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::AsyncDNSResolver;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, PushInfo, PushKind, RedisError, RedisFuture,
    RedisResult,
};
use tokio::sync::Notify;
use tokio::task::{JoinError, spawn_blocking};

use crate::Error;
use crate::store::redis::command_error::CommandError;
use crate::store::redis::server::lookups::addresses;

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

/// Opens a connection. The caller watches the time; a look-up of the host's name ends a little before `longest`.
pub(super) async fn connect(
    info: ConnectionInfo,
    longest: Duration,
    listener: Option<Listener>,
) -> Result<MultiplexedConnection, Error> {
    let opened = async {
        let known = match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                addresses(host, *port, longest * 9 / 10).await?
            }
            _ => Vec::new(),
        };
        let is_tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        let attempt = attempt(info, known, listener);
        if is_tls {
            // For each connection the client reads the certificates that the system trusts. That takes longer than a
            // call may wait.
            poll_on_blocking_threads(attempt).await.unwrap_or_else(|_| Err(interrupted()))
        } else {
            attempt.await
        }
    };
    opened.await.map_err(|error| CommandError::from(error).into())
}

async fn attempt(
    info: ConnectionInfo,
    addresses: Vec<SocketAddr>,
    listener: Option<Listener>,
) -> RedisResult<MultiplexedConnection> {
    #[cfg(feature = "tls")]
    super::tls::provide_cryptography();
    // Without a timer, which `poll_on_blocking_threads` relies on.
    let mut config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_dns_resolver(Known(addresses))
        .set_pipeline_buffer_size(QUEUE);
    if let Some(listener) = listener {
        config = config.set_push_sender(move |push| {
            listener(push);
            Ok::<(), redis::aio::SendError>(())
        });
    }
    Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await
}

/// The addresses of one host, at least one: the client tries them in turn.
struct Known(Vec<SocketAddr>);

impl AsyncDNSResolver for Known {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _host: &'b str,
        _port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(ready(Ok(Box::new(self.0.iter().copied()) as _)))
    }
}

/// Runs a future whose polls may block: each poll is a job for the pool of the runtime, and between two polls no thread
/// is occupied.
///
/// A poll may outlive the runtime, which does not wait for it. Sockets and tasks then give errors; only a timer would
/// panic, so the future must have none.
async fn poll_on_blocking_threads<F>(future: F) -> Result<F::Output, JoinError>
where
    F: Future<Output: Send> + Send + 'static,
{
    let wake_up = Arc::new(WakeUp(Notify::new()));
    let mut future = Box::pin(future);
    loop {
        let waker = Waker::from(Arc::clone(&wake_up));
        let poll = move || {
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            (polled, future)
        };
        let (polled, unfinished) = spawn_blocking(poll).await?;
        if let Poll::Ready(output) = polled {
            return Ok(output);
        }
        future = unfinished;
        wake_up.0.notified().await;
    }
}

/// Wakes the task that has the next poll done.
struct WakeUp(Notify);

impl Wake for WakeUp {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// A poll ended without a word of the client's own.
fn interrupted() -> RedisError {
    io::Error::from(io::ErrorKind::Interrupted).into()
}
