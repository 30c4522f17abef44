//! The URLs of stores.
//!
//! The client parses URLs of one server. A URL of several servers is split here, and the client parses each part, so
//! users and passwords are written in the same way everywhere. The client's error messages may repeat parts of the URL,
//! so no error here contains them.

use redis::{ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, parse_redis_url};

use crate::Error;
use crate::store::redis::server::sentinels::Sentinels;
use crate::store::redis::server::server_info::ServerMode;
use crate::store::redis::server::{Discovery, Server, config_error};

const SENTINEL_PORT: u16 = 26379;
const REDIS_PORT: u16 = 6379;

const SERVER_SYNTAX: &str = "`redis://[user:password@]host[:port][/database]`";
const CLUSTER_SYNTAX: &str = "`redis-cluster://[user:password@]host[:port],host[:port]`";
const SENTINEL_SYNTAX: &str = "`redis-sentinel://[user:password@]host[:port],host[:port]/name[/database]`";

impl Server {
    /// Parses a URL of one server: `redis`, `rediss` and `redis+unix`; or of the sentinels that monitor it:
    /// `redis-sentinel` and `rediss-sentinel`.
    pub(crate) fn from_url(url: &str) -> Result<Self, Error> {
        if url.starts_with("redis-sentinel:") || url.starts_with("rediss-sentinel:") {
            return from_sentinel_url(url);
        }
        let (before, fragment) = url.split_once('#').unwrap_or((url, ""));
        if url.starts_with("rediss:") && fragment == "insecure" {
            return Err(config_error(
                "`url` must not end in `#insecure`: set `Tls::root_certificate` to the authority that signed the \
                 server's certificate",
            ));
        }
        let parts = UrlParts::split(before);
        if let Some(UrlParts { hosts, .. }) = &parts
            && hosts.len() > 1
        {
            return Err(config_error(format!(
                "`url` must have one host, got {}: write `redis-cluster://` for the nodes of a cluster, or \
                 `redis-sentinel://…/name` for sentinels",
                hosts.len()
            )));
        }
        let info = url.into_connection_info().map_err(|_| {
            if url.starts_with("redis+unix:") {
                return config_error(
                    "`url` must have the path of a socket and, if any, a number as its database: write \
                     `redis+unix:///path[?db=1]`",
                );
            }
            if url.starts_with("redis:///") || url.starts_with("rediss:///") {
                return config_error(
                    "`url` must have a host: write `redis://host:port`, or `redis+unix:///path` for the path of a \
                     socket",
                );
            }
            syntax_error(parts.as_ref(), SERVER_SYNTAX)
        })?;
        Ok(Self::new(info, Discovery::Fixed(ServerMode::Standalone)))
    }

    /// Parses a URL of a cluster, `redis-cluster` or `rediss-cluster`, into the nodes that report the others.
    pub(crate) fn seeds_from_url(url: &str) -> Result<Vec<Self>, Error> {
        let parts = UrlParts::split(url);
        let wrong = || syntax_error(parts.as_ref(), CLUSTER_SYNTAX);
        let parts = parts.as_ref().ok_or_else(wrong)?;
        if !parts.query.is_empty() {
            return Err(config_error(
                "`url` must have no options for a cluster: write it without `?` and what follows",
            ));
        }
        match parts.path {
            "" | "0" => {}
            database if database.parse::<i64>().is_ok() => {
                return Err(config_error(format!(
                    "`url` must have database 0 or none for a cluster, got {database}: write it without the number"
                )));
            }
            _ => return Err(wrong()),
        }
        let nodes = parts.servers(parts.userinfo, REDIS_PORT, 0).ok_or_else(wrong)?;
        Ok(nodes.into_iter().map(|node| Self::new(node, Discovery::Fixed(ServerMode::Cluster))).collect())
    }
}

fn from_sentinel_url(url: &str) -> Result<Server, Error> {
    let parts = UrlParts::split(url);
    let wrong = || syntax_error(parts.as_ref(), SENTINEL_SYNTAX);
    let parts = parts.as_ref().ok_or_else(wrong)?;
    let (name, database) = parts.path.split_once('/').unwrap_or((parts.path, ""));
    // Redis accepts no other characters in the name of a master.
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)) {
        return Err(config_error(
            "`url` must have the master's name of letters, digits, `.`, `-` and `_` after the hosts: write \
             `redis-sentinel://host:port/name`, with the name that the sentinels have for the master",
        ));
    }
    let database = if database.is_empty() { Ok(0) } else { database.parse() };
    let database = database.map_err(|_| requirement_error("a number as its database", SENTINEL_SYNTAX))?;
    let own = parts.options(&["sentinel_user", "sentinel_password"]).ok_or_else(|| {
        config_error(
            "`url` must have no options but `sentinel_user` and `sentinel_password`, each at most once: write \
             `?sentinel_user=…&sentinel_password=…`",
        )
    })?;
    let [user, password] = &own[..] else { return Err(wrong()) };
    if user.is_some() && password.is_none() {
        return Err(config_error(
            "`url` must have a `sentinel_password` where it has a `sentinel_user`: write \
             `?sentinel_user=…&sentinel_password=…`",
        ));
    }
    let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    // The settings of the master are parsed with the first sentinel's address, which is replaced later.
    let master = parts.servers(parts.userinfo, SENTINEL_PORT, database).ok_or_else(wrong)?;
    let master = master.into_iter().next().ok_or_else(wrong)?;
    let sentinels = parts.servers("", SENTINEL_PORT, 0).ok_or_else(wrong)?;
    let sentinels = sentinels.into_iter().map(|sentinel| sentinel.set_redis_settings(settings.clone())).collect();
    Ok(Server::new(master, Discovery::Sentinels(Sentinels::new(sentinels, name.to_owned()))))
}

/// The error of a URL that cannot be parsed. It names the wrong part, without its text.
fn syntax_error(parts: Option<&UrlParts<'_>>, syntax: &str) -> Error {
    requirement_error(parts.map_or("`://` and no `#`", UrlParts::violated_requirement), syntax)
}

fn requirement_error(requirement: &str, syntax: &str) -> Error {
    config_error(format!(
        "`url` must have {requirement}: write {syntax}; write special characters in the user and the password percent-encoded"
    ))
}

/// The parts of a URL of one or more servers.
struct UrlParts<'a> {
    tls: bool,
    /// User and password, including the final `@`.
    userinfo: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
    query: &'a str,
}

impl<'a> UrlParts<'a> {
    fn split(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        if rest.contains('#') {
            return None;
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (userinfo, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let hosts: Vec<_> = hosts.split(',').collect();
        Some(Self { tls: scheme.starts_with("rediss"), userinfo, hosts, path, query })
    }

    /// Parses each server by the client's parser.
    fn servers(&self, userinfo: &str, default_port: u16, database: i64) -> Option<Vec<ConnectionInfo>> {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let server = |host: &&str| {
            let port = if without_port(host) == *host { format!(":{default_port}") } else { String::new() };
            format!("{scheme}://{userinfo}{host}{port}/{database}").into_connection_info().ok()
        };
        self.hosts.iter().map(server).collect()
    }

    /// Returns the requirement that the URL does not meet: of its user and password, hosts, ports and path, in this
    /// order.
    fn violated_requirement(&self) -> &'static str {
        let is_valid = |rest: &str| format!("redis://{rest}").into_connection_info().is_ok();
        if !is_valid(&format!("{}host", self.userinfo)) {
            return "a percent-encoded user and password";
        }
        for host in &self.hosts {
            let name = without_port(host);
            if !is_valid(name) {
                // A text that is no port is still part of the name.
                let is_port_wrong = name.rsplit_once(':').is_some_and(|(name, _)| is_valid(name));
                return if is_port_wrong { "a port from 0 to 65535" } else { "a valid host" };
            }
        }
        match self.path.trim_matches('/').parse::<i64>() {
            Err(_) if !self.path.is_empty() => "a number as its database",
            _ => "valid options and no `#`",
        }
    }

    /// Returns the values of these options. Returns `None` if there is another option, or one of them twice.
    fn options(&self, names: &[&str]) -> Option<Vec<Option<String>>> {
        let mut values = vec![None; names.len()];
        // The host is arbitrary: the client's parser decodes the query.
        for (name, value) in parse_redis_url(&format!("redis://host?{}", self.query))?.query_pairs() {
            let index = names.iter().position(|known| *known == name)?;
            if values[index].replace(value.into_owned()).is_some() {
                return None;
            }
        }
        Some(values)
    }
}

/// Removes a valid port from the end of a host.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use redis::ConnectionAddr;

    use super::*;
    use crate::ErrorKind;

    /// A URL, and the expected servers, user and password.
    struct Seeds(&'static str, &'static [&'static str], Option<&'static str>, Option<&'static str>);

    #[test]
    fn parses_cluster_urls() {
        for Seeds(url, addresses, user, password) in [
            Seeds("redis-cluster://a", &["redis://a:6379"], None, None),
            Seeds("redis-cluster://a,b:7000/", &["redis://a:6379", "redis://b:7000"], None, None),
            Seeds(
                "redis-cluster://us%40er:p%2Cw@a:1,b:2/0",
                &["redis://a:1", "redis://b:2"],
                Some("us@er"),
                Some("p,w"),
            ),
            Seeds("redis-cluster://:p@[::1]:7,[::2]", &["redis://[::1]:7", "redis://[::2]:6379"], None, Some("p")),
            #[cfg(feature = "tls")]
            Seeds("rediss-cluster://user:p@a,b", &["rediss://a:6379", "rediss://b:6379"], Some("user"), Some("p")),
        ] {
            let seeds = Server::seeds_from_url(url).expect(url);
            assert_eq!(seeds.iter().map(ToString::to_string).collect::<Vec<_>>(), addresses, "{url}");
            for seed in &seeds {
                let settings = seed.settings.info().redis_settings();
                assert_eq!((settings.username(), settings.password(), settings.db()), (user, password, 0), "{url}");
                let other = seed.other_node("other", 9);
                assert_eq!(other.settings.info().redis_settings().password(), password);
                assert_eq!(other.is_tls(), seed.is_tls());
                assert_eq!(other.to_string(), format!("redis{}://other:9", if seed.is_tls() { "s" } else { "" }));
            }
        }
    }

    #[test]
    fn rejected_urls_name_the_wrong_part_and_not_the_password() {
        let single = Server::from_url as fn(&str) -> _;
        let seeds = |url: &str| Server::seeds_from_url(url).map(|mut seeds| seeds.remove(0));
        for (url, message) in [
            ("rediss://:s3cret@a#insecure", "must not end in `#insecure`"),
            ("redis://:s3cret@a,b", "must have one host, got 2: write `redis-cluster://`"),
            ("redis:s3cret", "must have `://`"),
            ("redis://:s3cret@", "must have a valid host"),
            ("redis://:s3cret@:1", "must have a valid host"),
            ("redis://:s3cret@0.0.0.0", "must have a valid host"),
            ("redis://:s3cret@a:99999", "must have a port from 0 to 65535"),
            ("redis://:s3cret@a:port", "must have a port from 0 to 65535"),
            ("redis://user:s3cret/x@a", "must have a port from 0 to 65535"),
            ("redis://:s3c%FFret@a", "must have a percent-encoded user and password"),
            ("redis://:s3cret@a/name", "must have a number as its database"),
            ("redis://:s3cret@a?protocol=s3cret", "must have valid options"),
            ("redis:///s3cret.sock", "must have a host: write `redis://host:port`, or `redis+unix:///path`"),
            ("redis+unix://", "must have the path of a socket and, if any, a number as its database"),
            ("redis+unix:///path?db=s3cret", "must have the path of a socket and, if any, a number as its database"),
            ("redis-cluster://:s3cret@a,b/1", "must have database 0 or none for a cluster, got 1"),
            ("redis-cluster://:s3cret@a/-1", "must have database 0 or none for a cluster, got -1"),
            ("redis-cluster://:s3cret@a,", "must have a valid host"),
            ("redis-cluster://", "must have a valid host"),
            ("redis-cluster:", "must have `://`"),
            ("redis-cluster://:s3cret@a:99999", "must have a port from 0 to 65535"),
            ("redis-cluster://:s3cret@a/name", "must have a number as its database"),
            ("redis-cluster://:s3c%FFret@a", "must have a percent-encoded user and password"),
            ("redis-cluster://:s3cret@a#s3cret", "must have `://` and no `#`"),
            ("redis-cluster://a?password=s3cret", "must have no options for a cluster"),
            ("redis-sentinel://:s3cret@a", "must have the master's name"),
            ("redis-sentinel://:s3cret@a/na%20me", "must have the master's name of letters"),
            ("redis-sentinel://:s3cret@a/m/name", "must have a number as its database"),
            ("redis-sentinel://:s3cret@a:99999/m", "must have a port from 0 to 65535"),
            ("redis-sentinel://:s3cret@/m", "must have a valid host"),
            ("redis-sentinel://:s3c%FFret@a/m", "must have a percent-encoded user and password"),
            ("redis-sentinel://a/m?password=s3cret", "must have no options but `sentinel_user`"),
            ("redis-sentinel://a/m?sentinel_password=s3cret&sentinel_password=b", "each at most once"),
            ("redis-sentinel://a/m?sentinel_user=s3cret", "must have a `sentinel_password`"),
            ("redis-sentinel:s3cret", "must have `://`"),
        ] {
            let parse: &dyn Fn(&str) -> Result<Server, Error> =
                if url.starts_with("redis-cluster") { &seeds } else { &single };
            let error = parse(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Config, "{url}: {error}");
            let text = format!("{error} {error:?}");
            assert!(text.starts_with("`url` ") && text.contains(message) && !text.contains("s3cret"), "{url}: {text}");
        }
    }

    #[test]
    fn parses_sentinel_urls() {
        let server =
            Server::from_url("redis-sentinel://us%2Fer:p%40w@a,[::1]:7/my-master.1_/3?sentinel_password=o%26+o");
        let server = server.expect("a URL");
        let settings = server.settings.info().redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("us/er"), Some("p@w"), 3));
        assert_eq!(server.to_string(), "redis-sentinel://a:26379,[::1]:7/my-master.1_");
        let plain = Server::from_url("redis-sentinel://a/m").expect("a URL");
        assert_eq!(plain.settings.info().redis_settings().db(), 0);
        assert!(!plain.is_tls());
        #[cfg(feature = "tls")]
        assert!(Server::from_url("rediss-sentinel://a/m").expect("a URL").is_tls());
        assert!(matches!(plain.other_node("b", 1).settings.info().addr(), ConnectionAddr::Tcp(host, 1) if host == "b"));
    }
}
