//! One attempt to connect with the `redis` client.

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
use crate::store::redis::server::lookups::resolve;

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

/// Runs a future whose polls may block. Each poll is a job for the runtime's blocking pool, and between two polls no
/// thread is occupied.
///
/// A poll may outlive the runtime, which does not wait for it. Sockets and tasks then return errors. Only a timer would
/// panic, so the future must have none.
async fn poll_on_blocking_threads<F>(future: F) -> Result<F::Output, JoinError>
where
    F: Future<Output: Send> + Send + 'static,
{
    let woken = Arc::new(NotifyWaker(Notify::new()));
    let mut future = Box::pin(future);
    loop {
        let waker = Waker::from(Arc::clone(&woken));
        let poll = move || {
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            (polled, future)
        };
        let (polled, unfinished) = spawn_blocking(poll).await?;
        if let Poll::Ready(output) = polled {
            return Ok(output);
        }
        future = unfinished;
        woken.0.notified().await;
    }
}

/// Wakes the task that submits polls to the blocking threads.
struct NotifyWaker(Notify);

impl Wake for NotifyWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// The error of an attempt whose poll panicked, or was dropped with the runtime.
fn interrupted() -> RedisError {
    io::Error::from(io::ErrorKind::Interrupted).into()
}
