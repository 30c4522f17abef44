//! The fullest window of each key.

use std::time::Duration;

use limiter_testkit::history::{Admission, feasible, fullest_window};
use rate_limited::Algorithm;

use super::Call;
use super::server_windows::Epoch;
use super::workload::{Workload, max_per_window};

/// The window with the most permits of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FullestWindow {
    /// The windows that were searched.
    pub windows: WindowKind,
    /// The permits that the window contains for certain, wherever in its interval each call was decided. It is one more
    /// than the bound if only the order of the calls proves that there were too many.
    pub permits: u64,
    /// The permits that the algorithm may admit in the window.
    pub bound: u64,
}

/// A kind of window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowKind {
    /// Any stretch of time as long as the window.
    Any,
    /// The windows of the server's clock, which begin at multiples of their length.
    ServerClock,
}

impl FullestWindow {
    /// Returns the permits beyond the bound.
    #[must_use]
    pub fn excess(&self) -> u64 {
        self.permits.saturating_sub(self.bound)
    }
}

/// Returns the fullest window of each limit, and for a fixed window also the fullest one of the server's clock.
pub(super) fn fullest_windows(workload: &Workload, calls: &[Call], epoch: Option<Epoch>) -> Vec<FullestWindow> {
    let admissions_of_key = |key| calls.iter().filter(|call| call.key == key).filter_map(Call::admission).collect();
    let keys: Vec<Vec<Admission>> = (0..workload.keys.len()).map(admissions_of_key).collect();
    let mut fullest = Vec::new();
    for limit in &workload.limits {
        let bound = max_per_window(limit);
        let permits = keys.iter().map(|admissions| fullest_of_any_window(admissions, limit.window(), bound)).max();
        fullest.push(FullestWindow { windows: WindowKind::Any, permits: permits.unwrap_or_default(), bound });
        if let (Algorithm::FixedWindow, Some(epoch)) = (limit.algorithm(), epoch) {
            let permits = keys.iter().map(|admissions| epoch.fullest_window(admissions, limit.window())).max();
            let (permits, bound) = (permits.unwrap_or_default(), limit.max().into());
            fullest.push(FullestWindow { windows: WindowKind::ServerClock, permits, bound });
        }
    }
    fullest
}

fn fullest_of_any_window(admissions: &[Admission], window: Duration, bound: u64) -> u64 {
    let (_, permits) = fullest_window(admissions, window);
    // The count is that of calls wholly within a window. The order of the other calls may prove that there were too
    // many.
    let max = u32::try_from(bound).expect("a bound of a few permits");
    if permits <= bound && feasible(admissions, window, max).is_err() { bound + 1 } else { permits }
}
