//! The stream of activity, as it is read.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use redis::Value;
use tokio::time::timeout;

use super::live_script::LiveScript;
use super::owner::LiveServer;
use crate::{Error, ErrorKind};

/// The script that reads a part.
const SCRIPT: &str = include_str!("lua/activity.lua");
/// The entries of one script call.
const ENTRIES_AT_ONCE: usize = 100;
/// The most entries that are looked at: twice as many as limiters leave in the stream.
const MAX_LOOKED_AT: usize = 8192;
/// The longest text of an entry.
const MAX_ENTRY_BYTES: usize = 4096;
/// The longest time in which a part is read.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The id of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId {
    /// The time at which it was added, by the clock of the server.
    pub(crate) millis: u64,
    sequence: u64,
}

impl StreamId {
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (millis, sequence) = std::str::from_utf8(text).ok()?.split_once('-')?;
        Some(Self { millis: millis.parse().ok()?, sequence: sequence.parse().ok()? })
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.millis, self.sequence)
    }
}

/// The newest entries of the stream, in their order.
pub(crate) struct StreamPart {
    /// The time of the reading, by the clock of the server.
    pub(crate) now_millis: u64,
    pub(crate) entries: Vec<(StreamId, Vec<u8>)>,
    /// The newest entry, whoever has written it.
    pub(crate) last: Option<StreamId>,
}

impl LiveScript {
    /// Returns the script that reads the stream of activity.
    pub(super) fn for_activity(server: Rc<LiveServer>) -> Self {
        Self::new(server, SCRIPT)
    }

    /// Reads the entries behind this one, or all. Of very many, the newest are read.
    pub(super) async fn read_activity(&self, behind: Option<StreamId>) -> Result<StreamPart, Error> {
        let no_reply = || Error::new(ErrorKind::Timeout, format!("Redis has sent no activity within {TIMEOUT:?}"));
        let read = timeout(TIMEOUT, self.read_parts(behind)).await;
        read.unwrap_or_else(|_| Err(no_reply())).map_err(|error| self.explain_activity(error))
    }

    async fn read_parts(&self, behind: Option<StreamId>) -> Result<StreamPart, Error> {
        let mut part = StreamPart { now_millis: 0, entries: Vec::new(), last: None };
        let (mut from, to) = ("+".to_owned(), behind.map_or("-".to_owned(), |id| format!("({id}")));
        for _ in 0..MAX_LOOKED_AT / ENTRIES_AT_ONCE {
            let Some(oldest) = self.read_part(&from, &to, &mut part).await? else { break };
            from = format!("({oldest}");
        }
        part.entries.reverse();
        part.last = part.last.or(behind);
        Ok(part)
    }

    /// Adds older entries, the newest first. Returns the id of the oldest one that was looked at, if there was any.
    async fn read_part(&self, from: &str, to: &str, part: &mut StreamPart) -> Result<Option<StreamId>, Error> {
        let (server, stream) = (&self.server, self.server.keys.activity());
        let node = server.owner().await?;
        let reply = self.run(node, |digest| {
            let mut command = redis::cmd("EVALSHA");
            command.arg(digest).arg(1).arg(&stream).arg(from).arg(to).arg(ENTRIES_AT_ONCE).arg(MAX_ENTRY_BYTES);
            command
        });
        let Value::Array(values) = reply.await? else { return Err(foreign()) };
        let mut texts = values.into_iter().map(|value| match value {
            Value::BulkString(text) => Ok(text),
            _ => Err(foreign()),
        });
        let now = texts.next().transpose()?.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok());
        part.now_millis = now.ok_or_else(foreign)?;
        let oldest = texts.next().transpose()?.and_then(|text| StreamId::parse(&text));
        while let (Some(id), Some(text)) = (texts.next().transpose()?, texts.next().transpose()?) {
            let id = StreamId::parse(&id).ok_or_else(foreign)?;
            part.last = part.last.max(Some(id));
            part.entries.push((id, text));
        }
        // Entries of others are not read again either.
        part.last = part.last.max(oldest);
        Ok(oldest)
    }

    fn explain_activity(&self, error: Error) -> Error {
        let prefix = self.server.keys.prefix();
        match error.kind() {
            ErrorKind::Refused => {
                let needed = format!("~{prefix}-live:* +time +xrevrange");
                Error::new(ErrorKind::Refused, format!("{error}; to read activity the user needs `{needed}`"))
            }
            ErrorKind::Protocol => foreign(),
            _ => error,
        }
    }
}

fn foreign() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "the key of activity holds something else than a limiter writes: delete it, or use another `prefix`",
    )
}
