//! The denials of each key in the last minute.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use rate_limited::DenialBurst;

/// The time for which denials count.
const WINDOW: Duration = Duration::from_secs(60);
/// The most bursts that are kept.
const MAX_BURSTS: usize = 50_000;

/// The bursts of the last minute.
#[derive(Default)]
pub(crate) struct KeyDenials {
    bursts: VecDeque<Burst>,
}

struct Burst {
    at: SystemTime,
    rule: String,
    key: String,
    denials: u64,
}

impl KeyDenials {
    /// Adds the bursts of a reading at a time, by the clock of the server. Those without a key are left out.
    pub(crate) fn add(&mut self, at: SystemTime, bursts: &[DenialBurst]) {
        let is_new = |time: SystemTime| at.duration_since(time).map_or(true, |age| age < WINDOW);
        let added = bursts.iter().filter(|burst| is_new(burst.at)).filter_map(|burst| {
            let key = burst.key.clone()?;
            Some(Burst { at: burst.at, rule: burst.rule.clone(), key, denials: burst.denials })
        });
        self.bursts.extend(added);
        // Bursts of several limiters are not in the order of their times.
        self.bursts.retain(|burst| is_new(burst.at));
        let excess = self.bursts.len().saturating_sub(MAX_BURSTS);
        self.bursts.drain(..excess);
    }

    /// Returns the denials by rule and key.
    pub(crate) fn counts(&self) -> HashMap<(&str, &str), u64> {
        let mut counts = HashMap::<_, u64>::new();
        for Burst { rule, key, denials, .. } in &self.bursts {
            let count = counts.entry((&**rule, &**key)).or_default();
            *count = count.saturating_add(*denials);
        }
        counts
    }
}
