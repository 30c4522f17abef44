//! The hosts by which a request may reach the page.
//!
//! A page of others can point its own name at this server, and is then of one origin with it. The name is in `Host`.

use std::net::IpAddr;

use axum::http::header::HOST;
use axum::http::request::Parts;

use crate::error::Error;

/// The names of the page besides the loopback addresses, in lower case.
pub(crate) struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    pub(crate) fn new(names: Vec<String>) -> Result<Self, Error> {
        let is_name = |name: &String| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte))
        };
        if let Some(wrong) = names.iter().find(|name| !is_name(name) || name_of(name) != Some(name.as_str())) {
            return Err(Error::new(format!(
                "`hosts` must be names or addresses without a port, got {wrong:?}: write one such as `limits.example.com`"
            )));
        }
        Ok(Self { names: names.into_iter().map(|name| name.to_ascii_lowercase()).collect() })
    }

    /// Returns whether all hosts that a request names are permitted. It must name one.
    pub(crate) fn permit(&self, parts: &Parts) -> bool {
        let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
        let mut named = parts.headers.get_all(HOST).iter().map(|host| host.as_bytes()).chain(authority).peekable();
        named.peek().is_some() && named.all(|host| std::str::from_utf8(host).is_ok_and(|host| self.permits(host)))
    }

    fn permits(&self, host: &str) -> bool {
        let Some(name) = name_of(host) else { return false };
        let address = name.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
        is_loopback
            || name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Returns the name of a host without its port.
fn name_of(host: &str) -> Option<&str> {
    let (name, port) = match host.rfind(']') {
        Some(end) => host.split_at(end + 1),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    is_port.then_some(name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_and_named_hosts_are_permitted() {
        let hosts = Hosts::new(vec!["Limits.example.com".to_owned()]).expect("a name");
        for host in [
            "localhost",
            "LOCALHOST:8088",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.1.2.3:1",
            "[::1]",
            "[::1]:8088",
            "limits.example.com",
            "LIMITS.example.com:443",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(hosts.permits(host), "{host}");
        }
        for host in [
            "",
            ":80",
            "evil.example.com",
            "localhost.evil.example.com",
            "127.0.0.1.evil.example.com",
            "10.0.0.1",
            "limits.example.com:x",
            "limits.example.com@evil",
            "user@localhost",
            "[::2]",
            "localhost:99999",
            "::1",
        ] {
            assert!(!hosts.permits(host), "{host}");
        }
        for wrong in ["", "a:80", "http://a", "a/b", "a b"] {
            assert!(Hosts::new(vec![wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
