//! Whom to trust, and as whom to be trusted.

use std::fmt;

use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, RedisError, TlsCertificates};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::Error;
use crate::store::redis::server::unusable;

/// Certificates for a store over TLS; see [`Builder::tls`](crate::Builder::tls). All of them are PEM, the text of a
/// file that contains `-----BEGIN CERTIFICATE-----`.
///
/// Without any, the authorities that the system trusts are trusted, and the limiter shows no certificate of its own.
/// They are checked when the limiter is built. The `Debug` form contains none of them.
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
    /// What the system trusts, and no certificate of the limiter's own.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts servers that this authority has signed, in place of those the system trusts. Of several certificates, in
    /// one text or by several calls, each is trusted.
    pub fn root_certificate(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.roots.extend_from_slice(pem.as_ref());
        self.roots.push(b'\n');
        self
    }

    /// Shows this certificate to a server that asks for one (`tls-auth-clients`), and proves it with its key.
    pub fn client_certificate(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        let (client_cert, client_key) = (certificate.as_ref().to_vec(), key.as_ref().to_vec());
        self.client = Some(ClientTlsConfig { client_cert, client_key });
        self
    }

    /// The connection with these certificates.
    pub(super) fn apply(&self, info: ConnectionInfo) -> Result<ConnectionInfo, Error> {
        if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(unusable(
                "there are options for TLS, and the store's URL is without it: write `rediss://`, \
                 `rediss-sentinel://` or `rediss-cluster://`",
            ));
        }
        self.check()?;
        let root_cert = (!self.roots.is_empty()).then(|| self.roots.clone());
        let certificates = TlsCertificates { client_tls: self.client.clone(), root_cert };
        let unreadable = |_: RedisError| unusable("the certificates for TLS cannot be read");
        let client = Client::build_with_tls(info, certificates).map_err(unreadable)?;
        Ok(client.get_connection_info().clone())
    }

    /// What the client takes without a word, or complains of only when it connects.
    fn check(&self) -> Result<(), Error> {
        let mut roots = RootCertStore::empty();
        if !self.roots.is_empty() {
            let wrong = || {
                unusable(
                    "`Tls::root_certificate` takes certificates in PEM, as `-----BEGIN CERTIFICATE-----` and what follows",
                )
            };
            for certificate in certificates(&self.roots).ok_or_else(wrong)? {
                roots.add(certificate).map_err(|_| wrong())?;
            }
        }
        let Some(ClientTlsConfig { client_cert, client_key }) = &self.client else { return Ok(()) };
        let chain = certificates(client_cert).ok_or_else(|| {
            unusable(
                "`Tls::client_certificate` takes, first, a certificate in PEM, as `-----BEGIN CERTIFICATE-----` and what \
                 follows",
            )
        })?;
        let key = PrivateKeyDer::from_pem_slice(client_key).map_err(|_| {
            unusable(
                "`Tls::client_certificate` takes, second, a private key in PEM without a passphrase, as \
                 `-----BEGIN PRIVATE KEY-----` and what follows",
            )
        })?;
        provide_cryptography();
        let config = ClientConfig::builder().with_root_certificates(roots);
        match config.with_client_auth_cert(chain, key) {
            Ok(_) => Ok(()),
            Err(_) => Err(unusable("the client's certificate and its key do not belong together")),
        }
    }
}

/// At least one.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().ok()?;
    (!all.is_empty()).then_some(all)
}

/// Makes sure that rustls has a provider, which it does not choose by itself where a program is built with several.
/// One that the program has installed before stays.
pub(super) fn provide_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error says that another thread was first.
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
