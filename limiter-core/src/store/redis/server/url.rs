//! What the URL of a store says.
//!
//! The client reads URLs of one server. Those of several are taken apart here, and the client reads each part, so that
//! users and passwords are written the same way everywhere. Its own words may repeat parts of the URL, so they are left
//! out of every error.

use redis::{ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, parse_redis_url};

use crate::Error;
use crate::store::redis::server::greeting::Mode;
use crate::store::redis::server::sentinels::Sentinels;
use crate::store::redis::server::{Server, unusable};

const SENTINEL_PORT: u16 = 26379;
const PORT: u16 = 6379;

impl Server {
    /// Reads a URL of one server: `redis`, `rediss` and `redis+unix`; or of the sentinels that know it:
    /// `redis-sentinel` and `rediss-sentinel`.
    pub(crate) fn named(url: &str) -> Result<Self, Error> {
        if url.starts_with("redis-sentinel:") || url.starts_with("rediss-sentinel:") {
            return watched(url);
        }
        let (before, fragment) = url.split_once('#').unwrap_or((url, ""));
        if url.starts_with("rediss:") && fragment == "insecure" {
            return Err(unusable(
                "a store's certificate is always checked: instead of `#insecure`, name the authority that signed it by \
                 `Tls::root_certificate`",
            ));
        }
        let wrong = || {
            unusable(
                "the store's URL cannot be read: write `redis://[user:password@]host[:port][/database]` or \
                 `redis+unix:///path[?db=1]`, with special characters in the password percent-encoded",
            )
        };
        if Parts::of(before).is_some_and(|parts| parts.hosts.len() > 1) {
            return Err(unusable(
                "the store's URL names several servers: write `redis-cluster://` for the nodes of a cluster, or \
                 `redis-sentinel://…/name` for sentinels",
            ));
        }
        Ok(Self::at_address(url.into_connection_info().map_err(|_| wrong())?, Mode::Standalone))
    }

    /// Reads a URL of a cluster, `redis-cluster` or `rediss-cluster`: the nodes by which to find the others.
    pub(crate) fn seeds(url: &str) -> Result<Vec<Self>, Error> {
        let wrong = || {
            unusable(
                "the cluster's URL cannot be read: write `redis-cluster://[user:password@]host[:port],host[:port]`, \
                 with special characters in the password percent-encoded",
            )
        };
        let parts = Parts::of(url).ok_or_else(wrong)?;
        if !parts.query.is_empty() {
            return Err(unusable("the cluster's URL has options, and there are none"));
        }
        match parts.path {
            "" | "0" => {}
            database if database.parse::<i64>().is_ok() => {
                return Err(unusable("a cluster has database 0 alone: leave the number out of its URL"));
            }
            _ => return Err(wrong()),
        }
        let nodes = parts.each(parts.userinfo, PORT, 0).ok_or_else(wrong)?;
        Ok(nodes.into_iter().map(|node| Self::at_address(node, Mode::Cluster)).collect())
    }
}

fn watched(url: &str) -> Result<Server, Error> {
    let wrong = || {
        unusable(
            "the sentinels' URL cannot be read: write \
             `redis-sentinel://[user:password@]host[:port],host[:port]/name[/database]`, with the name that the sentinels \
             have for the master, and special characters in the password percent-encoded; a password of the sentinels' \
             own is `?sentinel_password=…`",
        )
    };
    let parts = Parts::of(url).ok_or_else(wrong)?;
    let (name, database) = parts.path.split_once('/').unwrap_or((parts.path, ""));
    if name.is_empty() {
        return Err(unusable(
            "the sentinels' URL names no master: write `redis-sentinel://host:port/name`, with the name that the sentinels \
             have for it",
        ));
    }
    // No other can be configured.
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)) {
        return Err(wrong());
    }
    let database = if database.is_empty() { 0 } else { database.parse().map_err(|_| wrong())? };
    let own = parts.options(&["sentinel_user", "sentinel_password"]).ok_or_else(|| {
        unusable("the options of the sentinels' URL are `sentinel_user` and `sentinel_password`, once each")
    })?;
    let [user, password] = &own[..] else { return Err(wrong()) };
    if user.is_some() && password.is_none() {
        return Err(unusable("the sentinels' URL has a `sentinel_user` without a `sentinel_password`"));
    }
    let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    // As if the first sentinel were the master: what is said of the master itself, but for its address.
    let master = parts.each(parts.userinfo, SENTINEL_PORT, database).ok_or_else(wrong)?;
    let master = master.into_iter().next().ok_or_else(wrong)?;
    let sentinels = parts.each("", SENTINEL_PORT, 0).ok_or_else(wrong)?;
    let sentinels = sentinels.into_iter().map(|sentinel| sentinel.set_redis_settings(settings.clone())).collect();
    Ok(Server::by_sentinels(master, Sentinels::new(sentinels, name.to_owned())))
}

/// A URL of several servers.
struct Parts<'a> {
    tls: bool,
    /// With the `@` that ends it.
    userinfo: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
    query: &'a str,
}

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Option<Self> {
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

    /// Each server, as the client reads it.
    fn each(&self, userinfo: &str, default_port: u16, database: i64) -> Option<Vec<ConnectionInfo>> {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let one = |host: &&str| {
            let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            let port = if has_port { String::new() } else { format!(":{default_port}") };
            format!("{scheme}://{userinfo}{host}{port}/{database}").into_connection_info().ok()
        };
        self.hosts.iter().map(one).collect()
    }

    /// The values of these options, each at most once, and of no other.
    fn options(&self, names: &[&str]) -> Option<Vec<Option<String>>> {
        let mut values = vec![None; names.len()];
        // Only its query is of interest.
        for (name, value) in parse_redis_url(&format!("redis://host?{}", self.query))?.query_pairs() {
            let place = names.iter().position(|known| *known == name)?;
            if values[place].replace(value.into_owned()).is_some() {
                return None;
            }
        }
        Some(values)
    }
}

#[cfg(test)]
mod tests {
    use redis::ConnectionAddr;

    use super::*;
    use crate::ErrorKind;

    /// A URL, and its servers, user and password.
    struct Seeds(&'static str, &'static [&'static str], Option<&'static str>, Option<&'static str>);

    #[test]
    fn seeds_are_read() {
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
            let seeds = Server::seeds(url).expect(url);
            assert_eq!(seeds.iter().map(ToString::to_string).collect::<Vec<_>>(), addresses, "{url}");
            for seed in &seeds {
                let settings = seed.info.redis_settings();
                assert_eq!((settings.username(), settings.password(), settings.db()), (user, password, 0), "{url}");
                let other = seed.at("other", 9);
                assert_eq!(other.info.redis_settings().password(), password);
                assert_eq!(other.is_tls(), seed.is_tls());
                assert_eq!(other.to_string(), format!("redis{}://other:9", if seed.is_tls() { "s" } else { "" }));
            }
        }
    }

    #[test]
    fn seeds_that_cannot_be_are_refused_without_their_password() {
        for (url, told) in [
            ("redis-cluster://:s3cret@a,b/1", "database 0 alone"),
            ("redis-cluster://:s3cret@a/-1", "database 0 alone"),
            ("redis-cluster://:s3cret@a,", "cannot be read"),
            ("redis-cluster://", "cannot be read"),
            ("redis-cluster:", "cannot be read"),
            ("redis-cluster://:s3cret@a:99999", "cannot be read"),
            ("redis-cluster://:s3cret@a/name", "cannot be read"),
            ("redis-cluster://:s3c%FFret@a", "cannot be read"),
            ("redis-cluster://:s3cret@a#s3cret", "cannot be read"),
            ("redis-cluster://a?password=s3cret", "options"),
        ] {
            let error = Server::seeds(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Config, "{url}: {error}");
            let text = format!("{error} {error:?}");
            assert!(text.contains(told) && !text.contains("s3cret"), "{url}: {text}");
        }
    }

    #[test]
    fn sentinels_are_read() {
        let server = Server::named("redis-sentinel://us%2Fer:p%40w@a,[::1]:7/my-master.1_/3?sentinel_password=o%26+o");
        let server = server.expect("a URL");
        let settings = server.info.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("us/er"), Some("p@w"), 3));
        assert_eq!(server.to_string(), "redis-sentinel://a:26379,[::1]:7/my-master.1_");
        let plain = Server::named("redis-sentinel://a/m").expect("a URL");
        assert_eq!(plain.info.redis_settings().db(), 0);
        assert!(!plain.is_tls());
        #[cfg(feature = "tls")]
        assert!(Server::named("rediss-sentinel://a/m").expect("a URL").is_tls());
        assert!(matches!(plain.at("b", 1).info.addr(), ConnectionAddr::Tcp(host, 1) if host == "b"));
    }
}
