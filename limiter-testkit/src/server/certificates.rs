//! Certificates for a TLS server, created when a test runs. So none is committed and none expires.

use std::path::Path;
use std::{fmt, fs};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

pub(super) const CA_CERTIFICATE: &str = "ca.pem";
pub(super) const CERTIFICATE: &str = "server.pem";
pub(super) const KEY: &str = "server.key";
pub(super) const CLIENT_CERTIFICATE: &str = "client.pem";
pub(super) const CLIENT_KEY: &str = "client.key";

/// The certificate of an authority, and two that it has signed: a server certificate for 127.0.0.1 and `localhost`, and
/// a client certificate.
pub(crate) struct Certificates {
    pems: [(&'static str, String); 5],
}

impl Certificates {
    /// Creates an authority, and certificates that are valid.
    pub(crate) fn create() -> Self {
        Self::create_with(false)
    }

    /// Creates an authority, a server certificate that expired in 2020, and a valid client certificate.
    pub(super) fn create_expired() -> Self {
        Self::create_with(true)
    }

    fn create_with(expired: bool) -> Self {
        Self { pems: create_pems(expired).expect("certificates for a TLS server") }
    }

    /// Writes the files of a server to its directory.
    pub(super) fn write_to(&self, directory: &Path) {
        for (file, pem) in &self.pems {
            fs::write(directory.join(file), pem).expect("writing to the server's own directory");
        }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

fn create_pems(expired: bool) -> Result<[(&'static str, String); 5], Error> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, "limiter-testkit CA");
    let key = KeyPair::generate()?;
    let authority = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);

    let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.distinguished_name.push(DnType::CommonName, "localhost");
    if expired {
        (params.not_before, params.not_after) = (date_time_ymd(2019, 1, 1), date_time_ymd(2020, 1, 1));
    }
    let key = KeyPair::generate()?;
    let server = params.signed_by(&key, &issuer)?.pem();

    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.distinguished_name.push(DnType::CommonName, "a client");
    let client_key = KeyPair::generate()?;
    let client = params.signed_by(&client_key, &issuer)?.pem();
    Ok([
        (CA_CERTIFICATE, authority),
        (CERTIFICATE, server),
        (KEY, key.serialize_pem()),
        (CLIENT_CERTIFICATE, client),
        (CLIENT_KEY, client_key.serialize_pem()),
    ])
}
