//! The number of limiters that share each limit while the store is away: a number of the program's, or that of the limiters
//! that live.
//!
//! The replies to heartbeats state how many limiters have each inventory of rules. A limit is shared by those whose
//! inventory can make its key with its algorithm and window, and a key that no own rule makes by all of the prefix. So
//! limiters of other programs on one prefix do not cut the shares.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::{Key, Limit};

mod counters;
mod heard;

#[cfg(any(feature = "redis", all(test, not(limiter_loom))))]
pub(crate) use counters::CounterFamilies;
pub(crate) use counters::{CounterFamily, KeyShape};
use heard::HeardInstances;
#[cfg(any(feature = "redis", all(test, not(limiter_loom))))]
pub(crate) use heard::LiveCounts;

/// The usual time between two heartbeats.
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// A rule of a limiter's inventory.
pub(crate) struct InventoryRule {
    /// Its line of the text.
    pub(crate) line: String,
    /// The counters that it can make.
    pub(crate) counters: Vec<CounterFamily>,
}

/// The origin of the number of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstancesSetting {
    /// The program's number.
    Number(NonZeroU32),
    /// The limiters that live, and at least so many.
    Live { at_least: NonZeroU32 },
}

impl InstancesSetting {
    /// Each limiter grants the whole limit.
    pub(crate) const ONE: Self = Self::Number(NonZeroU32::MIN);
}

/// The number of instances that share each limit.
#[derive(Clone, Debug)]
pub(crate) struct Instances {
    setting: InstancesSetting,
    heard: Arc<HeardInstances>,
}

impl Instances {
    /// `interval` is the usual time between two heartbeats.
    pub(crate) fn new(setting: InstancesSetting, interval: Duration) -> Self {
        Self { setting, heard: Arc::new(HeardInstances::new(interval)) }
    }

    /// A number of instances that is set.
    #[cfg(test)]
    pub(crate) fn set(number: u32) -> Self {
        let number = NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        Self::new(InstancesSetting::Number(number), Duration::from_secs(5))
    }

    /// The instances that share a limit for a key.
    pub(crate) fn sharing(&self, key: &Key, limit: &Limit) -> NonZeroU32 {
        match self.setting {
            InstancesSetting::Number(number) => number,
            InstancesSetting::Live { at_least } if self.heard.most() <= at_least.get() => at_least,
            InstancesSetting::Live { at_least } => self.heard.sharing(key, limit).max(at_least),
        }
    }

    /// Returns whether each limit is this instance's alone.
    #[inline]
    pub(crate) fn is_one(&self) -> bool {
        match self.setting {
            InstancesSetting::Number(number) => number == NonZeroU32::MIN,
            InstancesSetting::Live { at_least } => at_least == NonZeroU32::MIN && self.heard.most() <= 1,
        }
    }

    /// Returns whether the inventories of other limiters matter.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.setting, InstancesSetting::Live { .. })
    }

    /// The heartbeats' side.
    pub(crate) fn heard(&self) -> &HeardInstances {
        &self.heard
    }

    /// Describes the number for the log of an outage.
    pub(crate) fn described(&self) -> String {
        let limiters =
            |number: u32| if number == 1 { "1 live limiter".to_owned() } else { format!("{number} live limiters") };
        match (self.setting, self.heard.most()) {
            (InstancesSetting::Number(number), 0) => format!("`instances({number})`"),
            (InstancesSetting::Number(number), most) => {
                let times = most.div_ceil(number.get());
                let exceeds = if times > 1 { format!(": up to {times} times each limit") } else { String::new() };
                format!("{}, `instances({number})`{exceeds}", limiters(most))
            }
            (InstancesSetting::Live { at_least }, 0) => {
                format!("no number of live limiters yet, {at_least} assumed")
            }
            (InstancesSetting::Live { at_least }, most) if most < at_least.get() => {
                format!("{}, at least {at_least}", limiters(most))
            }
            (InstancesSetting::Live { .. }, most) => format!("{} of the prefix, by heartbeats", limiters(most)),
        }
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests;
