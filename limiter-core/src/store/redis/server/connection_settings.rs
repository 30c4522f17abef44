//! The settings of the connections to a server.

use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion};

#[cfg(feature = "tls")]
use super::Tls;
#[cfg(feature = "tls")]
use super::tls::TlsConfig;
#[cfg(feature = "tls")]
use crate::Error;

/// User, password, database, certificates and address.
#[derive(Clone)]
pub(super) struct ConnectionSettings {
    info: ConnectionInfo,
    /// The certificates of a [`Tls`]. Those in the client's own settings cannot be read.
    #[cfg(feature = "tls")]
    tls: Option<TlsConfig>,
}

impl ConnectionSettings {
    /// Adds the options that the limiter needs on every connection.
    pub(super) fn new(info: ConnectionInfo) -> Self {
        // With RESP3 the client reports a lost connection at once, before a command fails.
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        // Without this the kernel delays a small command until the one before it has been acknowledged.
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        Self {
            info,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// The settings as the client has them.
    pub(super) fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    pub(super) fn into_info(self) -> ConnectionInfo {
        self.info
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// Sets the certificates.
    #[cfg(feature = "tls")]
    pub(super) fn with_tls(self, tls: &Tls) -> Result<Self, Error> {
        Ok(Self { info: tls.apply(self.info)?, tls: Some(tls.config()?) })
    }

    /// Returns true if a connection of this crate's own can have all of the settings.
    pub(super) fn can_be_read(&self) -> bool {
        #[cfg(feature = "tls")]
        let is_tls_readable = self.readable_tls().is_some();
        #[cfg(not(feature = "tls"))]
        let is_tls_readable = false;
        (is_tls_readable || !self.is_tls()) && have_getters(self.info.tcp_settings())
    }

    /// Returns the certificates for a connection of this crate's own. Returns `None` without TLS, and if only the client
    /// can read them.
    #[cfg(feature = "tls")]
    pub(super) fn readable_tls(&self) -> Option<TlsConfig> {
        match self.info.addr() {
            // The client rejects it, unless the program has built it with the feature for that.
            ConnectionAddr::TcpTls { insecure: true, .. } => None,
            ConnectionAddr::TcpTls { tls_params: None, .. } => Some(TlsConfig::System(None)),
            ConnectionAddr::TcpTls { .. } => self.tls.clone(),
            _ => None,
        }
    }

    /// Replaces user and password, or other settings of the client.
    pub(super) fn map_info(mut self, change: impl FnOnce(&ConnectionInfo) -> ConnectionInfo) -> Self {
        self.info = change(&self.info);
        self
    }

    /// Replaces the address, and keeps everything else, TLS included.
    pub(super) fn with_address(&self, host: &str, port: u16) -> Self {
        let address = match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host: host.to_owned(),
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host.to_owned(), port),
        };
        self.clone().map_info(|info| info.clone().set_addr(address))
    }
}

/// Returns true if all settings have getters. `linger` has none, and later versions of the client may have more such
/// settings, so the texts of all settings are compared.
fn have_getters(settings: &TcpSettings) -> bool {
    let mut readable = TcpSettings::default().set_nodelay(settings.nodelay());
    if let Some(keepalive) = settings.keepalive() {
        readable = readable.set_keepalive(keepalive.clone());
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    if let Some(timeout) = settings.user_timeout() {
        readable = readable.set_user_timeout(timeout);
    }
    format!("{settings:?}") == format!("{readable:?}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis::io::tcp::socket2::TcpKeepalive;

    use super::*;

    #[test]
    fn settings_without_getter_are_left_to_the_client() {
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(7));
        let readable = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        assert!(have_getters(&TcpSettings::default()) && have_getters(&readable));
        assert!(!have_getters(&readable.set_linger_time(Duration::ZERO)));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn certificates_of_a_client_are_left_to_it() {
        use redis::{Client, TlsCertificates};

        let url = "rediss://a/3";
        let with_own = || {
            let certificates = TlsCertificates { client_tls: None, root_cert: None };
            ConnectionSettings::new(
                Client::build_with_tls(url, certificates).expect("a URL").get_connection_info().clone(),
            )
        };
        let of_url =
            |url: &str| ConnectionSettings::new(Client::open(url).expect("a URL").get_connection_info().clone());
        for (settings, expected) in [
            (of_url("redis://a"), true),
            (of_url(url), true),
            (of_url("rediss://a/#insecure"), false),
            (with_own(), false),
            (with_own().with_tls(&Tls::new()).expect("TLS"), true),
            (of_url("rediss://a/#insecure").with_tls(&Tls::new()).expect("TLS"), false),
        ] {
            let elsewhere = settings.with_address("b", 1).map_info(Clone::clone);
            for settings in [settings, elsewhere] {
                assert_eq!(settings.can_be_read(), expected, "{:?}", settings.info());
            }
        }
        let lingering = of_url(url).map_info(|info| {
            info.clone().set_tcp_settings(info.tcp_settings().clone().set_linger_time(Duration::ZERO))
        });
        assert!(!lingering.can_be_read());
    }
}
