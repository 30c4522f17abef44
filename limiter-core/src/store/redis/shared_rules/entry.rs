//! The stored forms of the shared rules: the version, the text and the entries of the history.

use redis::Value;

use crate::{Error, ErrorKind};

/// A version as it is stored: its number and the SHA-1 of its text. After a failover one number can be that of two
/// texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredVersion(Vec<u8>);

impl StoredVersion {
    /// Decodes the reply to GET. `None` if nothing was published.
    pub(super) fn decode(reply: Value) -> Result<Option<Self>, Error> {
        Ok(bytes(reply)?.map(Self))
    }

    /// The number, 1 or more.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] for a value that no version of this crate writes.
    pub(super) fn number(&self) -> Result<u64, Error> {
        let text = std::str::from_utf8(&self.0).unwrap_or_default();
        text.split_once(' ').and_then(|(number, _)| number.parse().ok()).ok_or_else(foreign)
    }
}

/// The present text of the shared rules.
#[derive(Clone, Debug)]
pub(crate) struct StoredText {
    pub(crate) version: u64,
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
            (Some(stored), toml) => {
                let version = stored.number()?;
                Ok(Some((stored, toml.map(|toml| Self { version, toml }))))
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

    /// Decodes an entry: see `publish.lua`.
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
