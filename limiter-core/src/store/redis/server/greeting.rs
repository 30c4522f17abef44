//! What a server says of itself, and whether the limiter can use it.

use redis::aio::MultiplexedConnection;
use redis::{Value, cmd, pipe};

use crate::store::redis::command_error::CommandError;
use crate::store::redis::server::unusable;
use crate::{Error, ErrorKind};

/// The oldest Redis that will do.
const OLDEST: (u32, u32) = (6, 2);

/// The digest of no script.
const NO_SCRIPT: &str = "0000000000000000000000000000000000000000";

/// What HELLO tells. A proxy may leave anything out.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Greeting {
    server: String,
    version: String,
    mode: Option<Mode>,
    replica: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    Standalone,
    /// A node of a cluster.
    Cluster,
    Sentinel,
}

/// Asks a server who it is, which every user may, and whether it runs scripts, in one round trip.
pub(super) async fn exchange(mut connection: MultiplexedConnection) -> Result<Greeting, Error> {
    let mut requests = pipe();
    requests.add_command(cmd("HELLO").arg(3).clone());
    requests.add_command(cmd("EVALSHA").arg(NO_SCRIPT).arg(0).clone());
    let answers = connection.send_packed_commands(&requests, 0, 2).await.map_err(CommandError::from)?;
    let mut answers = answers.into_iter().map(|answer| answer.extract_error().map_err(CommandError::from));
    let greeting = answers.next().and_then(Result::ok).as_ref().map(Greeting::read).unwrap_or_default();
    // What only holds for now is for the calls to find out. A sentinel runs no scripts, and is told so by its mode.
    match answers.next() {
        Some(Err(refusal)) if refusal.is_lasting() && greeting.mode != Some(Mode::Sentinel) => Err(refusal.into()),
        _ => Ok(greeting),
    }
}

impl Greeting {
    fn read(answer: &Value) -> Self {
        let Value::Map(fields) = answer else { return Self::default() };
        let field = |name: &str| {
            let named = fields.iter().find(|(key, _)| text(key) == Some(name));
            named.and_then(|(_, value)| text(value)).unwrap_or_default()
        };
        let mode = match field("mode") {
            "standalone" => Some(Mode::Standalone),
            "cluster" => Some(Mode::Cluster),
            "sentinel" => Some(Mode::Sentinel),
            _ => None,
        };
        // Valkey gives Redis's version beside its own name where it is asked to, which is above the oldest, too.
        let (server, version) = (field("server").to_owned(), field("version").to_owned());
        Self { server, version, mode, replica: matches!(field("role"), "replica" | "slave") }
    }

    pub(super) fn is_replica(&self) -> bool {
        self.replica
    }

    /// Whether this is what the URL says.
    pub(super) fn check(&self, expected: Mode) -> Result<(), Error> {
        if self.server == "redis" && self.numbers().is_some_and(|version| version < OLDEST) {
            let found = self.numbers().unwrap_or_default();
            return Err(unusable(format!(
                "it is Redis {}.{}, and the limiter needs Redis {}.{} or later, or Valkey",
                found.0, found.1, OLDEST.0, OLDEST.1
            )));
        }
        match (self.mode, expected) {
            (Some(Mode::Sentinel), _) => Err(unusable(
                "it is a sentinel: write `redis-sentinel://host:port/name`, with the name that it has for the master",
            )),
            (Some(Mode::Cluster), Mode::Standalone) => Err(unusable(
                "it is a node of a cluster: write `redis-cluster://` in place of `redis://`, or `rediss-cluster://` in \
                 place of `rediss://`",
            )),
            (Some(Mode::Standalone), Mode::Cluster) => Err(unusable(
                "it is no node of a cluster: write `redis://` instead of `redis-cluster://`, or `rediss://` instead \
                 of `rediss-cluster://`",
            )),
            _ => Ok(()),
        }
    }

    /// Whether this is the master that sentinels say it is.
    pub(super) fn check_master(&self) -> Result<(), Error> {
        self.check(Mode::Standalone)?;
        if self.is_replica() {
            return Err(Error::new(ErrorKind::ReadOnly, "it is a replica by now"));
        }
        Ok(())
    }

    fn numbers(&self) -> Option<(u32, u32)> {
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

    type Fields = &'static [(&'static str, &'static str)];

    fn greeting(fields: Fields) -> Greeting {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        Greeting::read(&Value::Map(fields.iter().map(|(name, value)| (bulk(name), bulk(value))).collect()))
    }

    #[test]
    fn only_what_will_do_is_used() {
        use Mode::{Cluster, Standalone};
        let cases: &[(Fields, Mode, Option<&str>)] = &[
            (&[], Standalone, None),
            (&[], Cluster, None),
            (&[("server", "redis"), ("version", "6.2.0"), ("mode", "standalone")], Standalone, None),
            (&[("server", "redis"), ("version", "10.0.1")], Standalone, None),
            (&[("server", "redis"), ("version", "255.255.255")], Standalone, None),
            (&[("server", "redis"), ("version", "unstable")], Standalone, None),
            (
                &[("server", "redis"), ("version", "6.0.16")],
                Standalone,
                Some("Redis 6.0, and the limiter needs Redis 6.2"),
            ),
            (&[("server", "valkey"), ("version", "1.2.3")], Standalone, None),
            (&[("mode", "cluster")], Standalone, Some("write `redis-cluster://`")),
            (&[("mode", "cluster")], Cluster, None),
            (&[("mode", "standalone")], Cluster, Some("write `redis://`")),
            (&[("mode", "sentinel")], Standalone, Some("write `redis-sentinel://")),
            (&[("mode", "sentinel")], Cluster, Some("write `redis-sentinel://")),
        ];
        for (fields, expected, told) in cases {
            let error = greeting(fields).check(*expected).err().map(|error| error.to_string());
            match (&error, told) {
                (None, None) => {}
                (Some(error), Some(told)) => assert!(error.contains(told), "{fields:?}: {error}"),
                _ => panic!("{fields:?} as {expected:?}: {error:?}"),
            }
        }
    }

    #[test]
    fn a_master_is_no_replica() {
        assert!(greeting(&[("role", "master")]).check_master().is_ok());
        for replica in [&[("role", "replica")], &[("role", "slave")]] {
            let error = greeting(replica).check_master().expect_err("a replica");
            assert_eq!(error.kind(), ErrorKind::ReadOnly);
        }
    }
}
