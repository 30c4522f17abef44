//! The names of values in a text. They are those of the attribute.

use crate::{Algorithm, Layout, Mode, OnError};

/// A type whose values have names.
pub(super) trait WordValue: Copy + PartialEq + 'static {
    const VALUES: &'static [Self];

    fn word(self) -> &'static str;
}

impl WordValue for Mode {
    const VALUES: &'static [Self] = &[Self::Enforce, Self::Shadow, Self::Off, Self::Deny];

    fn word(self) -> &'static str {
        self.as_str()
    }
}

impl WordValue for OnError {
    const VALUES: &'static [Self] = &[Self::Open, Self::Closed, Self::Standby, Self::Raise];

    fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Standby => "standby",
            Self::Raise => "raise",
        }
    }
}

impl WordValue for Algorithm {
    const VALUES: &'static [Self] =
        &[Self::SlidingWindow, Self::FixedWindow, Self::SlidingCounter, Self::TokenBucket, Self::LeakyBucket];

    fn word(self) -> &'static str {
        match self {
            Self::SlidingWindow => "sliding_window",
            Self::FixedWindow => "fixed_window",
            Self::SlidingCounter => "sliding_counter",
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket => "leaky_bucket",
        }
    }
}

impl WordValue for Layout {
    const VALUES: &'static [Self] = &[Self::Compact, Self::Zset];

    fn word(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Zset => "zset",
        }
    }
}

/// Lists names in a sentence: `a`, `b` and `c`.
pub(super) fn list(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match &quoted[..] {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
