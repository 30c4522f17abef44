//! The list of the instances that live.

use std::collections::BTreeMap;
use std::str;
use std::time::Duration;

use redis::Value;
use tokio::time::timeout;

use super::member::{DIGEST_DIGITS, Instance, is_hex};
use super::owner::LiveServer;
use crate::store::redis::pipelined::ReplyBound;
use crate::{Error, ErrorKind};

/// The longest time in which the instances are read.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most inventories that are read.
const MAX_INVENTORIES: usize = 1_000;
/// The most instances of one inventory that are read.
const MAX_INSTANCES: usize = 20_000;

/// Reads the instances that live.
pub(super) struct Listing<'a> {
    pub(super) server: &'a LiveServer,
    /// The life of an instance without a further heartbeat.
    pub(super) life: Duration,
}

impl Listing<'_> {
    /// Reads the instances in the order of their start. What no limiter has written is left out.
    pub(super) async fn read(&self) -> Result<Vec<Instance>, Error> {
        let read = timeout(TIMEOUT, self.read_all()).await;
        read.unwrap_or_else(|_| Err(no_reply())).map_err(|error| self.explain(error))
    }

    /// Reads the text of an inventory. `None` if the store has none of this digest.
    pub(super) async fn inventory(&self, digest: &str) -> Result<Option<String>, Error> {
        let name = self.server.keys.inventory(digest);
        let mut command = redis::cmd("GET");
        command.arg(name);
        let sent = timeout(TIMEOUT, self.server.send(&command, ReplyBound::Script)).await;
        match sent.unwrap_or_else(|_| Err(no_reply())) {
            Ok(Value::Nil) => Ok(None),
            Ok(reply) => text(&reply).map(Some).ok_or_else(foreign),
            Err(error) => Err(self.explain(error)),
        }
    }

    async fn read_all(&self) -> Result<Vec<Instance>, Error> {
        let keys = &self.server.keys;
        let now = now_millis(&self.server.send(&redis::cmd("TIME"), ReplyBound::Script).await?).ok_or_else(foreign)?;
        let counts = self.server.send(redis::cmd("HGETALL").arg(keys.counts()), ReplyBound::Long).await?;
        let inventories = pairs(counts).into_iter().filter_map(|(digest, _)| text(&digest));
        let mut latest = BTreeMap::<String, Instance>::new();
        for inventory in inventories.filter(|digest| is_hex(digest, DIGEST_DIGITS)).take(MAX_INVENTORIES) {
            let mut range = redis::cmd("ZRANGE");
            range.arg(keys.members(&inventory)).arg(format!("({now}")).arg("+inf").arg("BYSCORE");
            range.arg("LIMIT").arg(0).arg(MAX_INSTANCES).arg("WITHSCORES");
            let members = match self.server.send(&range, ReplyBound::Long).await {
                // A value of another type.
                Err(error) if error.kind() == ErrorKind::Protocol => continue,
                members => members?,
            };
            for instance in pairs(members).iter().filter_map(|pair| self.instance(pair, &inventory)) {
                // After a lost reply one instance may have two members for a while.
                if latest.get(&instance.id).is_none_or(|other| other.last_seen < instance.last_seen) {
                    latest.insert(instance.id.clone(), instance);
                }
            }
        }
        let mut instances: Vec<_> = latest.into_values().collect();
        instances.sort_by_key(|instance| instance.since);
        Ok(instances)
    }

    fn instance(&self, (member, end): &(Value, Value), inventory: &str) -> Option<Instance> {
        let Value::BulkString(member) = member else { return None };
        let end: f64 = match end {
            Value::Double(end) => *end,
            end => text(end)?.parse().ok()?,
        };
        if !(0.0..=MAX_MILLIS).contains(&end) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the bounds above")]
        let end = Duration::from_millis(end as u64);
        let last_seen = u64::try_from(end.saturating_sub(self.life).as_millis()).ok()?;
        Instance::parse(member, last_seen, inventory)
    }

    fn explain(&self, error: Error) -> Error {
        let prefix = self.server.keys.prefix();
        match error.kind() {
            ErrorKind::Refused => {
                let needed = format!("~{prefix}-live:* +time +hgetall +zrange +get");
                Error::new(ErrorKind::Refused, format!("{error}; to list instances the user needs `{needed}`"))
            }
            ErrorKind::Protocol => foreign(),
            _ => error,
        }
    }
}

/// A time later than any that a limiter writes.
const MAX_MILLIS: f64 = 1e15;

fn no_reply() -> Error {
    Error::new(ErrorKind::Timeout, format!("Redis has sent no reply about instances within {TIMEOUT:?}"))
}

fn foreign() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "a key of the heartbeats holds something else than a limiter writes: delete it, or use another `prefix`",
    )
}

/// Returns the pairs of a map, or of an array in which they are flat or arrays themselves.
fn pairs(reply: Value) -> Vec<(Value, Value)> {
    let entries = match reply {
        Value::Map(entries) => return entries,
        Value::Array(entries) => entries,
        _ => return Vec::new(),
    };
    let mut pairs = Vec::with_capacity(entries.len());
    let mut entries = entries.into_iter();
    while let Some(entry) = entries.next() {
        match entry {
            Value::Array(pair) => {
                pairs.extend(<[Value; 2]>::try_from(pair).ok().map(|[first, second]| (first, second)));
            }
            first => pairs.extend(entries.next().map(|second| (first, second))),
        }
    }
    pairs
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => str::from_utf8(bytes).ok().map(str::to_owned),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// Returns the time of a reply to TIME, in milliseconds since the Unix epoch.
fn now_millis(reply: &Value) -> Option<u64> {
    let Value::Array(parts) = reply else { return None };
    let mut numbers = parts.iter().map(|part| text(part)?.parse::<u64>().ok());
    let (seconds, micros) = (numbers.next()??, numbers.next()??);
    seconds.checked_mul(1_000)?.checked_add(micros / 1_000)
}
