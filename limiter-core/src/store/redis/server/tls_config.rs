//! The configuration of rustls for this crate's own connections.

use std::sync::Arc;

use redis::RedisResult;
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::{ClientConfig, RootCertStore};

/// The authorities and the client certificate of a connection. Clones share them.
#[derive(Clone)]
pub(super) enum TlsConfig {
    /// Trusts the authorities of a [`Tls`](super::Tls).
    Given(Arc<ClientConfig>),
    /// Trusts the authorities of the system. The client certificate is that of a [`Tls`](super::Tls), if it has one.
    System(Option<Arc<dyn ResolvesClientCert>>),
}

impl TlsConfig {
    pub(super) fn given(config: ClientConfig) -> Self {
        Self::Given(Arc::new(without_resumption(config)))
    }

    /// Returns the configuration for one connection. The system's authorities are read for each, since they may change
    /// while the program runs. That blocks for longer than a call's deadline.
    pub(super) fn load(&self) -> RedisResult<Arc<ClientConfig>> {
        match self {
            Self::Given(config) => Ok(Arc::clone(config)),
            Self::System(certificate) => {
                let builder = ClientConfig::builder().with_root_certificates(system_roots()?);
                let config = match certificate {
                    Some(certificate) => builder.with_client_cert_resolver(Arc::clone(certificate)),
                    None => builder.with_no_client_auth(),
                };
                Ok(Arc::new(without_resumption(config)))
            }
        }
    }
}

/// Has each connection check the server's certificate, which may have expired since an earlier one.
fn without_resumption(mut config: ClientConfig) -> ClientConfig {
    config.resumption = Resumption::disabled();
    config
}

/// Reads the authorities that the system trusts.
///
/// # Errors
/// One of them cannot be read, so the client rejects all of them.
fn system_roots() -> RedisResult<RootCertStore> {
    let mut found = rustls_native_certs::load_native_certs();
    if let Some(error) = found.errors.pop() {
        return Err(error.into());
    }
    let mut roots = RootCertStore::empty();
    for certificate in found.certs {
        roots.add(certificate)?;
    }
    Ok(roots)
}
