//! The version, mode and role of a server, and the check that the limiter can use it.

use redis::{Value, cmd};

use crate::store::redis::command_error::CommandError;
use crate::store::redis::server::{DataConnection, config_error};
use crate::{Error, ErrorKind};

/// The oldest supported version of Redis: major and minor number.
const MIN_VERSION: (u32, u32) = (6, 2);

/// A well-formed script digest that no script has.
const UNKNOWN_DIGEST: &str = "0000000000000000000000000000000000000000";

/// The fields of a reply to HELLO. A proxy may omit any of them.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ServerInfo {
    server: String,
    version: String,
    mode: Option<ServerMode>,
    replica: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ServerMode {
    Standalone,
    /// A node of a cluster.
    Cluster,
    Sentinel,
}

/// Sends HELLO and an EVALSHA of no script, in one round trip. Every user may send HELLO.
///
/// # Errors
/// A permanent error of EVALSHA: the server cannot run scripts, or the user may not.
pub(super) async fn fetch(connection: &DataConnection) -> Result<ServerInfo, Error> {
    let requests = [cmd("HELLO").arg(3).clone(), cmd("EVALSHA").arg(UNKNOWN_DIGEST).arg(0).clone()];
    let replies = connection.send_all(&requests).await.map_err(CommandError::from)?;
    let mut replies = replies.into_iter().map(|reply| reply.extract_error().map_err(CommandError::from));
    let info = replies.next().and_then(Result::ok).as_ref().map(ServerInfo::parse).unwrap_or_default();
    // Calls report temporary errors themselves. A sentinel runs no scripts; its mode gives a better error.
    match replies.next() {
        Some(Err(error)) if error.is_permanent() && info.mode != Some(ServerMode::Sentinel) => Err(error.into()),
        _ => Ok(info),
    }
}

impl ServerInfo {
    fn parse(reply: &Value) -> Self {
        let Value::Map(fields) = reply else { return Self::default() };
        let field = |name: &str| {
            let named = fields.iter().find(|(key, _)| text(key) == Some(name));
            named.and_then(|(_, value)| text(value)).unwrap_or_default()
        };
        let mode = match field("mode") {
            "standalone" => Some(ServerMode::Standalone),
            "cluster" => Some(ServerMode::Cluster),
            "sentinel" => Some(ServerMode::Sentinel),
            _ => None,
        };
        // Valkey may be configured to report a compatible Redis version beside its own name. That version is supported.
        let (server, version) = (field("server").to_owned(), field("version").to_owned());
        Self { server, version, mode, replica: matches!(field("role"), "replica" | "slave") }
    }

    pub(super) fn is_replica(&self) -> bool {
        self.replica
    }

    /// Checks the version, and that the server has the mode that the URL implies.
    pub(super) fn check(&self, expected: ServerMode) -> Result<(), Error> {
        if self.server == "redis"
            && let Some((major, minor)) = self.version_numbers().filter(|version| *version < MIN_VERSION)
        {
            return Err(config_error(format!(
                "it is Redis {major}.{minor}: use Redis {}.{} or later, or Valkey",
                MIN_VERSION.0, MIN_VERSION.1
            )));
        }
        match (self.mode, expected) {
            (Some(ServerMode::Sentinel), _) => Err(config_error(
                "it is a sentinel: write `redis-sentinel://host:port/name`, with the name that the sentinel has for \
                 the master",
            )),
            (Some(ServerMode::Cluster), ServerMode::Standalone) => Err(config_error(
                "it is a node of a cluster: write `redis-cluster://` instead of `redis://`, or `rediss-cluster://` \
                 instead of `rediss://`",
            )),
            (Some(ServerMode::Standalone), ServerMode::Cluster) => Err(config_error(
                "it is not a node of a cluster: write `redis://` instead of `redis-cluster://`, or `rediss://` instead \
                 of `rediss-cluster://`",
            )),
            _ => Ok(()),
        }
    }

    /// Checks that the server is usable and a master.
    pub(super) fn check_master(&self) -> Result<(), Error> {
        self.check(ServerMode::Standalone)?;
        if self.is_replica() {
            return Err(Error::new(ErrorKind::ReadOnly, "the node is a replica"));
        }
        Ok(())
    }

    fn version_numbers(&self) -> Option<(u32, u32)> {
        let mut numbers = self.version.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::SimpleString(text) => Some(text),
        Value::BulkString(bytes) => str::from_utf8(bytes).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type InfoFields = &'static [(&'static str, &'static str)];

    fn server_info(fields: InfoFields) -> ServerInfo {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        ServerInfo::parse(&Value::Map(fields.iter().map(|(name, value)| (bulk(name), bulk(value))).collect()))
    }

    #[test]
    fn rejects_old_versions_and_other_modes() {
        use ServerMode::{Cluster, Standalone};
        let cases: &[(InfoFields, ServerMode, Option<&str>)] = &[
            (&[], Standalone, None),
            (&[], Cluster, None),
            (&[("server", "redis"), ("version", "6.2.0"), ("mode", "standalone")], Standalone, None),
            (&[("server", "redis"), ("version", "10.0.1")], Standalone, None),
            (&[("server", "redis"), ("version", "255.255.255")], Standalone, None),
            (&[("server", "redis"), ("version", "unstable")], Standalone, None),
            (
                &[("server", "redis"), ("version", "6.0.16")],
                Standalone,
                Some("it is Redis 6.0: use Redis 6.2 or later"),
            ),
            (&[("server", "valkey"), ("version", "1.2.3")], Standalone, None),
            (&[("mode", "cluster")], Standalone, Some("write `redis-cluster://`")),
            (&[("mode", "cluster")], Cluster, None),
            (&[("mode", "standalone")], Cluster, Some("write `redis://`")),
            (&[("mode", "sentinel")], Standalone, Some("write `redis-sentinel://")),
            (&[("mode", "sentinel")], Cluster, Some("write `redis-sentinel://")),
        ];
        for (fields, expected, message) in cases {
            let error = server_info(fields).check(*expected).err().map(|error| error.to_string());
            match (&error, message) {
                (None, None) => {}
                (Some(error), Some(message)) => assert!(error.contains(message), "{fields:?}: {error}"),
                _ => panic!("{fields:?} as {expected:?}: {error:?}"),
            }
        }
    }

    #[test]
    fn check_master_rejects_replicas() {
        assert!(server_info(&[("role", "master")]).check_master().is_ok());
        for replica in [&[("role", "replica")], &[("role", "slave")]] {
            let error = server_info(replica).check_master().expect_err("a replica");
            assert_eq!(error.kind(), ErrorKind::ReadOnly);
        }
    }
}
