//! The number of instances that share each limit while the store is away.

use std::num::NonZeroU32;

use crate::builder::Builder;
use crate::instances::InstancesSetting;

/// The options about instances.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InstancesOptions {
    number: Option<u32>,
    /// Live instances are demanded, and not only the default.
    is_live: bool,
    at_least: Option<u32>,
}

impl Builder {
    /// Sets the number of instances of the program that share each limit, 1 or more. Default: the limiters that
    /// [live](Builder::instances_live), or 1 for a limiter that writes no heartbeats.
    ///
    /// It matters while the store is unavailable and for one window after the last failure of a server, when standby
    /// limiters decide. Each instance then grants at most its share of a limit, so that together they stay within it. There
    /// are two exceptions:
    ///
    /// - If a limit has fewer permits than there are instances, each instance grants one.
    /// - Permits that an instance already held above its share when the store failed come on top, until their window is
    ///   over.
    ///
    /// A call that is late is decided by the share too. Beside a server that is well, the calls after it are decided by the
    /// store, and by the whole limit in this process.
    ///
    /// With 1 each instance grants the whole limit: N instances allow up to N times as much while the store is
    /// unavailable.
    pub fn instances(mut self, instances: u32) -> Self {
        self.instances.number = Some(instances);
        self
    }

    /// Shares each limit among the limiters that live, by their [heartbeats](Builder::presence). It is the default, and
    /// [`instances`](Builder::instances) comes before it. Needs the feature `redis`.
    ///
    /// A limit is shared by the limiters whose rules can make its key with its algorithm and window. A key that no rule of
    /// this program makes, as of [`Limiter::check`](crate::Limiter::check), is shared by all limiters of the
    /// [`prefix`](Builder::prefix).
    ///
    /// - The number is known as soon as the store is connected. It rises with the next heartbeat, within 5 s, and falls when
    ///   only smaller ones were heard for 60 s of connected time. So an outage, a failover to an empty replica and a limiter
    ///   that is cut off lower it nowhere. A rolling deploy and a scale-down make shares smaller for 60 s.
    /// - While the store is away, the limiters that have met it grant at most the limit together, with the exceptions of
    ///   [`instances`](Builder::instances). One that has lived for less than 15 s may be unknown to the others. One that
    ///   starts in an outage has heard no number: [`instances_at_least`](Builder::instances_at_least) is for it.
    /// - The log of an outage has the number.
    ///
    /// A limiter in memory ignores it. A user without the permissions for heartbeats hears no number.
    ///
    /// # Errors
    /// With `instances_live`, `build` and `connect` return [`ErrorKind::Config`](crate::ErrorKind::Config) for a limiter that
    /// writes no heartbeats.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// let limiter = Limiter::builder().url("redis://127.0.0.1:6379").instances_live().instances_at_least(3).build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    #[cfg(feature = "redis")]
    pub fn instances_live(mut self) -> Self {
        self.instances.is_live = true;
        self
    }

    /// Sets the least number of [live instances](Builder::instances_live), 1 or more, for a limiter that starts while the
    /// store is away. Default: 1. Needs the feature `redis`.
    ///
    /// # Errors
    /// `build` and `connect` return [`ErrorKind::Config`](crate::ErrorKind::Config) for 0, and for a limiter that writes no
    /// heartbeats.
    #[cfg(feature = "redis")]
    pub fn instances_at_least(mut self, instances: u32) -> Self {
        self.instances.at_least = Some(instances);
        self
    }
}

impl InstancesOptions {
    /// The mistake in these options, if there is one.
    pub(super) fn instances_problem(&self, is_silent: bool) -> Option<String> {
        let Self { number, is_live, at_least } = *self;
        if number == Some(0) {
            return Some(
                "`instances` must be at least 1, got 0: leave it out for a program with one instance".to_owned(),
            );
        }
        if at_least == Some(0) {
            return Some(
                "`instances_at_least` must be at least 1, got 0: leave it out for the default of 1".to_owned(),
            );
        }
        if !is_silent || number.is_some() {
            return None;
        }
        let option = match (is_live, at_least) {
            (_, Some(_)) => "`instances_at_least`",
            (true, None) => "`instances_live`",
            (false, None) => return None,
        };
        Some(format!("{option} must be used with heartbeats, got `presence(false)`: remove it, or write `instances`"))
    }

    /// The setting of a limiter on a store that several share.
    pub(super) fn setting(&self, is_silent: bool) -> InstancesSetting {
        let number = |number: u32| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        match *self {
            Self { number: Some(instances), .. } => InstancesSetting::Number(number(instances)),
            _ if is_silent => InstancesSetting::ONE,
            Self { at_least, .. } => InstancesSetting::Live { at_least: number(at_least.unwrap_or(1)) },
        }
    }
}
