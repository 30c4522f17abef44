//! The shared rules in Redis: one text with its version and its history.
//!
//! Each process sends GET for the version about twice a second, and reads the text when the version has changed. A push
//! would need more permissions, is missing behind proxies, and could be lost, so that the poll would be needed anyway.
//! One script publishes a text. Another one puts back the text that a process has read, if the store has lost it.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redis::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;

use crate::{Error, ErrorKind};

mod command;
mod poll;
mod server;

pub(crate) use server::RulesServer;

/// The user of the texts that a process reads. Its methods run on a thread where they may block.
pub(crate) trait SharedTextObserver: fmt::Debug + Send + Sync {
    /// Receives the present text, when it is another one than before or when the last one was rejected. Returns true if
    /// its rules are in force.
    fn text_read(&self, text: &StoredText) -> bool;

    /// Returns the version in force. 0 before the first one.
    fn version(&self) -> u64;

    /// Returns the text that an earlier process has read from this store, if its rules are in force. `None` at the second
    /// time: a child of a fork begins with the rules of its parent.
    fn take_cached(&self) -> Option<CachedText>;

    /// Reports that the text whose rules are in force is still the present one: at first, and then each hour.
    fn confirmed(&self, text: &StoredText);

    /// Reports that this process has put a text back, which the store had lost.
    fn put_back(&self, version: &StoredVersion);

    /// Reports that this process cannot put a text back, and tries again.
    fn put_back_refused(&self, error: &Error);

    /// Reports, by an error, that the store has no text and this process has read none.
    fn nothing_published(&self, error: &Error);

    /// Receives the reason why no text can be read. The next poll follows.
    fn unreadable(&self, error: &Error);

    /// Reports that the text whose rules are in force can be read again.
    fn readable_again(&self);
}

/// A text that an earlier process has read.
#[derive(Clone, Debug)]
pub(crate) struct CachedText {
    pub(crate) text: Arc<StoredText>,
    /// The time at which the store had this text.
    pub(crate) confirmed: SystemTime,
}

/// The longest time after which a text may be put back into a store that has lost it.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

impl CachedText {
    /// Returns whether the text was confirmed so lately that it may be put back.
    pub(crate) fn is_recent(&self, now: SystemTime) -> bool {
        // A time in the future is that of another clock.
        now.duration_since(self.confirmed).is_ok_and(|age| age <= MAX_AGE)
    }
}

/// A new text of the shared rules.
#[derive(Clone, Debug)]
pub(crate) struct NewText {
    /// The version that the change is based on.
    pub(crate) based_on: u64,
    pub(crate) toml: String,
    pub(crate) who: String,
    pub(crate) why: String,
}

pub(super) type ReplyTo<T> = oneshot::Sender<Result<T, Error>>;

/// An operation on the shared rules, for the thread of the worker.
pub(crate) enum RulesCall {
    /// Follows the text until the store is dropped. `first` gets the result of the first poll.
    Follow { observer: Arc<dyn SharedTextObserver>, first: Option<ReplyTo<()>> },
    /// Reads the present text. Its version is 0 if there is none.
    Read { reply_to: ReplyTo<PublishedText> },
    /// Reads the newest entries of the history, from the newest.
    History { max_entries: usize, reply_to: ReplyTo<Vec<PublishedText>> },
    /// Publishes a text and returns its version.
    Publish { text: Box<NewText>, reply_to: ReplyTo<u64> },
}

/// Serves operations until the store is dropped.
pub(crate) async fn serve(server: RulesServer, mut calls: mpsc::UnboundedReceiver<RulesCall>) {
    let server = Rc::new(server);
    while let Some(call) = calls.recv().await {
        let server = Rc::clone(&server);
        spawn_local(async move {
            // A caller that was dropped needs no reply.
            match call {
                RulesCall::Follow { observer, first } => poll::follow(&server, observer, first).await,
                RulesCall::Read { reply_to } => drop(reply_to.send(server.read().await)),
                RulesCall::History { max_entries, reply_to } => drop(reply_to.send(server.history(max_entries).await)),
                RulesCall::Publish { text, reply_to } => drop(reply_to.send(server.publish(&text).await)),
            }
        });
    }
}

// The stored forms of the shared rules: the version, the text and the entries of the history.

/// A version as it is stored: `number SHA-1:time`, and `:restored` behind it if a process has put it back. Versions of
/// this crate that put nothing back read and write `number SHA-1`.
///
/// After a failover one number can be that of two texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredVersion {
    /// The number of the text, 1 or more.
    pub(crate) number: u64,
    /// The SHA-1 of the text.
    pub(crate) digest: String,
    /// The time of the publication, in microseconds since the Unix epoch. 0 if it is unknown.
    pub(crate) published_micros: u64,
    /// A process has put the text back, after the store had lost it. A publication has no such mark.
    pub(crate) is_restored: bool,
}

impl StoredVersion {
    /// Decodes the reply to GET. `None` if nothing was published.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] for a value that no version of this crate writes.
    fn decode(reply: Value) -> Result<Option<Self>, Error> {
        let Some(bytes) = bytes(reply)? else { return Ok(None) };
        std::str::from_utf8(&bytes).ok().and_then(Self::parse).ok_or_else(foreign).map(Some)
    }

    fn parse(text: &str) -> Option<Self> {
        let (number, word) = text.split_once(' ')?;
        let version = |digest: &str, published_micros, is_restored| {
            Some(Self { number: number.parse().ok()?, digest: digest.to_owned(), published_micros, is_restored })
        };
        let (digest, details) = word.split_once(':').unwrap_or((word, ""));
        let (micros, mark) = details.split_once(':').unwrap_or((details, ""));
        match (micros.parse(), mark) {
            (Ok(micros), "") => version(digest, micros, false),
            (Ok(micros), "restored") => version(digest, micros, true),
            // Another word is the digest of a publication.
            _ => version(word, 0, false),
        }
    }

    /// Returns whether this is a version of the same number and text.
    fn is_of_same_text(&self, other: &Self) -> bool {
        (self.number, &self.digest) == (other.number, &other.digest)
    }

    /// Returns whether a process that has read this version puts it back over a present one: only over one that was put
    /// back itself, and was published earlier.
    fn replaces(&self, present: &Self) -> bool {
        present.is_restored && self.published_micros > present.published_micros
    }
}

/// A text of the shared rules, as it was read.
#[derive(Clone, Debug)]
pub(crate) struct StoredText {
    pub(crate) version: StoredVersion,
    pub(crate) toml: Vec<u8>,
}

impl StoredText {
    /// Decodes the reply to MGET of version and text. `None` if nothing was published. A server that evicts keys may have
    /// left a version without its text.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] for values that no version of this crate writes.
    fn decode(reply: Value) -> Result<Option<(StoredVersion, Option<Self>)>, Error> {
        let Value::Array(parts) = reply else { return Err(foreign()) };
        let Ok([version, toml]) = <[Value; 2]>::try_from(parts) else { return Err(foreign()) };
        match (StoredVersion::decode(version)?, bytes(toml)?) {
            (None, _) => Ok(None),
            (Some(version), toml) => {
                let text = toml.map(|toml| Self { version: version.clone(), toml });
                Ok(Some((version, text)))
            }
        }
    }
}

/// A published text, with the details of its change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PublishedText {
    /// 0 if nothing was published.
    pub(crate) version: u64,
    pub(crate) toml: String,
    pub(crate) who: String,
    pub(crate) why: String,
    /// The time of the change, in microseconds since the Unix epoch.
    pub(crate) micros: u64,
}

impl PublishedText {
    /// Decodes the entries of the history, from the newest.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] for a value that no version of this crate writes.
    fn decode_all(reply: Value) -> Result<Vec<Self>, Error> {
        let Value::Array(entries) = reply else { return Err(foreign()) };
        entries.into_iter().map(|entry| bytes(entry)?.as_deref().and_then(Self::decode).ok_or_else(foreign)).collect()
    }

    /// Decodes an entry: see `history.lua`.
    fn decode(entry: &[u8]) -> Option<Self> {
        let end = entry.iter().position(|byte| *byte == b'\n')?;
        let (header, body) = (std::str::from_utf8(&entry[..end]).ok()?, &entry[end + 1..]);
        let mut numbers = header.split(' ').map(str::parse);
        let mut number = || numbers.next()?.ok();
        let (version, micros, _bytes_so_far) = (number()?, number()?, number()?);
        let mut length = || usize::try_from(number()?).ok();
        let (who, body) = body.split_at_checked(length()?)?;
        let (why, toml) = body.split_at_checked(length()?)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(Self { version, toml: text(toml), who: text(who), why: text(why), micros })
    }
}

/// Returns the bytes of a value, or `None` for one that is not there.
fn bytes(value: Value) -> Result<Option<Vec<u8>>, Error> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(bytes)),
        Value::SimpleString(text) => Ok(Some(text.into_bytes())),
        _ => Err(foreign()),
    }
}

fn foreign() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "a key of the shared rules holds something else than this limiter writes: delete it, or use another `prefix`",
    )
}

#[cfg(all(test, not(limiter_loom)))]
mod tests;
