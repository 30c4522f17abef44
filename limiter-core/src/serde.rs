//! Serialised forms of the values in a configuration: limits as their text, policies and algorithms as their names.
//!
//! Written by hand: a build then has `serde_core` alone of serde, and no derive macro.

use std::fmt;
use std::marker::PhantomData;

use serde_core::de::{self, Visitor};
use serde_core::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Algorithm, Layout, OnError};

mod limit;

#[cfg(all(test, not(limiter_loom)))]
mod tests;

/// A type whose values have names in a configuration, the same as in the attribute.
trait ByName: Copy + PartialEq + 'static {
    /// The option in messages.
    const OPTION: &'static str;
    const VALUES: &'static [Self];

    fn name(self) -> &'static str;
}

impl ByName for Algorithm {
    const OPTION: &'static str = "algorithm";
    const VALUES: &'static [Self] =
        &[Self::SlidingWindow, Self::FixedWindow, Self::SlidingCounter, Self::TokenBucket, Self::LeakyBucket];

    fn name(self) -> &'static str {
        match self {
            Self::SlidingWindow => "sliding_window",
            Self::FixedWindow => "fixed_window",
            Self::SlidingCounter => "sliding_counter",
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket => "leaky_bucket",
        }
    }
}

impl ByName for Layout {
    const OPTION: &'static str = "layout";
    const VALUES: &'static [Self] = &[Self::Compact, Self::Zset];

    fn name(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Zset => "zset",
        }
    }
}

impl ByName for OnError {
    const OPTION: &'static str = "on_error";
    const VALUES: &'static [Self] = &[Self::Open, Self::Closed, Self::Standby, Self::Raise];

    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Standby => "standby",
            Self::Raise => "raise",
        }
    }
}

/// Reads a value by its name.
struct NameVisitor<T>(PhantomData<T>);

impl<T: ByName> Visitor<'_> for NameVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "for `{}` one of {}", T::OPTION, NameList::<T>(PhantomData))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::VALUES.iter().copied().find(|value| value.name() == text).ok_or_else(|| {
            let (option, names) = (T::OPTION, NameList::<T>(PhantomData));
            E::custom(format_args!("`{option}` must be one of {names}, got `{text}`: write one of these"))
        })
    }
}

/// Displays the names of all values.
struct NameList<T>(PhantomData<T>);

impl<T: ByName> fmt::Display for NameList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, value) in T::VALUES.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}`{}`", value.name())?;
        }
        Ok(())
    }
}

macro_rules! by_name {
    ($($named:ty),+) => {
        $(/// Writes the name in snake case. Needs the feature `serde`.
        impl Serialize for $named {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        /// Reads the name in snake case. Needs the feature `serde`.
        impl<'de> Deserialize<'de> for $named {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(NameVisitor(PhantomData))
            }
        })+
    };
}

by_name!(Algorithm, Layout, OnError);
