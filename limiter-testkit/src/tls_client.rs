//! A client with TLS for tests. It proves that other clients accept the certificates.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The time in which a server must reply, even on a busy machine.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection to a server whose certificate is signed by one authority.
pub(crate) struct TlsClient(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl TlsClient {
    /// Connects and completes the handshake.
    ///
    /// # Errors
    ///
    /// There is no server, it has no TLS, or its certificate is for another name or of another authority.
    pub(crate) fn connect(address: SocketAddr, name: &'static str, authority: &Path) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority).expect("a certificate")).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("a provider with all of them")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(name).expect("a name");
        let mut connection = ClientConnection::new(Arc::new(config), name).expect("a configuration");
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(REPLY_TIMEOUT))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(Self(BufReader::new(StreamOwned::new(connection, socket))))
    }

    /// Sends a command, and returns the first line of the reply.
    pub(crate) fn call(&mut self, command: &str) -> String {
        write!(self.0.get_mut(), "{command}\r\n").expect("an open connection");
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a reply");
        line.trim_end().to_owned()
    }
}
