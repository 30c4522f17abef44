//! Opens the socket of a connection with TLS.

use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, ErrorKind as RedisKind, RedisResult};
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::blocking_polls::poll_on_blocking_threads;
use super::lookups::resolve;
use super::socket::{connect_tcp, first_to_succeed};
use super::tls::install_crypto_provider;
use super::tls_config::TlsConfig;
use crate::store::redis::pipelined::{Stream, TlsStream};

/// Opens a socket, and performs the handshake. The lookup of the host name is limited to `max_lookup`.
pub(super) async fn open(info: &ConnectionInfo, tls: TlsConfig, max_lookup: Duration) -> RedisResult<TlsStream> {
    let ConnectionAddr::TcpTls { host, port, .. } = info.addr() else {
        return Err((RedisKind::InvalidClientConfig, "the kind of address is not supported").into());
    };
    let addresses = resolve(host, *port, max_lookup).await?;
    let name = ServerName::try_from(host.clone())?;
    let settings = info.tcp_settings().clone();
    let attempt = async move {
        install_crypto_provider();
        let connector = TlsConnector::from(tls.load()?);
        // An address where another server listens hides no other: the handshake is a part of each attempt.
        let attempts = addresses.into_iter().map(|address| {
            let (connector, name, settings) = (connector.clone(), name.clone(), &settings);
            async move { connector.connect(name, connect_tcp(address, settings).await?).await }
        });
        Ok(first_to_succeed(attempts).await?)
    };
    // Certificates are read and checked. That must not delay the calls of other connections.
    let (socket, session) = poll_on_blocking_threads(attempt).await?.into_inner();
    Ok(TlsStream::new(Stream::Tcp(socket), session))
}
