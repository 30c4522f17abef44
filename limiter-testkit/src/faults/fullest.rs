//! The windows that hold the most permits.

use std::time::Duration;

use rate_limited::Algorithm;

use super::Call;
use super::server_windows::Epoch;
use super::subject::{Subject, worst_window};
use crate::history::{Admission, feasible, most_certain};

/// The window with the most permits of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fullest {
    /// Any stretch of time, or the server's windows alone.
    pub windows: Windows,
    /// Permits that it held for certain, whenever in its interval each call was decided. One more than the bound also where only the order
    /// of the calls shows that there were too many.
    pub most: u64,
    /// Permits that the algorithm may admit in it.
    pub bound: u64,
}

/// The windows that are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Windows {
    /// Any stretch of time as long as the window.
    Any,
    /// Multiples of the window of the server's clock.
    OfServer,
}

impl Fullest {
    /// Permits beyond the bound.
    #[must_use]
    pub fn over(&self) -> u64 {
        self.most.saturating_sub(self.bound)
    }
}

/// Returns the fullest window of each limit, and of a fixed window also the fullest one of the server's clock.
pub(super) fn fullest_windows(subject: &Subject, calls: &[Call], epoch: Option<Epoch>) -> Vec<Fullest> {
    let of_key = |key| calls.iter().filter(|call| call.key == key).filter_map(Call::admission).collect();
    let keys: Vec<Vec<Admission>> = (0..subject.keys.len()).map(of_key).collect();
    let mut fullest = Vec::new();
    for limit in &subject.limits {
        let bound = worst_window(limit);
        let most = keys.iter().map(|admissions| in_any_window(admissions, limit.window(), bound)).max();
        fullest.push(Fullest { windows: Windows::Any, most: most.unwrap_or_default(), bound });
        if let (Algorithm::FixedWindow, Some(epoch)) = (limit.algorithm(), epoch) {
            let most = keys.iter().map(|admissions| epoch.fullest_window(admissions, limit.window())).max();
            let (most, bound) = (most.unwrap_or_default(), limit.max().into());
            fullest.push(Fullest { windows: Windows::OfServer, most, bound });
        }
    }
    fullest
}

fn in_any_window(admissions: &[Admission], window: Duration, bound: u64) -> u64 {
    let most = most_certain(admissions, window);
    // The count is of calls wholly within a window. Others may be too many by their order.
    let max = u32::try_from(bound).expect("a bound of a few permits");
    if most <= bound && feasible(admissions, window, max).is_err() { bound + 1 } else { most }
}
