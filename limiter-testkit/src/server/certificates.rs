//! Certificates for a TLS server, made when a test runs: nothing to commit, nothing that runs out.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

pub(super) const CA_CERTIFICATE: &str = "ca.pem";
pub(super) const CERTIFICATE: &str = "server.pem";
pub(super) const KEY: &str = "server.key";

/// Writes an authority's certificate, and what a server at 127.0.0.1 and `localhost` needs.
pub(super) fn write_to(directory: &Path) {
    let pems = make().expect("certificates for a TLS server");
    for (file, pem) in [(CA_CERTIFICATE, pems.authority), (CERTIFICATE, pems.server), (KEY, pems.key)] {
        fs::write(directory.join(file), pem).expect("writing to the server's own directory");
    }
}

struct Pems {
    authority: String,
    server: String,
    key: String,
}

fn make() -> Result<Pems, Error> {
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
    let key = KeyPair::generate()?;
    let server = params.signed_by(&key, &issuer)?.pem();
    Ok(Pems { authority, server, key: key.serialize_pem() })
}
