//! Certificates for connections over TLS.

use std::fmt;
use std::sync::Arc;

use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, RedisError, RedisResult, TlsCertificates};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::Error;
use crate::store::redis::server::config_error;

/// Certificates for a store over TLS; see [`Builder::tls`](crate::Builder::tls).
///
/// All of them are PEM: the text of a file that contains `-----BEGIN CERTIFICATE-----`. Without root certificates, the
/// limiter trusts the authorities that the system trusts. Without a client certificate, it sends none. The certificates
/// are checked when the limiter is built. The `Debug` form contains none of them.
///
/// ```no_run
/// # use limiter_core as rate_limited;
/// use std::fs;
/// use rate_limited::{Limiter, Tls};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = Tls::new()
///     .root_certificate(fs::read("ca.pem")?)
///     .client_certificate(fs::read("client.pem")?, fs::read("client.key")?);
/// let limiter = Limiter::builder().url("rediss://redis.internal").tls(tls).connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "it is for `Builder::tls`"]
pub struct Tls {
    roots: Vec<u8>,
    client: Option<ClientTlsConfig>,
}

impl Tls {
    /// Creates options that trust the system's authorities and send no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts servers whose certificate this authority has signed, instead of the authorities that the system trusts.
    ///
    /// Several certificates, in one text or by several calls, are all trusted.
    pub fn root_certificate(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.roots.extend_from_slice(pem.as_ref());
        self.roots.push(b'\n');
        self
    }

    /// Sends this certificate to a server that requests one (`tls-auth-clients`), and proves it with its key.
    pub fn client_certificate(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        let (client_cert, client_key) = (certificate.as_ref().to_vec(), key.as_ref().to_vec());
        self.client = Some(ClientTlsConfig { client_cert, client_key });
        self
    }

    /// Adds the certificates to the settings of a connection.
    pub(super) fn apply(&self, info: ConnectionInfo) -> Result<ConnectionInfo, Error> {
        if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(config_error(
                "`tls` must be used with a URL for TLS: write `rediss://`, `rediss-sentinel://` or `rediss-cluster://`",
            ));
        }
        self.config()?;
        let root_cert = (!self.roots.is_empty()).then(|| self.roots.clone());
        let certificates = TlsCertificates { client_tls: self.client.clone(), root_cert };
        let rejected = |_: RedisError| {
            config_error("`tls` must have valid certificates: check `root_certificate` and `client_certificate`")
        };
        let client = Client::build_with_tls(info, certificates).map_err(rejected)?;
        Ok(client.get_connection_info().clone())
    }

    /// Returns the certificates for this crate's own connections.
    ///
    /// # Errors
    /// Also those that the client would ignore, or would report only when it connects.
    pub(super) fn config(&self) -> Result<TlsConfig, Error> {
        let mut roots = RootCertStore::empty();
        if !self.roots.is_empty() {
            let wrong = || {
                config_error(
                    "`Tls::root_certificate` must be one or more certificates in PEM: write the text that begins with \
                     `-----BEGIN CERTIFICATE-----`",
                )
            };
            for certificate in certificates(&self.roots).ok_or_else(wrong)? {
                roots.add(certificate).map_err(|_| wrong())?;
            }
        }
        install_crypto_provider();
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let config = match &self.client {
            Some(client) => {
                let (chain, key) = chain_and_key(client)?;
                builder.with_client_auth_cert(chain, key).map_err(|_| {
                    config_error(
                        "`Tls::client_certificate` must have a certificate and a key that belong together: write the \
                         key of that certificate",
                    )
                })?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(match self.roots.is_empty() {
            true => TlsConfig::System(Some(config.client_auth_cert_resolver)),
            false => TlsConfig::given(config),
        })
    }
}

fn chain_and_key(client: &ClientTlsConfig) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
    let chain = certificates(&client.client_cert).ok_or_else(|| {
        config_error(
            "`Tls::client_certificate` must have a certificate in PEM as its first argument: write the text that \
             begins with `-----BEGIN CERTIFICATE-----`",
        )
    })?;
    let key = PrivateKeyDer::from_pem_slice(&client.client_key).map_err(|_| {
        config_error(
            "`Tls::client_certificate` must have a private key in PEM without a passphrase as its second argument: \
             write the text that begins with `-----BEGIN PRIVATE KEY-----`",
        )
    })?;
    Ok((chain, key))
}

/// Reads all certificates of a text. Returns `None` if there is none, or one is invalid.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().ok()?;
    (!all.is_empty()).then_some(all)
}

/// Installs a cryptography provider for rustls, unless the program has installed one. Without this, rustls fails in a
/// program that is built with several providers.
pub(super) fn install_crypto_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread has installed one first.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("root_certificate", &!self.roots.is_empty())
            .field("client_certificate", &self.client.is_some())
            .finish_non_exhaustive()
    }
}

// The configuration of rustls for this crate's own connections.

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
