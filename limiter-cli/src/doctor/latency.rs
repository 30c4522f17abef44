//! The check `latency`.

use std::time::{Duration, Instant};

use rate_limited::Limiter;

use super::finding::Finding;
use super::probe::Probe;
use crate::bench::Latencies;

/// The deadline of a decision that services have by default. A later reply is a failure, and `on_error` decides.
pub(super) const DEADLINE: Duration = Duration::from_millis(100);

/// The decisions of the check, one after the other, each on a key of its own.
const DECISIONS: u32 = 100;

/// Measures decisions and compares them with the default deadline.
pub(super) async fn check(limiter: &Limiter, probe: &Probe) -> Finding {
    let (mut latencies, mut errors, mut last_error) = (Latencies::default(), 0, String::new());
    for number in 0..DECISIONS {
        let started = Instant::now();
        match limiter.check(&probe.key(number), probe.limit()).await {
            Ok(_) => latencies.record(started.elapsed()),
            Err(error) => (errors, last_error) = (errors + 1, error.to_string()),
        }
    }
    if errors > 0 {
        return Finding::fail(
            format!("{errors} of {DECISIONS} decisions failed, the last one: {last_error}"),
            "check the other findings, and the server's log",
        );
    }
    judge(latencies.quantile(0.5), latencies.quantile(0.99), latencies.max())
}

fn judge(p50: Duration, p99: Duration, max: Duration) -> Finding {
    let millis = |latency: Duration| format!("{:.1} ms", latency.as_secs_f64() * 1e3);
    let finding = format!(
        "{DECISIONS} decisions: p50 {}, p99 {}, max {}; the default deadline is {} ms",
        millis(p50),
        millis(p99),
        millis(max),
        DEADLINE.as_millis()
    );
    let remedy =
        "run the service near its Redis, or set a longer `deadline`; see `persistence` and the server's SLOWLOG";
    if p50 >= DEADLINE {
        Finding::fail(finding, remedy)
    } else if p99 >= DEADLINE / 2 {
        Finding::warn(finding, remedy)
    } else {
        Finding::ok(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn latencies_are_compared_with_the_deadline() {
        let cases = [(1, 2, 70, Status::Ok), (10, 50, 60, Status::Warn), (100, 110, 120, Status::Fail)];
        for (p50, p99, max, status) in cases {
            let finding = judge(Duration::from_millis(p50), Duration::from_millis(p99), Duration::from_millis(max));
            assert_eq!(finding.status, status, "{finding:?}");
            assert!(finding.finding.contains(&format!("p50 {p50}.0 ms, p99 {p99}.0 ms, max {max}.0 ms")));
        }
    }
}
