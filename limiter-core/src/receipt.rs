//! Receipts that travel: the right to settle a call once, as a text for another process.

use std::fmt;
use std::str::FromStr;

use crate::limit::PackedBuckets;
use crate::request::once::ReceiptId;
use crate::request::{MAX_REQUESTS, Request};
use crate::{Algorithm, Error, ErrorKind, Key, Layout, Limit, Source};

pub(crate) mod book;

/// The right to settle or refund an allowed call once, in any process: a text that a queue or a request can carry.
///
/// [`Limiter::receipt`](crate::Limiter::receipt) makes it, of the permits that the call holds on one key, and
/// [`Limiter::settle_receipt`](crate::Limiter::settle_receipt) uses it. Its text has a digest of the key, not the key itself.
/// It is signed by [`Builder::receipt_secret`](crate::Builder::receipt_secret): a text that was altered is refused where it
/// is used. [`FromStr`] only checks its form.
///
/// Whoever has the text, the key and a limiter with the secret can use it. `Debug` does not show the text.
///
/// ```
/// # use limiter_core as rate_limited;
/// use rate_limited::{Decision, Key, Limiter, Receipt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rate_limited::Error> {
/// # let secret = [7; 32];
/// let limiter = Limiter::builder().url("memory:").receipt_secret(secret).build()?;
/// let (key, limit) = (Key::new("tokens"), "1000/m".parse()?);
/// if let Decision::Allowed(allowed) = limiter.check_n(&key, &limit, 500).await? {
///     let text = limiter.receipt(&key, &allowed)?.to_string();
///     // Later, where the cost is known.
///     let receipt: Receipt = text.parse()?;
///     assert_eq!(limiter.settle_receipt(&key, &receipt, 620).await?.remaining(), 380);
///     // It can be used once.
///     assert!(limiter.settle_receipt(&key, &receipt, 0).await.is_err());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    body: ReceiptBody,
    mac: Digest,
}

/// The content of a receipt, without its signature.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReceiptBody {
    pub(crate) id: ReceiptId,
    /// The digest of the key.
    pub(crate) key: Digest,
    /// The time of the decision, in microseconds of the store's clock.
    pub(crate) stamp: u64,
    /// The instant from which on it cannot be used, in microseconds of the store's clock.
    pub(crate) end: u64,
    pub(crate) permits: ReceiptPermits,
    /// The counters of the key. None if the call counted nothing.
    pub(crate) counters: Vec<HeldCounter>,
}

/// The first 128 bits of an HMAC-SHA-256.
pub(crate) type Digest = [u8; 16];

/// The fate of the permits of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReceiptPermits {
    /// The store has counted them at one time, and may take them back.
    Returnable,
    /// They are of a lease or of a standby limiter, which are their process's: none is given back, and more is charged.
    Kept,
    /// The call counted nothing, by the failure policy.
    NoneByPolicy,
    /// The call counted nothing, by the mode of its rule.
    NoneByMode,
}

impl ReceiptPermits {
    const ALL: [Self; 4] = [Self::Returnable, Self::Kept, Self::NoneByPolicy, Self::NoneByMode];

    /// The source of a decision that counted nothing.
    pub(crate) fn source(self) -> Source {
        match self {
            Self::NoneByPolicy => Source::Policy,
            _ => Source::Mode,
        }
    }
}

/// The permits that a call holds on a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HeldCounter {
    pub(crate) limit: Limit,
    pub(crate) held: u32,
    /// The requests of the call that add up there: each is settled.
    pub(crate) requests: u32,
}

impl ReceiptBody {
    /// The requests of its counters. The cost of each is what the call holds.
    pub(crate) fn requests<'a>(&self, key: &'a Key) -> Vec<Request<'a>> {
        self.counters.iter().map(|counter| Request::new(key, counter.limit, counter.held)).collect()
    }

    /// The permits that each counter counts of a call that is settled to `actual`.
    pub(crate) fn after(&self, actual: u32) -> Vec<u32> {
        let after = |&HeldCounter { held, requests, .. }: &HeldCounter| {
            let after = requests.saturating_mul(actual);
            if self.permits == ReceiptPermits::Kept { after.max(held) } else { after }
        };
        self.counters.iter().map(after).collect()
    }
}

// The text: `rl1-` and the bytes in lower-case hex. Each receipt has one text.

/// The start of a text: the version of its format.
const VERSION: &str = "rl1-";
const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";
const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::SlidingWindow,
    Algorithm::FixedWindow,
    Algorithm::SlidingCounter,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::Calendar,
];
const LAYOUTS: [Layout; 2] = [Layout::Compact, Layout::Zset];
/// Stands for the algorithm of a calendar with an anchor or a zone, which follows: a charge may begin a period. Without it a
/// calendar has the default ones.
const WRITTEN_CALENDAR: u8 = 6;

impl ReceiptBody {
    /// Its bytes, numbers in big-endian: id (16), digest of the key (16), stamp (8), end (8), kind of permits (1), number of
    /// counters (1); then of each counter algorithm (1), layout or the binary logarithm of the number of hashes that share it
    /// (1), window in ms (8), max (4), burst or 0 (4), permits held (4), requests (4), and of a written calendar the length of
    /// its text (1) and the text, such as `month:5@Europe/Berlin`.
    fn to_bytes(&self) -> Vec<u8> {
        let place = |found: Option<usize>| found.and_then(|index| u8::try_from(index).ok()).unwrap_or(u8::MAX);
        let Self { id, key, stamp, end, permits, counters } = self;
        let mut bytes = [&id[..], key, &stamp.to_be_bytes(), &end.to_be_bytes()].concat();
        bytes.push(place(ReceiptPermits::ALL.iter().position(|known| known == permits)));
        bytes.push(place(Some(counters.len())));
        for HeldCounter { limit, held, requests } in counters {
            let calendar = written_calendar(*limit);
            let algorithm = place(ALGORITHMS.iter().position(|known| *known == limit.algorithm()));
            bytes.push(if calendar.is_some() { WRITTEN_CALENDAR } else { algorithm });
            let layout = place(LAYOUTS.iter().position(|known| *known == limit.layout()));
            bytes.push(limit.packed().map_or(layout, PackedBuckets::bits));
            bytes.extend(limit.window_millis().to_be_bytes());
            for number in [limit.max(), limit.own_burst().unwrap_or(0), *held, *requests] {
                bytes.extend(number.to_be_bytes());
            }
            if let Some(text) = calendar {
                bytes.push(place(Some(text.len())));
                bytes.extend(text.into_bytes());
            }
        }
        bytes
    }

    /// Reads the bytes; returns it with those that follow. `None` if they are not those of a receipt.
    fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut rest = bytes;
        let (id, key) = (take(&mut rest)?, take(&mut rest)?);
        let (stamp, end) = (u64::from_be_bytes(take(&mut rest)?), u64::from_be_bytes(take(&mut rest)?));
        let [permits, count] = take(&mut rest)?;
        let permits = *ReceiptPermits::ALL.get(usize::from(permits))?;
        if usize::from(count) > MAX_REQUESTS {
            return None;
        }
        let counters = (0..count).map(|_| read_counter(&mut rest)).collect::<Option<_>>()?;
        Some((Self { id, key, stamp, end, permits, counters }, rest))
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

/// Returns the text of a limit's calendar, unless its anchor and its zone are the default ones.
fn written_calendar(limit: Limit) -> Option<String> {
    let calendar = limit.calendar_periods()?;
    let default = Limit::of_longest_period(limit.max(), limit.window_millis());
    (default != Some(limit.unpacked())).then(|| calendar.to_string())
}

/// Reads the limit of a written calendar.
fn read_calendar(max: u32, bytes: &mut &[u8]) -> Option<Limit> {
    let [len] = take(bytes)?;
    let (text, rest) = bytes.split_at_checked(len.into())?;
    *bytes = rest;
    let text = str::from_utf8(text).ok()?;
    let limit: Limit = format!("{max}/{text}").parse().ok()?;
    // Another text of the same calendar is none that is written.
    Some(limit).filter(|limit| written_calendar(*limit).is_some_and(|written| written == text))
}

fn read_counter(bytes: &mut &[u8]) -> Option<HeldCounter> {
    let [algorithm, layout] = take(bytes)?;
    let window = u64::from_be_bytes(take(bytes)?);
    let mut number = || take(bytes).map(u32::from_be_bytes);
    let (max, burst, held, requests) = (number()?, number()?, number()?, number()?);
    let limit = match ALGORITHMS.get(usize::from(algorithm)) {
        None if algorithm == WRITTEN_CALENDAR => {
            read_calendar(max, bytes).filter(|limit| limit.window_millis() == window)?
        }
        Some(Algorithm::Calendar) => Limit::of_longest_period(max, window)?,
        algorithm => Limit::checked(max, window)?.with_algorithm(*algorithm?),
    };
    let limit = match PackedBuckets::of_bits(layout) {
        None => limit.with_layout(*LAYOUTS.get(usize::from(layout))?).ok()?,
        packed => limit.with_packed(packed).ok()?,
    };
    let limit = if burst == 0 { limit } else { limit.with_burst(burst).ok()? };
    Some(HeldCounter { limit, held, requests })
}

/// Writes the text, which [`FromStr`] reads.
impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [self.body.to_bytes(), self.mac.to_vec()].concat();
        let digit = |half: u8| char::from(HEX_DIGITS[usize::from(half & 15)]);
        let digits: String = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect();
        write!(f, "{VERSION}{digits}")
    }
}

/// Reads the text that `Display` writes. The error is [`ErrorKind::Config`] for any other, and does not repeat it.
impl FromStr for Receipt {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text).ok_or_else(|| {
            let problem = format!(
                "`receipt` must be the text of a receipt, got {} bytes of another form: use that of \
                 `Receipt::to_string` as it is",
                text.len()
            );
            Error::new(ErrorKind::Config, problem)
        })
    }
}

impl Receipt {
    fn parse(text: &str) -> Option<Self> {
        let value = |digit: &u8| {
            let value = HEX_DIGITS.iter().position(|known| known == digit)?;
            u8::try_from(value).ok()
        };
        let (pairs, rest) = text.strip_prefix(VERSION)?.as_bytes().as_chunks::<2>();
        let bytes =
            pairs.iter().map(|[high, low]| Some(value(high)? << 4 | value(low)?)).collect::<Option<Vec<_>>>()?;
        let (body, mac) = ReceiptBody::from_bytes(&bytes)?;
        let mac = mac.try_into().ok().filter(|_| rest.is_empty())?;
        Some(Self { body, mac })
    }
}

/// Formats neither the text nor a digest.
impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.body.counters.iter().map(|counter| counter.limit);
        f.debug_struct("Receipt").field("limits", &limits.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
