//! The replies of the scripts. Their formats are in the headers of `lua/decide.lua` and `lua/batch.lua`.

use std::time::Duration;

use redis::Value;

use crate::local::leases::LeaseId;
pub(crate) use crate::request::BatchEntryReply;
use crate::request::once::ReceiptRefusal;
use crate::request::{ChargeReply, DecisionReply, Overdraft, PerRequest, RequestReport, StoreReply};
use crate::store::redis::command_error::CommandError;
use crate::{Algorithm, Error, ErrorKind, Limit};

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

/// The bounds of the numbers in a reply about one limit. A reply beyond them is not one of the script.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    remaining: u32,
    /// The longest time until permits are free, in microseconds.
    wait: u64,
}

/// The most microseconds in which a bucket refills: see `bucket.lua`.
const MAX_REFILL_MICROS: u64 = 1 << 51;

impl From<Limit> for Bounds {
    /// The newest stamp may be a window ahead of the clock, which may have stepped back.
    fn from(limit: Limit) -> Self {
        let window = limit.window_millis() * 1000;
        let permits_count_for = match limit.algorithm() {
            Algorithm::SlidingWindow | Algorithm::FixedWindow | Algorithm::Concurrent => window,
            Algorithm::SlidingCounter | Algorithm::Calendar => 2 * window,
            Algorithm::TokenBucket | Algorithm::LeakyBucket => MAX_REFILL_MICROS,
        };
        let lease = u64::try_from(limit.lease_time().as_micros()).unwrap_or(u64::MAX);
        // Stamps are rounded up, at most to the end of a cell of the log.
        let cell = (limit.window_millis().div_ceil(MAX_RUNS) + 1) * 1000;
        Self { remaining: limit.max_cost(), wait: permits_count_for + window + lease + cell }
    }
}

/// Runs of a full log.
const MAX_RUNS: u64 = 128;

impl Bounds {
    fn permits(self, remaining: i64) -> Option<u32> {
        u32::try_from(remaining).ok().filter(|remaining| *remaining <= self.remaining)
    }

    fn wait(self, micros: i64) -> Option<Duration> {
        u64::try_from(micros).ok().filter(|micros| *micros <= self.wait).map(Duration::from_micros)
    }

    fn retry(self, micros: i64) -> Option<Option<Duration>> {
        if micros == NEVER { Some(None) } else { self.wait(micros).map(Some) }
    }
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

/// The calls that an entry of a batch asks for: their limit, the cost of each, and their number.
#[derive(Clone, Copy)]
pub(crate) struct EntryCalls {
    pub(crate) limit: Limit,
    pub(crate) cost: u32,
    /// `None` for a charge.
    pub(crate) calls: Option<u32>,
}

impl BatchEntryReply {
    /// Decodes one packed entry about these calls, big-endian: granted (4), remaining (4), retry after (8), reset after (8).
    fn decode(bytes: &[u8; ENTRY_BYTES], stamp: u64, asked: EntryCalls) -> Option<Self> {
        let bounds = Bounds::from(asked.limit);
        let (granted, rest) = bytes.split_first_chunk()?;
        let (remaining, rest) = rest.split_first_chunk()?;
        let (retry, reset) = rest.split_first_chunk()?;
        let (granted, remaining) = (u32::from_be_bytes(*granted), u32::from_be_bytes(*remaining));
        let (retry, reset_after) =
            (i64::from_be_bytes(*retry), bounds.wait(i64::from_be_bytes(*reset.first_chunk()?))?);
        let Some(calls) = asked.calls else {
            let uncounted = i64::from(asked.cost.checked_sub(granted)?);
            let charge = decode_counter_charge(&[uncounted, remaining.into(), retry], reset_after, bounds)?;
            let ChargeReply { uncounted, remaining, overdrawn, reset_after } = charge;
            let (retry_after, overdraft) = (Some(Duration::ZERO), Some(Overdraft { uncounted, overdrawn }));
            return Some(Self { granted: 1, remaining, retry_after, reset_after, stamp, overdraft, is_blocked: false });
        };
        // The permits that were free before the calls.
        let free = u64::from(granted) * u64::from(asked.cost) + u64::from(remaining);
        if granted > calls || free > bounds.remaining.into() {
            return None;
        }
        let (retry_after, overdraft) = (bounds.retry(retry)?, None);
        Some(Self { granted, remaining, retry_after, reset_after, stamp, overdraft, is_blocked: false })
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

/// Decodes the reply to one decision about requests with the limits `enforced`. With `observed` limits it has a report of
/// each request. If it is allowed, one of each observed request follows.
///
/// # Errors
/// [`ErrorKind::Protocol`] for anything else.
pub(crate) fn decode(reply: &Value, enforced: &[Limit], observed: Option<&[Limit]>) -> Result<DecisionReply, Error> {
    let bounds = |limits: &[Limit]| limits.iter().copied().map(Bounds::from).collect::<Vec<_>>();
    let (enforced, observed) = (bounds(enforced), observed.map(bounds));
    decode_integers(reply, &enforced, observed.as_deref()).ok_or_else(unexpected_reply)
}

fn decode_integers(reply: &Value, bounds: &[Bounds], observed: Option<&[Bounds]>) -> Option<DecisionReply> {
    let integers = integers(reply)?;
    let (&[allowed, request_index, remaining, retry, reset, stamp, delay], reports) = integers.split_first_chunk()?;
    let request_index = usize::try_from(request_index).ok()?;
    let of_request = bounds.get(request_index)?;
    // The time until all requests fit.
    let longest = Bounds { wait: bounds.iter().map(|bounds| bounds.wait).max()?, ..*of_request };
    let reply = StoreReply {
        allowed: decode_flag(allowed)?,
        request_index,
        remaining: of_request.permits(remaining)?,
        retry_after: longest.retry(retry)?,
        reset_after: of_request.wait(reset)?,
        stamp: u64::try_from(stamp).ok()?,
        delay: longest.wait(delay)?,
        is_blocked: false,
    };
    let Some(observed) = observed else {
        return reports.is_empty().then(|| reply.into());
    };
    let observed = if reply.allowed { observed } else { &[] };
    let (reports, observations) = reports.split_at_checked(bounds.len() * REPORT_NUMBERS)?;
    let reports = reports.as_chunks().0.iter().zip(bounds);
    let (observations, rest) = observations.as_chunks();
    if observations.len() != observed.len() || !rest.is_empty() {
        return None;
    }
    let observations = observations.iter().zip(observed).enumerate();
    let observation = |(index, (numbers, bounds)): (usize, (&[i64; 4], &Bounds))| {
        decode_observation(index, numbers, *bounds, reply.stamp)
    };
    let per_request = PerRequest {
        reports: reports.map(|(numbers, bounds)| decode_report(numbers, *bounds)).collect::<Option<_>>()?,
        observed: observations.map(observation).collect::<Option<_>>()?,
        ..PerRequest::default()
    };
    Some(DecisionReply::with_reports(reply, per_request))
}

/// The numbers of a reply that has no others.
fn integers(reply: &Value) -> Option<Vec<i64>> {
    let Value::Array(values) = reply else { return None };
    values.iter().map(|value| if let Value::Int(integer) = value { Some(*integer) } else { None }).collect()
}

/// Numbers of a report.
const REPORT_NUMBERS: usize = 2;

fn decode_observation(
    request_index: usize,
    &[remaining, reset, allowed, retry]: &[i64; 4],
    bounds: Bounds,
    stamp: u64,
) -> Option<StoreReply> {
    let RequestReport { remaining, reset_after } = decode_report(&[remaining, reset], bounds)?;
    let (allowed, retry_after) = (decode_flag(allowed)?, bounds.retry(retry)?);
    let (delay, is_blocked) = (Duration::ZERO, false);
    Some(StoreReply { allowed, request_index, remaining, retry_after, reset_after, stamp, delay, is_blocked })
}

fn decode_flag(number: i64) -> Option<bool> {
    match number {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn decode_report(&[remaining, reset]: &[i64; REPORT_NUMBERS], bounds: Bounds) -> Option<RequestReport> {
    Some(RequestReport { remaining: bounds.permits(remaining)?, reset_after: bounds.wait(reset)? })
}

/// Decodes the refusal of a receipt; `None` for any other reply.
pub(crate) fn decode_refusal(reply: &Value) -> Option<ReceiptRefusal> {
    match integers(reply)?[..] {
        [SPENT] => Some(ReceiptRefusal::Spent),
        [ENDED] => Some(ReceiptRefusal::Ended),
        _ => None,
    }
}

/// The replies to a receipt that was used before, and to one whose end has come.
const SPENT: i64 = -1;
const ENDED: i64 = -2;

/// Decodes the reply to a charge of counters with these limits.
///
/// # Errors
/// [`ErrorKind::Protocol`] for anything else.
pub(crate) fn decode_charge(reply: &Value, limits: &[Limit]) -> Result<DecisionReply, Error> {
    let decode = || {
        let integers = integers(reply)?;
        let (stamp, numbers) = integers.split_first()?;
        let (numbers, rest) = numbers.as_chunks();
        if numbers.len() != limits.len() || !rest.is_empty() {
            return None;
        }
        let charge = |(&[uncounted, remaining, overdrawn, reset], limit): (&[i64; 4], &Limit)| {
            let bounds = Bounds::from(*limit);
            decode_counter_charge(&[uncounted, remaining, overdrawn], bounds.wait(reset)?, bounds)
        };
        let charges = numbers.iter().zip(limits).map(charge).collect::<Option<_>>()?;
        Some(DecisionReply::of_charges(charges, u64::try_from(*stamp).ok()?))
    };
    decode().ok_or_else(unexpected_reply)
}

fn decode_counter_charge(
    &[uncounted, remaining, overdrawn]: &[i64; 3],
    reset_after: Duration,
    bounds: Bounds,
) -> Option<ChargeReply> {
    // Several requests of one counter, or another burst of a bucket, may lead to more.
    let saturated = |number: i64| Some(u32::try_from(u64::try_from(number).ok()?).unwrap_or(u32::MAX));
    let (uncounted, overdrawn) = (saturated(uncounted)?, saturated(overdrawn)?);
    Some(ChargeReply { uncounted, remaining: bounds.permits(remaining)?, overdrawn, reset_after })
}

/// Decodes the reply to a batch of entries about these calls: one result for each, and one for each of so many with a
/// lease.
///
/// # Errors
/// [`ErrorKind::Protocol`] if it is not the reply to a batch of this size.
pub(crate) fn decode_batch(
    reply: Value,
    mut entries: impl ExactSizeIterator<Item = EntryCalls>,
    leases: usize,
) -> Result<BatchReply, Error> {
    let count = entries.len();
    let values = match reply {
        Value::BulkString(packed) if count == 1 && leases == 0 => {
            let entry = entries.next().ok_or_else(unexpected_reply).and_then(|entry| decode_lone(&packed, entry));
            return Ok(BatchReply { entries: vec![entry], leases: Vec::new() });
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
        packed.split_at_checked(count.saturating_mul(ENTRY_BYTES)).ok_or_else(unexpected_reply)?;
    let (packed_leases, rest) = packed_leases.as_chunks();
    if packed_leases.len() != leases || !rest.is_empty() {
        return Err(unexpected_reply());
    }
    let leases: Vec<_> =
        packed_leases.iter().map(LeaseReply::decode).collect::<Option<_>>().ok_or_else(unexpected_reply)?;
    let decode = |(bytes, entry)| BatchEntryReply::decode(bytes, stamp, entry).ok_or_else(unexpected_reply);
    let mut replies: Vec<_> = packed.as_chunks().0.iter().zip(entries).map(decode).collect();
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
fn decode_lone(packed: &[u8], entry: EntryCalls) -> Result<BatchEntryReply, Error> {
    let decoded = packed.split_first_chunk().and_then(|(stamp, bytes)| {
        BatchEntryReply::decode(<&[u8; ENTRY_BYTES]>::try_from(bytes).ok()?, u64::from_be_bytes(*stamp), entry)
    });
    decoded.ok_or_else(unexpected_reply)
}

pub(super) fn unexpected_reply() -> Error {
    Error::new(ErrorKind::Protocol, "unexpected reply from the rate-limit script")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_the_bounds_of_a_limit_are_failures() {
        // Longer than a lease and a cell of a minute with its rounding.
        const SLACK: i64 = 600_000;
        let (minute, limit) = (60_000_000, "7/1m".parse::<Limit>().expect("a limit"));
        let bucket = |algorithm| limit.with_algorithm(algorithm).with_burst(9).expect("a bucket");
        for (limit, most_left, longest) in [
            (limit, 7, 2 * minute),
            (limit.with_algorithm(Algorithm::FixedWindow), 7, 2 * minute),
            (limit.with_algorithm(Algorithm::SlidingCounter), 7, 3 * minute),
            (bucket(Algorithm::TokenBucket), 9, (1 << 51) + minute),
            (bucket(Algorithm::LeakyBucket), 9, (1 << 51) + minute),
        ] {
            let entry = |left, retry, reset| {
                let packed = [&1_u64.to_be_bytes()[..], &encode_entry(0, left, retry, reset)].concat();
                let reply = decode_batch(
                    Value::BulkString(packed),
                    [EntryCalls { limit, cost: 1, calls: Some(1) }].into_iter(),
                    0,
                )
                .expect("a reply");
                reply.entries[0].as_ref().map_err(Error::kind).copied()
            };
            let decision = |left: u32, retry, reset| {
                let numbers = [0, 0, left.into(), retry, reset, 1, 0];
                decode(&Value::Array(numbers.map(Value::Int).to_vec()), &[limit], None).map_err(|error| error.kind())
            };
            assert!(entry(most_left, longest, longest).is_ok() && decision(most_left, longest, longest).is_ok());
            assert!(entry(0, NEVER, 0).is_ok() && decision(0, NEVER, 0).is_ok());
            let too_long = longest + SLACK;
            for (left, retry, reset) in [(most_left + 1, 0, 0), (0, too_long, 0), (0, 0, too_long), (0, -2, 0)] {
                assert_eq!(entry(left, retry, reset).err(), Some(ErrorKind::Protocol), "{limit:?}");
                assert_eq!(decision(left, retry, reset).err(), Some(ErrorKind::Protocol), "{limit:?}");
            }
        }
    }

    #[test]
    fn a_reply_that_grants_more_than_was_asked_for_or_than_the_limit_has_is_a_failure() {
        let limit: Limit = "9/s".parse().expect("a limit");
        let decode = |limit, granted, left| {
            let packed = [&1_u64.to_be_bytes()[..], &encode_entry(granted, left, 0, 0)].concat();
            let entries = [EntryCalls { limit, cost: 2, calls: Some(3) }].into_iter();
            let reply = decode_batch(Value::BulkString(packed), entries, 0).expect("a reply");
            reply.entries[0].as_ref().map(|entry| entry.granted).map_err(Error::kind)
        };
        let failed = Err(ErrorKind::Protocol);
        let granted = |granted| decode(Limit::WIDEST, granted, 0);
        assert_eq!([0, 3, 4, u32::MAX].map(granted), [Ok(0), Ok(3), failed, failed]);
        let with_left = [(0, 9), (3, 3), (3, 4), (1, 7), (1, 8)];
        assert_eq!(
            with_left.map(|(granted, left)| decode(limit, granted, left)),
            [Ok(0), Ok(3), failed, Ok(1), failed]
        );
    }
}
