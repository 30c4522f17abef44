//! The maximum number of permits that each algorithm admits, as in docs/algorithms.md.

use std::time::Duration;

use rate_limited::{Algorithm, Limit};

use super::calls::Admitted;

/// Returns the greatest number of permits that a limit admits in any stretch of time as long as its window, if no call
/// costs more than `cost`.
pub(super) fn max_per_window(limit: Limit, cost: u32) -> u64 {
    let (max, burst, cost) = (u64::from(limit.max()), u64::from(limit.burst()), u64::from(cost.max(1)));
    match limit.algorithm() {
        Algorithm::FixedWindow | Algorithm::SlidingCounter => 2 * max,
        Algorithm::TokenBucket => burst + max - 1,
        Algorithm::LeakyBucket => max + cost - 1,
        _ => max,
    }
}

/// Checks admitted calls by the worst window. `factor` is the multiple of the bound that is allowed in a window, by its
/// start and end.
///
/// # Errors
///
/// The fullest window, counting only calls that began and ended in it.
pub(super) fn check_worst_window(
    limit: Limit,
    calls: &[Admitted],
    factor: impl Fn(Duration, Duration) -> u64,
) -> Result<(), String> {
    let cost = calls.iter().map(|call| call.cost).max().unwrap_or_default();
    let most = max_per_window(limit, cost);
    let mut calls = calls.to_vec();
    calls.sort_by_key(|call| call.start);
    for (first, Admitted { start, .. }) in calls.iter().enumerate() {
        let end = *start + limit.window();
        let inside = calls[first..].iter().take_while(|call| call.start < end).filter(|call| call.end < end);
        let inside: Vec<_> = inside.collect();
        let permits: u64 = inside.iter().map(|call| u64::from(call.cost)).sum();
        let most = most * factor(*start, end);
        if permits > most {
            let shown: Vec<_> = inside.iter().map(|call| call.to_string()).collect();
            return Err(format!(
                "{} of {limit}: {permits} permits of at most {most} within the window from {start:.4?} on: {}",
                describe(limit),
                shown.join(", "),
            ));
        }
    }
    Ok(())
}

/// Checks a bucket by every stretch of time, for runs without faults: at most its capacity, and the permits that flow
/// back meanwhile.
///
/// # Errors
///
/// A stretch with too many permits.
pub(super) fn check_every_stretch(limit: Limit, calls: &[Admitted]) -> Result<(), String> {
    let capacity = match limit.algorithm() {
        Algorithm::TokenBucket => u128::from(limit.burst()),
        // The last call of a stretch begins once all earlier permits have drained.
        Algorithm::LeakyBucket => calls.iter().map(|call| u128::from(call.cost)).max().unwrap_or_default(),
        _ => return Ok(()),
    };
    let mut calls = calls.to_vec();
    calls.sort_by_key(|call| call.end);
    for Admitted { start, .. } in &calls {
        let mut permits = 0;
        for call in calls.iter().filter(|call| call.start >= *start) {
            permits += u128::from(call.cost);
            // The decision's instants are rounded to microseconds.
            let length = (call.end - *start).as_micros() + 2;
            let most = capacity + length * u128::from(limit.max()) / limit.window().as_micros();
            if permits > most {
                let end = call.end;
                return Err(format!(
                    "{} of {limit}: {permits} permits of at most {most} between {start:.4?} and {end:.4?}",
                    describe(limit)
                ));
            }
        }
    }
    Ok(())
}

/// Checks a fixed window by the server's own windows, which begin at multiples of their length by the system's clock.
///
/// # Errors
///
/// A window with more than `max` permits of calls that began and ended in it.
pub(super) fn check_server_windows(limit: Limit, calls: &[Admitted]) -> Result<(), String> {
    if limit.algorithm() != Algorithm::FixedWindow {
        return Ok(());
    }
    let window = limit.window().as_millis();
    let mut windows = std::collections::BTreeMap::<u128, u64>::new();
    for call in calls {
        // Stamps are whole milliseconds.
        let (start, end) = (call.wall_start.as_millis().saturating_sub(1), call.wall_end.as_millis() + 1);
        if start / window == end / window {
            *windows.entry(start / window).or_default() += u64::from(call.cost);
        }
    }
    match windows.into_iter().find(|(_, permits)| *permits > u64::from(limit.max())) {
        None => Ok(()),
        Some((number, permits)) => {
            let shown = calls.iter().filter(|call| call.wall_start.as_millis() / window == number);
            let shown: Vec<_> = shown.map(Admitted::to_string).collect();
            Err(format!("fixed_window of {limit}: {permits} permits in one window of the server: {}", shown.join(", ")))
        }
    }
}

/// Returns the algorithm's name and its burst.
pub(super) fn describe(limit: Limit) -> String {
    let burst = if limit.burst() == limit.max() { String::new() } else { format!(" (burst {})", limit.burst()) };
    format!("{:?}{burst}", limit.algorithm())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(millis: &[u64]) -> Vec<Admitted> {
        let at = |millis: &u64| Duration::from_millis(*millis);
        millis.iter().map(|millis| Admitted::instantaneous(at(millis), 1)).collect()
    }

    fn limit(algorithm: Algorithm) -> Limit {
        Limit::new(2, Duration::from_millis(100)).expect("a limit").with_algorithm(algorithm)
    }

    #[test]
    fn too_many_permits_in_a_window_are_a_violation() {
        let check = |algorithm, millis: &[u64]| check_worst_window(limit(algorithm), &calls(millis), |_, _| 1);
        assert!(check(Algorithm::SlidingWindow, &[0, 50, 100, 150]).is_ok());
        assert!(check(Algorithm::SlidingWindow, &[0, 50, 99]).is_err());
        assert!(check(Algorithm::FixedWindow, &[90, 95, 100, 105]).is_ok());
        assert!(check(Algorithm::FixedWindow, &[90, 95, 100, 105, 189]).is_err());
        assert!(check(Algorithm::TokenBucket, &[0, 0, 50, 100]).is_ok());
        assert!(check(Algorithm::TokenBucket, &[0, 0, 50, 60]).is_err());
        assert!(check(Algorithm::LeakyBucket, &[0, 50, 100]).is_ok());
        assert!(check(Algorithm::LeakyBucket, &[0, 50, 60]).is_err());
    }

    #[test]
    fn too_many_permits_in_a_stretch_are_a_violation() {
        let check = |algorithm, millis: &[u64]| check_every_stretch(limit(algorithm), &calls(millis));
        assert!(check(Algorithm::TokenBucket, &[0, 0, 50, 100]).is_ok());
        assert!(check(Algorithm::TokenBucket, &[0, 0, 49]).is_err());
        assert!(check(Algorithm::LeakyBucket, &[0, 50, 100]).is_ok());
        assert!(check(Algorithm::LeakyBucket, &[0, 49]).is_err());
    }

    #[test]
    fn too_many_permits_in_a_server_window_are_a_violation() {
        let check = |millis: &[u64]| check_server_windows(limit(Algorithm::FixedWindow), &calls(millis));
        assert!(check(&[90, 95, 105, 110]).is_ok());
        assert!(check(&[10, 50, 90]).is_err());
        assert!(check(&[100, 150, 190]).is_ok(), "a call at the edge may belong to the previous window");
    }
}
