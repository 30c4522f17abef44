//! The transport between limiters and the servers that a run starts for them.

use std::fs;
use std::path::PathBuf;

use limiter_testkit::{Cluster, ClusterBuilder, RedisServer, RedisServerBuilder, Sentinels, SentinelsBuilder};
use rate_limited::{Builder, Limiter, Tls};

/// The transport between limiters and their servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// No encryption.
    #[default]
    Plain,
    /// TLS, with certificates that are made for the run.
    Tls,
}

impl Transport {
    /// Returns a builder for a server with this transport. Without TLS, clients connect by its Unix socket.
    pub(crate) fn server(self) -> RedisServerBuilder {
        let server = RedisServer::builder();
        if self == Self::Tls { server.tls() } else { server }
    }

    /// Returns a builder for a cluster with this transport.
    pub(crate) fn cluster(self) -> ClusterBuilder {
        let cluster = Cluster::builder();
        if self == Self::Tls { cluster.tls() } else { cluster }
    }

    /// Returns a builder for a master, its replica and sentinels with this transport.
    pub(crate) fn sentinels(self) -> SentinelsBuilder {
        let sentinels = Sentinels::builder();
        if self == Self::Tls { sentinels.tls() } else { sentinels }
    }
}

/// Returns a builder for a limiter. With TLS it trusts the authority whose certificate is in this PEM file.
pub(crate) fn limiter_builder(url: &str, ca_certificate: Option<PathBuf>) -> Builder {
    let builder = Limiter::builder().url(url);
    match ca_certificate {
        Some(file) => builder.tls(Tls::new().root_certificate(fs::read(file).expect("the server's certificate"))),
        None => builder,
    }
}
