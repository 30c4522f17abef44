//! The stored forms of the shared rules: the version, the text and the entries of the history.

use redis::Value;

use crate::{Error, ErrorKind};

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
    pub(super) fn decode(reply: Value) -> Result<Option<Self>, Error> {
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
    pub(super) fn is_of_same_text(&self, other: &Self) -> bool {
        (self.number, &self.digest) == (other.number, &other.digest)
    }

    /// Returns whether a process that has read this version puts it back over a present one: only over one that was put
    /// back itself, and was published earlier.
    pub(super) fn replaces(&self, present: &Self) -> bool {
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
    pub(super) fn decode(reply: Value) -> Result<Option<(StoredVersion, Option<Self>)>, Error> {
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
    pub(super) fn decode_all(reply: Value) -> Result<Vec<Self>, Error> {
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

pub(super) fn foreign() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "a key of the shared rules holds something else than this limiter writes: delete it, or use another `prefix`",
    )
}
