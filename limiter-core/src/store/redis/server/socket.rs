//! Opens the socket of a connection without TLS.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::SockRef;
use redis::{ConnectionAddr, ConnectionInfo, ErrorKind as RedisKind, RedisResult};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use super::lookups::resolve;
use crate::store::redis::pipelined::Stream;

/// Opens a socket. The lookup of the host name is limited to `max_lookup`.
pub(super) async fn open(info: &ConnectionInfo, max_lookup: Duration) -> RedisResult<Stream> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let addresses = resolve(host, *port, max_lookup).await?;
            let connect = |address| connect_tcp(address, info.tcp_settings());
            Ok(Stream::Tcp(first_to_succeed(addresses.into_iter().map(connect)).await?))
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path).await?)),
        _ => Err((RedisKind::InvalidClientConfig, "the kind of address is not supported").into()),
    }
}

/// Connects to an address.
pub(super) async fn connect_tcp(address: SocketAddr, settings: &TcpSettings) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    apply(settings, &stream)?;
    Ok(stream)
}

/// Attempts to connect to all addresses at once, and returns the first result. One that does not reply delays no other.
///
/// # Errors
/// That of the last address to fail.
pub(super) async fn first_to_succeed<T>(
    attempts: impl Iterator<Item = impl Future<Output = io::Result<T>>>,
) -> io::Result<T> {
    let mut attempts: Vec<_> = attempts.map(Box::pin).collect();
    let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
    poll_fn(|context| {
        attempts.retain_mut(|attempt| match attempt.as_mut().poll(context) {
            Poll::Ready(connected) if result.is_err() => {
                result = connected;
                false
            }
            Poll::Ready(_) => false,
            Poll::Pending => true,
        });
        if result.is_ok() || attempts.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    result
}

fn apply(settings: &TcpSettings, stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(settings.nodelay())?;
    let socket = SockRef::from(stream);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    if let Some(timeout) = settings.user_timeout() {
        socket.set_tcp_user_timeout(Some(timeout))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use redis::IntoConnectionInfo;
    use redis::io::tcp::socket2::TcpKeepalive;

    use super::*;

    fn refusing() -> SocketAddr {
        // The port is free again at the end of this function.
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
    }

    #[tokio::test]
    async fn an_address_that_refuses_hides_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        for addresses in [[refusing(), address], [address, refusing()]] {
            let stream = first_to_succeed(addresses.into_iter().map(TcpStream::connect)).await.expect("one listens");
            assert_eq!(stream.peer_addr().expect("connected"), address);
        }
        let attempts = [refusing(), refusing()].into_iter().map(TcpStream::connect);
        let error = first_to_succeed(attempts).await.expect_err("none listens");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn settings_are_applied() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let info = format!("redis://{address}").into_connection_info().expect("a URL");
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(7));
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true).set_keepalive(keepalive));
        let Ok(Stream::Tcp(stream)) = open(&info, Duration::from_secs(60)).await else { panic!("it listens") };
        let socket = SockRef::from(&stream);
        assert!(stream.nodelay().expect("a socket") && socket.keepalive().expect("a socket"));
        assert_eq!(socket.tcp_keepalive_time().expect("a socket"), Duration::from_secs(7));
    }
}
