//! The other end of a request's connection.

use std::net::{IpAddr, SocketAddr};

use http::request::Parts;

/// The other end of a request's connection, for servers other than those of axum and tonic.
///
/// The server puts it into the extensions of each request. A server of axum with `ConnectInfo<SocketAddr>` needs none,
/// with the feature `axum`. A server of tonic needs none with the feature `tonic`, unless tonic itself
/// ends TLS: a layer before this one then puts it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// `None` for a Unix socket.
    address: Option<IpAddr>,
}

impl Peer {
    /// Creates the peer of a TCP connection.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self { address: Some(address.ip().to_canonical()) }
    }

    /// Creates the peer of a Unix socket. It has no address.
    #[must_use]
    pub fn unix() -> Self {
        Self { address: None }
    }

    /// The address; `None` for a Unix socket. An IPv4-mapped IPv6 address is IPv4.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.address
    }

    /// Returns the peer of a request; `None` if the server put none into its extensions.
    pub(crate) fn of(parts: &Parts) -> Option<Self> {
        if let Some(peer) = parts.extensions.get::<Self>() {
            return Some(*peer);
        }
        #[cfg(feature = "axum")]
        if let Some(axum::extract::ConnectInfo(address)) = parts.extensions.get() {
            return Some(Self::new(*address));
        }
        #[cfg(feature = "tonic")]
        if let Some(peer) = of_tonic(parts) {
            return Some(peer);
        }
        None
    }
}

/// Returns the peer of a request to a server of tonic.
#[cfg(feature = "tonic")]
fn of_tonic(parts: &Parts) -> Option<Peer> {
    use tonic::transport::server::TcpConnectInfo;

    if let Some(tcp) = parts.extensions.get::<TcpConnectInfo>() {
        return tcp.remote_addr().map(Peer::new);
    }
    #[cfg(unix)]
    if parts.extensions.get::<tonic::transport::server::UdsConnectInfo>().is_some() {
        return Some(Peer::unix());
    }
    None
}
