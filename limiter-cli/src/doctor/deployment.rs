//! The servers that a URL names. The limiter has accepted the URL before, so errors have no reasons here.

use std::fmt;

use rate_limited::redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, parse_redis_url,
};

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The servers of a URL.
///
/// It has no `Debug`: the settings of a connection contain the password.
#[derive(Clone)]
pub(super) enum Deployment {
    /// One server.
    Single(ConnectionInfo),
    /// Nodes of a cluster, each of which knows the others.
    Cluster(Vec<ConnectionInfo>),
    /// The sentinels of a master.
    Sentinels {
        sentinels: Vec<ConnectionInfo>,
        master: String,
        /// User, password and database of the master. Its address is replaced.
        server: ConnectionInfo,
    },
}

impl Deployment {
    /// Parses a URL. Returns `None` if it is none of these.
    pub(super) fn from_url(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        match scheme {
            "redis-cluster" | "rediss-cluster" => {
                let parts = Parts::split(scheme, rest);
                Some(Self::Cluster(parts.servers(parts.userinfo, REDIS_PORT, 0)?))
            }
            "redis-sentinel" | "rediss-sentinel" => Parts::split(scheme, rest).sentinels(),
            _ => Some(Self::Single(with_resp3(url.into_connection_info().ok()?))),
        }
    }
}

/// The parts of a URL of several servers.
struct Parts<'a> {
    scheme: &'static str,
    /// User and password, including the final `@`.
    userinfo: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
    query: &'a str,
}

impl<'a> Parts<'a> {
    fn split(scheme: &str, rest: &'a str) -> Self {
        let scheme = if scheme.starts_with("rediss") { "rediss" } else { "redis" };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (userinfo, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        Self { scheme, userinfo, hosts: hosts.split(',').collect(), path, query }
    }

    fn servers(&self, userinfo: &str, default_port: u16, database: i64) -> Option<Vec<ConnectionInfo>> {
        let server = |host: &&str| {
            let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            let port = if has_port { String::new() } else { format!(":{default_port}") };
            let url = format!("{}://{userinfo}{host}{port}/{database}", self.scheme);
            url.into_connection_info().ok().map(with_resp3)
        };
        self.hosts.iter().map(server).collect()
    }

    fn sentinels(&self) -> Option<Deployment> {
        let (master, database) = self.path.split_once('/').unwrap_or((self.path, ""));
        let server = self.servers(self.userinfo, SENTINEL_PORT, database.parse().unwrap_or(0))?.into_iter().next()?;
        let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name().set_protocol(ProtocolVersion::RESP3);
        // The host is arbitrary: the client's parser decodes the query.
        for (name, value) in parse_redis_url(&format!("redis://host?{}", self.query))?.query_pairs() {
            settings = match &*name {
                "sentinel_user" => settings.set_username(value),
                "sentinel_password" => settings.set_password(value),
                _ => settings,
            };
        }
        let sentinels = self.servers("", SENTINEL_PORT, 0)?;
        let sentinels = sentinels.into_iter().map(|info| info.set_redis_settings(settings.clone())).collect();
        Some(Deployment::Sentinels { sentinels, master: master.to_owned(), server })
    }
}

/// Returns the settings of another server with the same user, password and database.
pub(super) fn with_address(info: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let address = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    };
    info.clone().set_addr(address)
}

/// Returns the same settings with another database.
pub(super) fn with_database(info: &ConnectionInfo, database: i64) -> ConnectionInfo {
    info.clone().set_redis_settings(info.redis_settings().clone().set_db(database))
}

fn with_resp3(info: ConnectionInfo) -> ConnectionInfo {
    // No `CLIENT SETINFO`, whose refusal would be an entry in the server's `ACL LOG`.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
    info.set_redis_settings(settings)
}

/// The address of a server, without user and password: `host:port` or the path of a socket.
pub(super) struct Address<'a>(pub(super) &'a ConnectionInfo);

impl fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } if host.contains(':') => {
                write!(f, "[{}]:{port}", host.escape_debug())
            }
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                write!(f, "{}:{port}", host.escape_debug())
            }
            ConnectionAddr::Unix(path) => write!(f, "{}", path.display()),
            _ => f.write_str("the server"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(servers: &[ConnectionInfo]) -> Vec<String> {
        servers.iter().map(|info| Address(info).to_string()).collect()
    }

    #[test]
    fn each_kind_of_url_names_its_servers_with_their_credentials() {
        let single = Deployment::from_url("redis://user:pw@host/3");
        let Some(Deployment::Single(info)) = single else { panic!("one server") };
        assert_eq!(Address(&info).to_string(), "host:6379");
        assert_eq!((info.redis_settings().username(), info.redis_settings().db()), (Some("user"), 3));
        assert_eq!(with_database(&info, 0).redis_settings().db(), 0);

        let cluster = Deployment::from_url("rediss-cluster://us%40er:p@a,b:7000,[::1]");
        let Some(Deployment::Cluster(nodes)) = cluster else { panic!("a cluster") };
        assert_eq!(addresses(&nodes), ["a:6379", "b:7000", "[::1]:6379"]);
        assert_eq!(nodes[2].redis_settings().username(), Some("us@er"));
        let other = with_address(&nodes[0], "c", 9);
        assert!(matches!(other.addr(), ConnectionAddr::TcpTls { port: 9, .. }), "TLS stays");

        let url = "redis-sentinel://user:pw@a,b:7/main/2?sentinel_user=s&sentinel_password=o%26k";
        let Some(Deployment::Sentinels { sentinels, master, server }) = Deployment::from_url(url) else {
            panic!("sentinels")
        };
        assert_eq!((addresses(&sentinels), &master[..]), (vec!["a:26379".to_owned(), "b:7".to_owned()], "main"));
        assert_eq!((server.redis_settings().username(), server.redis_settings().db()), (Some("user"), 2));
        let settings = sentinels[1].redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("s"), Some("o&k"), 0));
        assert!(Deployment::from_url("nonsense").is_none());
    }
}
