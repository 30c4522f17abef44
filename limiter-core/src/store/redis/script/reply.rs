//! The replies of the scripts. Their formats are in the headers of `lua/decide.lua` and `lua/batch.lua`.

use std::time::Duration;

use redis::Value;

use crate::request::{DecisionReply, LeaseId, PerRequest, RequestReport, StoreReply};
use crate::store::redis::command_error::CommandError;
use crate::{Error, ErrorKind};

/// The reply to one entry of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchEntryReply {
    /// Calls that are granted, in their order.
    pub(crate) granted: u32,
    /// Permits that are left after them.
    pub(crate) remaining: u32,
    /// `retry_after` of the calls that are denied. If none is, and the log has leases, that of one permit more. `None`:
    /// never.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) reset_after: Duration,
    /// The time of the decision, in microseconds of the server's clock.
    pub(crate) stamp: u64,
}

/// The reply to a batch.
#[derive(Debug)]
pub(crate) struct BatchReply {
    /// The reply to each entry.
    pub(crate) entries: Vec<Result<BatchEntryReply, Error>>,
    /// The reply about the lease to each entry of a limit with leases, in their order.
    pub(crate) leases: Vec<LeaseReply>,
}

/// The reply about the lease of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseReply {
    /// The permits of the lease; 0: no lease.
    pub(crate) permits: u32,
    /// The mark of the log, and the end of the lease. Without a lease the latter is the newest stamp of the log. `None`
    /// if the log has no leases, or no stamp ahead of the clock.
    pub(crate) id: Option<LeaseId>,
}

/// Bytes of one packed entry.
///
/// The same format is in `lua/batch.lua` and `fuzz/batches.lua`, and as raw bytes in the fake servers of
/// `tests/integration` (`fake_server.rs`, `failures.rs`).
const ENTRY_BYTES: usize = 24;
/// Bytes of one packed reply about a lease.
const LEASE_BYTES: usize = 16;
/// The number that stands for "never".
const NEVER: i64 = -1;

impl BatchEntryReply {
    /// The reply to the call with this index, each of `cost` permits.
    pub(crate) fn reply_for_call(&self, index: u32, cost: u32) -> StoreReply {
        let Self { granted, remaining, retry_after, reset_after, stamp } = *self;
        let later_calls = granted.saturating_sub(index + 1);
        let (allowed, retry_after) = if index < granted { (true, Some(Duration::ZERO)) } else { (false, retry_after) };
        let remaining = remaining.saturating_add(later_calls.saturating_mul(cost));
        StoreReply { allowed, request_index: 0, remaining, retry_after, reset_after, stamp, delay: Duration::ZERO }
    }

    /// Decodes one packed entry, big-endian: granted (4), remaining (4), retry after (8), reset after (8).
    fn decode(bytes: &[u8; ENTRY_BYTES], stamp: u64) -> Option<Self> {
        let (granted, rest) = bytes.split_first_chunk()?;
        let (remaining, rest) = rest.split_first_chunk()?;
        let (retry, reset) = rest.split_first_chunk()?;
        Some(Self {
            granted: u32::from_be_bytes(*granted),
            remaining: u32::from_be_bytes(*remaining),
            retry_after: decode_retry(i64::from_be_bytes(*retry))?,
            reset_after: Duration::from_micros(u64::try_from(i64::from_be_bytes(*reset.first_chunk()?)).ok()?),
            stamp,
        })
    }
}

impl LeaseReply {
    /// Decodes one packed reply, big-endian: permits (4), mark (4), end (8).
    fn decode(bytes: &[u8; LEASE_BYTES]) -> Option<Self> {
        let (permits, rest) = bytes.split_first_chunk()?;
        let (mark, end) = rest.split_first_chunk()?;
        let (permits, mark) = (u32::from_be_bytes(*permits), u32::from_be_bytes(*mark));
        let end = u64::from_be_bytes(*end.first_chunk()?);
        let id = (end > 0).then_some(LeaseId { mark, end });
        // A lease has an end.
        (permits == 0 || id.is_some()).then_some(Self { permits, id })
    }
}

/// Packs the numbers of one entry, as the script does.
#[cfg(test)]
pub(crate) fn encode_entry(granted: u32, remaining: u32, retry_after: i64, reset_after: i64) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[..4].copy_from_slice(&granted.to_be_bytes());
    bytes[4..8].copy_from_slice(&remaining.to_be_bytes());
    bytes[8..16].copy_from_slice(&retry_after.to_be_bytes());
    bytes[16..].copy_from_slice(&reset_after.to_be_bytes());
    bytes
}

/// Decodes the reply to one decision about so many requests. If it is allowed and has reports, there is one for each, and
/// then one for each of so many `observed` requests.
///
/// # Errors
/// [`ErrorKind::Protocol`] for anything else.
pub(crate) fn decode(reply: &Value, requests: usize, observed: Option<usize>) -> Result<DecisionReply, Error> {
    decode_integers(reply, requests, observed).ok_or_else(unexpected_reply)
}

fn decode_integers(reply: &Value, requests: usize, observed: Option<usize>) -> Option<DecisionReply> {
    let Value::Array(values) = reply else { return None };
    let integers: Vec<i64> = values
        .iter()
        .map(|value| if let Value::Int(integer) = value { Some(*integer) } else { None })
        .collect::<Option<_>>()?;
    let (&[allowed, request_index, remaining, retry, reset, stamp, delay], reports) = integers.split_first_chunk()?;
    let reply = StoreReply {
        allowed: decode_flag(allowed)?,
        request_index: usize::try_from(request_index).ok().filter(|index| *index < requests)?,
        remaining: u32::try_from(remaining).ok()?,
        retry_after: decode_retry(retry)?,
        reset_after: Duration::from_micros(u64::try_from(reset).ok()?),
        stamp: u64::try_from(stamp).ok()?,
        delay: Duration::from_micros(u64::try_from(delay).ok()?),
    };
    let Some(observed) = observed.filter(|_| reply.allowed) else {
        return reports.is_empty().then(|| reply.into());
    };
    let (reports, observations) = reports.split_at_checked(requests * REPORT_NUMBERS)?;
    let reports = reports.as_chunks().0.iter().map(decode_report).collect::<Option<_>>()?;
    let (observations, rest) = observations.as_chunks();
    let observation = |(index, numbers)| decode_observation(index, numbers, reply.stamp);
    let per_request = PerRequest {
        reports,
        observed: observations.iter().enumerate().map(observation).collect::<Option<_>>()?,
        ..PerRequest::default()
    };
    let is_complete = per_request.observed.len() == observed && rest.is_empty();
    is_complete.then(|| DecisionReply::with_reports(reply, per_request))
}

/// Numbers of a report.
const REPORT_NUMBERS: usize = 2;

fn decode_observation(
    request_index: usize,
    &[remaining, reset, allowed, retry]: &[i64; 4],
    stamp: u64,
) -> Option<StoreReply> {
    let RequestReport { remaining, reset_after } = decode_report(&[remaining, reset])?;
    let (allowed, retry_after) = (decode_flag(allowed)?, decode_retry(retry)?);
    Some(StoreReply { allowed, request_index, remaining, retry_after, reset_after, stamp, delay: Duration::ZERO })
}

fn decode_flag(number: i64) -> Option<bool> {
    match number {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn decode_report(&[remaining, reset]: &[i64; 2]) -> Option<RequestReport> {
    let reset_after = Duration::from_micros(u64::try_from(reset).ok()?);
    Some(RequestReport { remaining: u32::try_from(remaining).ok()?, reset_after })
}

/// Decodes the reply to a batch of so many entries: one result for each, and one for each entry with a lease.
///
/// # Errors
/// [`ErrorKind::Protocol`] if it is not the reply to a batch of this size.
pub(crate) fn decode_batch(reply: Value, entries: usize, leases: usize) -> Result<BatchReply, Error> {
    let values = match reply {
        Value::BulkString(packed) if entries == 1 && leases == 0 => {
            return Ok(BatchReply { entries: vec![decode_lone(&packed)], leases: Vec::new() });
        }
        Value::Array(values) => values,
        _ => return Err(unexpected_reply()),
    };
    let mut values = values.into_iter();
    let (Some(Value::Int(stamp)), Some(Value::BulkString(packed))) = (values.next(), values.next()) else {
        return Err(unexpected_reply());
    };
    let stamp = u64::try_from(stamp).map_err(|_| unexpected_reply())?;
    let (packed, packed_leases) =
        packed.split_at_checked(entries.saturating_mul(ENTRY_BYTES)).ok_or_else(unexpected_reply)?;
    let (packed_leases, rest) = packed_leases.as_chunks();
    if packed_leases.len() != leases || !rest.is_empty() {
        return Err(unexpected_reply());
    }
    let leases: Vec<_> =
        packed_leases.iter().map(LeaseReply::decode).collect::<Option<_>>().ok_or_else(unexpected_reply)?;
    let decode = |bytes| BatchEntryReply::decode(bytes, stamp).ok_or_else(unexpected_reply);
    let mut replies: Vec<_> = packed.as_chunks().0.iter().map(decode).collect();
    // Pairs of an index and the error of that entry.
    while let Some(index) = values.next() {
        let (Value::Int(index), Some(error @ Value::ServerError(_))) = (index, values.next()) else {
            return Err(unexpected_reply());
        };
        let reply =
            usize::try_from(index).ok().and_then(|index| replies.get_mut(index)).ok_or_else(unexpected_reply)?;
        *reply =
            Err(error.extract_error().map_err(CommandError::from).err().map_or_else(unexpected_reply, Error::from));
    }
    Ok(BatchReply { entries: replies, leases })
}

/// Decodes the reply to a lone decision: the stamp (8), and one packed entry.
fn decode_lone(packed: &[u8]) -> Result<BatchEntryReply, Error> {
    let decoded = packed.split_first_chunk().and_then(|(stamp, entry)| {
        BatchEntryReply::decode(<&[u8; ENTRY_BYTES]>::try_from(entry).ok()?, u64::from_be_bytes(*stamp))
    });
    decoded.ok_or_else(unexpected_reply)
}

fn decode_retry(micros: i64) -> Option<Option<Duration>> {
    match micros {
        NEVER => Some(None),
        micros => Some(Some(Duration::from_micros(u64::try_from(micros).ok()?))),
    }
}

fn unexpected_reply() -> Error {
    Error::new(ErrorKind::Protocol, "unexpected reply from the rate-limit script")
}
