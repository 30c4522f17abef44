//! Opens the socket of a connection with TLS.

use std::net::SocketAddr;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, ErrorKind as RedisKind, RedisResult};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client};

use super::lookups::{poll_on_blocking_threads, resolve};
use super::socket::{connect_tcp, first_to_succeed};
use super::tls::{TlsConfig, install_crypto_provider};
use crate::store::redis::pipelined::{Stream, TlsStream};

/// Opens a socket, and performs the handshake. The lookup of the host name is limited to `max_lookup`.
pub(super) async fn open(info: &ConnectionInfo, tls: TlsConfig, max_lookup: Duration) -> RedisResult<TlsStream> {
    let ConnectionAddr::TcpTls { host, port, .. } = info.addr() else {
        return Err((RedisKind::InvalidClientConfig, "the kind of address is not supported").into());
    };
    let addresses = resolve(host, *port, max_lookup).await?;
    let name = ServerName::try_from(host.clone())?;
    let settings = info.tcp_settings().clone();
    // Certificates are read and checked. That must not delay the calls of other connections.
    let stream = poll_on_blocking_threads(connect_any(addresses, name, settings, tls)).await?;
    let (socket, session) = stream.into_inner();
    Ok(TlsStream::new(Stream::Tcp(socket), session))
}

/// Connects to one of the addresses. The handshake is a part of each attempt, so an address of another server hides no
/// other.
async fn connect_any(
    addresses: Vec<SocketAddr>,
    name: ServerName<'static>,
    settings: TcpSettings,
    tls: TlsConfig,
) -> RedisResult<client::TlsStream<TcpStream>> {
    install_crypto_provider();
    let connector = TlsConnector::from(tls.load()?);
    let attempts = addresses.into_iter().map(|address| {
        let (connector, name, settings) = (&connector, name.clone(), &settings);
        async move { connector.connect(name, connect_tcp(address, settings).await?).await }
    });
    Ok(first_to_succeed(attempts).await?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{IpAddr, TcpListener};
    use std::{fs, thread};

    use limiter_testkit::RedisServer;
    use redis::IntoConnectionInfo;
    use rustls::HandshakeKind;

    use super::*;
    use crate::store::redis::command_error::CommandError;
    use crate::{Error, ErrorKind, Tls};

    fn trusting(server: &RedisServer) -> TlsConfig {
        let certificate = fs::read(server.ca_certificate().expect("TLS")).expect("a certificate");
        Tls::new().root_certificate(certificate).config().expect("a certificate")
    }

    fn address(server: &RedisServer) -> SocketAddr {
        let info = server.url().into_connection_info().expect("a URL");
        let ConnectionAddr::TcpTls { host, port, .. } = info.addr() else { panic!("{info:?}") };
        (host.parse::<IpAddr>().expect("an address"), *port).into()
    }

    async fn connect(addresses: &[SocketAddr], tls: &TlsConfig) -> RedisResult<client::TlsStream<TcpStream>> {
        connect_as("localhost", addresses, tls).await
    }

    async fn connect_as(
        name: &'static str,
        addresses: &[SocketAddr],
        tls: &TlsConfig,
    ) -> RedisResult<client::TlsStream<TcpStream>> {
        let name = ServerName::try_from(name).expect("a name");
        connect_any(addresses.to_vec(), name, TcpSettings::default(), tls.clone()).await
    }

    /// Sends these bytes to each client.
    fn other_server(bytes: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            for stream in listener.incoming() {
                // The client may be gone.
                let _ = stream.and_then(|mut stream| stream.write_all(bytes));
            }
        });
        address
    }

    #[tokio::test]
    async fn each_connection_checks_the_certificate() {
        let server = RedisServer::builder().tls().start();
        let tls = trusting(&server);
        for _ in 0..3 {
            let stream = connect(&[address(&server)], &tls).await.expect("a trusted server");
            let (socket, mut session) = stream.into_inner();
            let mut socket = socket.into_std().expect("a socket");
            socket.set_nonblocking(false).expect("a socket");
            // The tickets for a resumption come with the first reply.
            let mut stream = rustls::Stream::new(&mut session, &mut socket);
            stream.write_all(b"PING\r\n").expect("a socket");
            stream.read_exact(&mut [0; 7]).expect("a reply");
            assert_eq!(session.handshake_kind(), Some(HandshakeKind::Full));
        }
    }

    #[tokio::test]
    async fn certificate_must_have_the_name() {
        let server = RedisServer::builder().tls().start();
        let (tls, addresses) = (trusting(&server), [address(&server)]);
        assert!(connect_as("localhost", &addresses, &tls).await.is_ok());
        let error = connect_as("redis.example", &addresses, &tls).await.expect_err("another name");
        let error = Error::from(CommandError::from(error));
        assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    }

    #[tokio::test]
    async fn address_without_tls_hides_no_other() {
        let server = RedisServer::builder().tls().start();
        let (tls, silent) = (trusting(&server), other_server(b""));
        let (right, wrong) = (address(&server), other_server(b"-ERR no TLS here\r\n"));
        for addresses in [[wrong, right], [right, wrong], [silent, right]] {
            assert!(connect(&addresses, &tls).await.is_ok(), "{addresses:?}");
        }
        let error = connect(&[wrong], &tls).await.expect_err("no TLS");
        let error = Error::from(CommandError::from(error));
        assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("corrupt message"), "{error}");
    }
}
