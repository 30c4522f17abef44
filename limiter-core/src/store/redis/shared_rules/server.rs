//! The server of the shared rules: the owner of their slot.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{Instant, sleep, timeout};

use super::{NewText, PublishedText, StoredText, StoredVersion, command, foreign};
use crate::store::redis::command_error::CommandError;
use crate::store::redis::connection::server_connection::ServerConnection;
use crate::store::redis::connection::slot_owner::{NextNode, SlotOwner};
use crate::store::redis::connection::topology::Topology;
use crate::store::redis::naming::{Naming, RulesKeys};
use crate::store::redis::pipelined::ReplyBound;
use crate::{Error, ErrorKind};

/// The longest operation. A text has up to 1 MB, and the history 8 MB.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The redirects that are followed without a pause.
const MAX_IMMEDIATE_REDIRECTS: usize = 2;
/// The pause before a command is sent again while the slot is being migrated.
const REDIRECT_PAUSE: Duration = Duration::from_millis(20);

/// Reads and writes the shared rules.
pub(crate) struct RulesServer {
    topology: Rc<Topology>,
    keys: RulesKeys,
    slot: u16,
}

impl RulesServer {
    pub(crate) fn new(topology: Rc<Topology>, naming: &Naming) -> Self {
        let keys = naming.rules_keys();
        let slot = naming.slot(keys.version.as_bytes());
        Self { topology, keys, slot }
    }

    /// Reads the present version. `None` if nothing was published.
    pub(super) async fn version(&self) -> Result<Option<StoredVersion>, Error> {
        StoredVersion::decode(self.send_reading(READ_PERMISSIONS, || command::read_version(&self.keys)).await?)
    }

    /// Reads the present version and its text. `None` without one of them.
    pub(super) async fn text(&self) -> Result<Option<StoredText>, Error> {
        Ok(self.version_and_text().await?.and_then(|(_, text)| text))
    }

    async fn version_and_text(&self) -> Result<Option<(StoredVersion, Option<StoredText>)>, Error> {
        StoredText::decode(self.send_reading(READ_PERMISSIONS, || command::read_text(&self.keys)).await?)
    }

    /// Reads the present text with the details of its change. Version 0 if nothing was published. A text that was evicted
    /// is that of the history, or else empty.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] for a key of another type too, which MGET reads as one that is missing.
    pub(super) async fn read(&self) -> Result<PublishedText, Error> {
        let Some((stored, text)) = self.version_and_text().await? else {
            self.check_missing(&self.keys.version).await?;
            return Ok(PublishedText::default());
        };
        if text.is_none() {
            self.check_missing(&self.keys.text).await?;
        }
        let version = stored.number;
        let toml = text.map(|text| String::from_utf8_lossy(&text.toml).into_owned());
        // The history may be newer than the text that was just read. It also has the text if that was evicted.
        let is_of_text =
            |entry: &PublishedText| entry.version == version && toml.as_ref().is_none_or(|toml| *toml == entry.toml);
        let unknown = || PublishedText { micros: stored.published_micros, ..PublishedText::default() };
        let history = match self.history(2).await {
            // One who may read the text need not be one who may read its history.
            Err(error) if error.kind() == ErrorKind::Refused => Vec::new(),
            history => history?,
        };
        let change = history.into_iter().find(is_of_text).unwrap_or_else(unknown);
        Ok(PublishedText { version, toml: toml.unwrap_or(change.toml), ..change })
    }

    /// Checks that a key, which MGET has not found, is no value of another type. LRANGE needs no more permissions than the
    /// history.
    async fn check_missing(&self, key: &str) -> Result<(), Error> {
        match self.send_reading(OPERATOR_PERMISSIONS, || command::read_list(key, 1)).await {
            Ok(Value::Array(entries)) if entries.is_empty() => Ok(()),
            Ok(_) => Err(foreign()),
            // Published meanwhile, or of another type.
            Err(error) if error.kind() == ErrorKind::Protocol => {
                if self.version_and_text().await?.is_some_and(|(_, text)| text.is_some()) {
                    Ok(())
                } else {
                    Err(foreign())
                }
            }
            // A user who may not read the history reads what MGET finds.
            Err(error) if error.kind() == ErrorKind::Refused => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads the newest entries of the history, from the newest.
    pub(super) async fn history(&self, max_entries: usize) -> Result<Vec<PublishedText>, Error> {
        if max_entries == 0 {
            return Ok(Vec::new());
        }
        let reply =
            self.send_reading(OPERATOR_PERMISSIONS, || command::read_list(&self.keys.history, max_entries)).await?;
        PublishedText::decode_all(reply)
    }

    /// Publishes a text and returns its version.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the change is based on another version than the present one.
    pub(super) async fn publish(&self, text: &NewText) -> Result<u64, Error> {
        let call = |digest: &str| command::publish(&self.keys, digest, text);
        let reply = self.run_script(OPERATOR_PERMISSIONS, command::PUBLISH, call).await?;
        let Value::Array(parts) = reply else { return Err(foreign()) };
        let is_published = match parts.first() {
            Some(Value::Int(1)) => true,
            Some(Value::Int(0)) => false,
            _ => return Err(foreign()),
        };
        let version = match parts.get(1) {
            Some(Value::BulkString(version)) => std::str::from_utf8(version).ok().and_then(|text| text.parse().ok()),
            _ => None,
        };
        let version = version.ok_or_else(foreign)?;
        if is_published {
            return Ok(version);
        }
        let problem = format!(
            "the change must be based on the present version of the shared rules, {version}, got {}: read them again",
            text.based_on
        );
        Err(Error::new(ErrorKind::Conflict, problem))
    }

    /// Puts back a text that was read, unless the store has a published one or one that is not older.
    pub(super) async fn restore(&self, text: &StoredText) -> Result<Restored, Error> {
        let call = |digest: &str| command::restore(&self.keys, digest, text);
        match self.run_script(RESTORE_PERMISSIONS, command::RESTORE, call).await? {
            Value::Int(1) => Ok(Restored::Done),
            Value::Int(0) => Ok(Restored::NotNeeded),
            Value::Int(-1) => Ok(Restored::WrongDigest),
            _ => Err(foreign()),
        }
    }

    /// Loads a script and calls it by its digest.
    async fn run_script(&self, permissions: &str, script: &str, call: impl Fn(&str) -> Cmd) -> Result<Value, Error> {
        let run = async |owner: &SlotOwner<'_>, connection: &ServerConnection| {
            let digest = match connection.send(&command::load(script)).await? {
                Value::BulkString(digest) => String::from_utf8_lossy(&digest).into_owned(),
                Value::SimpleString(digest) => digest,
                _ => return Ok(Value::Nil),
            };
            owner.send(connection, &call(&digest), ReplyBound::Long).await
        };
        self.send(permissions, run).await
    }

    async fn send_reading(&self, permissions: &str, command: impl Fn() -> Cmd) -> Result<Value, Error> {
        let read = async |owner: &SlotOwner<'_>, connection: &ServerConnection| {
            owner.send(connection, &command(), ReplyBound::Long).await
        };
        self.send(permissions, read).await
    }

    /// Sends commands to the owner of the slot, and on to the node that a redirect names.
    async fn send(
        &self,
        permissions: &str,
        send_to: impl AsyncFn(&SlotOwner<'_>, &ServerConnection) -> Result<Value, CommandError>,
    ) -> Result<Value, Error> {
        let (began, used) = (Instant::now(), RefCell::new(None));
        let attempts = async {
            let mut owner = SlotOwner::of_slot(&self.topology, self.slot).await?;
            loop {
                let connection = owner.connected().await?;
                used.replace(Some(connection.clone()));
                let error = match send_to(&owner, &connection).await {
                    Ok(value) => return Ok(value),
                    Err(error) => error,
                };
                match owner.follow(&error) {
                    // Two nodes may name each other while the slot is being migrated.
                    NextNode::Redirected if owner.redirects() <= MAX_IMMEDIATE_REDIRECTS => {}
                    NextNode::Redirected | NextNode::TryAgain => sleep(REDIRECT_PAUSE).await,
                    NextNode::None => {
                        let error = Error::from(error);
                        // A master that has become a replica is looked up again.
                        connection.close_after(&error);
                        return Err(self.explain(error, permissions));
                    }
                }
            }
        };
        match timeout(TIMEOUT, attempts).await {
            Ok(result) => result,
            Err(_) => {
                // A process without calls must detect a lost connection too.
                if let Some(connection) = used.take() {
                    connection.check_liveness(began);
                }
                let problem = format!("Redis has sent no reply about the shared rules within {TIMEOUT:?}");
                Err(Error::new(ErrorKind::Timeout, problem))
            }
        }
    }

    /// Adds the permissions that are needed to the error of a user without them.
    fn explain(&self, error: Error, permissions: &str) -> Error {
        if error.kind() != ErrorKind::Refused {
            return error;
        }
        let prefix = &self.keys.prefix;
        let permissions = permissions.replace("PREFIX", prefix);
        Error::new(ErrorKind::Refused, format!("{error}; for the shared rules the user needs `{permissions}`"))
    }
}

/// The result of an attempt to put a text back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restored {
    Done,
    /// The store has a published text or a newer one, or had one.
    NotNeeded,
    /// The text is not that of its version.
    WrongDigest,
}

const READ_PERMISSIONS: &str = "%R~PREFIX-rules:* +get +mget";
const RESTORE_PERMISSIONS: &str = "~PREFIX-rules:* +script|load +evalsha +get +set +lpush +lrange";
const OPERATOR_PERMISSIONS: &str = "~PREFIX-rules:* +script|load +evalsha +get +mget +set +lpush +ltrim +lrange +time";
