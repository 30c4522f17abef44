//! The attribute of `rate-limited` with a constant key, a function without the attribute, and governor with one key.

use std::hint::black_box;

use rate_limited::{Limiter, rate_limited};

use super::governor;
use crate::contestant::{Commands, Contestant, Entry, Failure, Kind, Place, Setup, Starting, Verdict, starting};

/// The name of the function without the attribute.
pub const BARE: &str = "bare call";

/// The contestants of the case `attribute`.
pub const ENTRIES: [Entry; 3] = [
    entry("rate-limited (attribute)", Kind::Ours, |_| {
        let _ = Limiter::memory().install(); // an error if one is installed already
        starting(async { Ok(Attribute) })
    }),
    entry(BARE, Kind::Floor, |_| starting(async { Ok(Bare) })),
    governor::ENTRY,
];

const fn entry(name: &'static str, kind: Kind, start: fn(Setup) -> Starting) -> Entry {
    Entry { name, kind, place: Place::InProcess, commands: Commands::NONE, start }
}

struct Attribute;

impl Contestant for Attribute {
    async fn decide(&self, key: usize) -> Result<Verdict, Failure> {
        Ok(Verdict::from_allowed(limited(key).await > key))
    }
}

struct Bare;

impl Contestant for Bare {
    async fn decide(&self, key: usize) -> Result<Verdict, Failure> {
        Ok(Verdict::from_allowed(bare(key).await > key))
    }
}

/// The function without the attribute.
#[inline(never)]
pub async fn bare(value: usize) -> usize {
    black_box(value) + 1
}

/// The function with the attribute. The limit is never reached.
#[rate_limited(key = "limiter-bench", window = "1s", max = 1_000_000_000, fallback = degraded)]
#[inline(never)]
pub async fn limited(value: usize) -> usize {
    black_box(value) + 1
}

async fn degraded(_value: usize) -> usize {
    0
}
