//! The place of a limit's counts in Redis: keys in a layout, or hashes that the counts of a packed rule share.

use std::num::NonZeroU8;

use super::{Algorithm, Layout, Limit};
use crate::{Error, ErrorKind};

/// The number of hashes that share the counts of a packed rule: a power of two from 2^14, one for each slot of a cluster, to
/// 2^30.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PackedBuckets(NonZeroU8);

/// The place of the counts of a limit in one byte, for a limit is small: 0 for strings, 1 for sorted sets, or the binary
/// logarithm of the number of hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CountPlace(u8);

impl CountPlace {
    pub(super) const COMPACT: Self = Self(0);
    pub(super) const ZSET: Self = Self(1);

    pub(super) const fn layout(self) -> Layout {
        if self.0 == Self::ZSET.0 { Layout::Zset } else { Layout::Compact }
    }
}

const MIN_BITS: u8 = 14;
const MAX_BITS: u8 = 30;

impl PackedBuckets {
    /// The number from its binary logarithm; `None` beyond its range.
    pub(crate) const fn of_bits(bits: u8) -> Option<Self> {
        match NonZeroU8::new(bits) {
            Some(bits) if bits.get() >= MIN_BITS && bits.get() <= MAX_BITS => Some(Self(bits)),
            _ => None,
        }
    }

    /// Reads a number.
    ///
    /// # Errors
    /// What to write instead: the nearest valid numbers.
    pub(crate) fn new(number: u64) -> Result<Self, String> {
        let bits = number.checked_ilog2().and_then(|bits| u8::try_from(bits).ok());
        if let Some(buckets) = bits.and_then(Self::of_bits).filter(|buckets| u64::from(buckets.number()) == number) {
            return Ok(buckets);
        }
        let (least, most) = (1_u64 << MIN_BITS, 1_u64 << MAX_BITS);
        Err(match number {
            _ if number < least => least.to_string(),
            _ if number > most => most.to_string(),
            _ => format!("{} or {}", number.next_power_of_two() / 2, number.next_power_of_two()),
        })
    }

    /// The binary logarithm of the number.
    pub(crate) const fn bits(self) -> u8 {
        self.0.get()
    }

    pub(crate) const fn number(self) -> u32 {
        1 << self.0.get()
    }
}

/// The bound of the number, as messages state it.
pub(crate) const PACKED_BOUND: &str = "a power of two from 16384 to 1073741824";

impl Algorithm {
    /// Returns whether the counts of this algorithm may be packed.
    pub(crate) const fn may_be_packed(self) -> bool {
        matches!(self, Self::SlidingWindow | Self::FixedWindow | Self::SlidingCounter | Self::Calendar)
    }
}

impl Limit {
    /// The number of hashes that share its counts in Redis; `None` if each count has a key of its own.
    pub(crate) const fn packed(&self) -> Option<PackedBuckets> {
        PackedBuckets::of_bits(self.place.0)
    }

    /// Returns the limit as if its rule were not [packed](crate::Rule::packed), to compare it with another one: `==` compares
    /// the places of counts too.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limit, Limiter, Rule};
    ///
    /// let limit: Limit = "5/10s".parse()?;
    /// let limiter = Limiter::builder().rule("user", Rule::new().limit(limit).packed(262_144)).build()?;
    /// let decision = limiter.named("user").check_blocking(&Key::new("user:").part(42), &limit)?;
    /// assert_ne!(decision.limit(), limit);
    /// assert_eq!(decision.limit().unpacked(), limit);
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    #[must_use]
    pub const fn unpacked(self) -> Self {
        match self.packed() {
            Some(_) => Self { place: CountPlace::COMPACT, ..self },
            None => self,
        }
    }

    /// Returns the limit as if its rule were packed into so many hashes, if its counts can be: for tests of direct calls.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn packed_into(self, buckets: u32) -> Self {
        self.with_packed(PackedBuckets::new(buckets.into()).ok()).unwrap_or(self)
    }

    /// Returns the limit with counts that share so many hashes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`] for an algorithm or a layout whose counts cannot be packed.
    pub(crate) fn with_packed(self, packed: Option<PackedBuckets>) -> Result<Self, Error> {
        let other = match (packed, self.layout()) {
            (None, Layout::Zset) => return Ok(self),
            (None, Layout::Compact) => return Ok(Self { place: CountPlace::COMPACT, ..self }),
            (Some(buckets), Layout::Compact) if self.algorithm.may_be_packed() => {
                return Ok(Self { place: CountPlace(buckets.bits()), ..self });
            }
            (Some(_), Layout::Compact) => format!("`{:?}`", self.algorithm),
            (Some(_), Layout::Zset) => "`Layout::Zset`".to_owned(),
        };
        let buckets = packed.map_or(0, PackedBuckets::number);
        let problem = format!("`packed` must be left out for {other}, got {buckets}: remove it, or count by a window");
        Err(Error::new(ErrorKind::InvalidLimit, problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_hashes_is_a_power_of_two_in_its_range() {
        for bits in MIN_BITS..=MAX_BITS {
            let buckets = PackedBuckets::new(1 << bits).expect("in range");
            assert_eq!((buckets.bits(), buckets.number()), (bits, 1 << bits));
        }
        for (number, fix) in [
            (0, "16384"),
            (1000, "16384"),
            (8192, "16384"),
            (16_385, "16384 or 32768"),
            (200_000, "131072 or 262144"),
            ((1 << 30) + 1, "1073741824"),
            (1 << 33, "1073741824"),
            (u64::MAX, "1073741824"),
        ] {
            assert_eq!(PackedBuckets::new(number), Err(fix.to_owned()), "{number}");
        }
    }

    #[test]
    fn a_change_of_the_algorithm_keeps_no_packing_that_it_lacks() {
        let packed: Limit =
            "5/10s".parse::<Limit>().expect("valid").with_packed(PackedBuckets::of_bits(18)).expect("a window");
        assert!(packed.with_algorithm(Algorithm::FixedWindow).packed().is_some());
        assert!(packed.with_algorithm(Algorithm::TokenBucket).packed().is_none());
        let zset = packed.with_layout(Layout::Zset).expect("a window");
        assert!(zset.packed().is_none());
        assert_eq!((packed.unpacked(), zset.unpacked()), ("5/10s".parse().expect("valid"), zset));
        for other in ["50 concurrent", "1000/month"] {
            let Ok(limit) = other.parse::<Limit>() else { continue };
            assert_eq!(limit.with_packed(packed.packed()).is_ok(), other.contains("month"), "{other}");
        }
    }
}
