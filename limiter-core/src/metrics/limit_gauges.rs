//! The gauges of a rule's limits in force.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};

use metrics::{Gauge, gauge};

use crate::Limit;
use crate::limit::WindowText;

/// The limits of a rule in its latest decision: one gauge for each window.
pub(super) struct LimitGauges {
    rule: &'static str,
    /// The fingerprint of the limits that the gauges show; 0 before the first.
    shown: AtomicU64,
    windows: Mutex<Vec<WindowGauge>>,
}

struct WindowGauge {
    millis: u64,
    max: u32,
    gauge: Gauge,
}

/// The most windows of one rule. A limit that depends on the call may have any number of them.
const MAX_WINDOWS: usize = 16;

impl LimitGauges {
    pub(super) fn new(rule: &'static str) -> Self {
        Self { rule, shown: AtomicU64::new(0), windows: Mutex::default() }
    }

    /// Shows these limits of the rule. Windows of earlier decisions get 0.
    #[inline]
    pub(super) fn set(&self, limits: &(impl Iterator<Item = Limit> + Clone)) {
        let new = fingerprint(limits.clone());
        if self.shown.load(Ordering::Relaxed) != new {
            self.change(limits, new);
        }
    }

    #[cold]
    #[inline(never)]
    fn change(&self, limits: &(impl Iterator<Item = Limit> + Clone), new: u64) {
        let mut windows = match self.windows.try_lock() {
            Ok(windows) => windows,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another call changes them. The next call compares again.
            Err(TryLockError::WouldBlock) => return,
        };
        for millis in limits.clone().map(|limit| limit.window_millis()) {
            if windows.len() < MAX_WINDOWS && windows.iter().all(|window| window.millis != millis) {
                let text = WindowText { millis }.to_string();
                let gauge = gauge!("rate_limited_limit", "rule" => self.rule, "window" => text);
                windows.push(WindowGauge { millis, max: 0, gauge });
            }
        }
        for window in windows.iter_mut() {
            let own = limits.clone().filter(|limit| limit.window_millis() == window.millis);
            let max = own.map(|limit| limit.max()).min().unwrap_or(0);
            if window.max != max {
                window.max = max;
                window.gauge.set(max);
            }
        }
        self.shown.store(new, Ordering::Relaxed);
    }
}

/// Returns a number that differs for other limits. It is never 0.
#[inline]
fn fingerprint(limits: impl Iterator<Item = Limit>) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |sum: u64, value: u64| (sum ^ value).wrapping_mul(FACTOR).rotate_left(32);
    limits.fold(1, |sum, limit| mix(mix(sum, limit.max().into()), limit.window_millis())) | 1
}
