//! The log line of each minute and rule: its denials, and the number of their keys.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use once_cell::sync::OnceCell;
use tokio::runtime::{Builder, Handle};

use super::Recorder;
use crate::TARGET;
use crate::background::start_runtime;
use crate::run::run_contained;
use crate::sync::process::PerProcess;

/// Logs the denials of each interval while the limiter exists, on a thread that all limiters of the process share. Without a
/// thread there are no lines.
pub(super) fn log_each(interval: Duration, recorder: Weak<Recorder>) {
    static THREAD: PerProcess<OnceCell<Handle>> = PerProcess::new();
    let start = || start_runtime("rate-limited-activity", Builder::new_current_thread().enable_time());
    if let Ok(thread) = THREAD.here().get_or_try_init(start) {
        drop(thread.spawn(async move {
            let mut logged = BTreeMap::new();
            loop {
                tokio::time::sleep(interval).await;
                let Some(recorder) = recorder.upgrade() else { return };
                for (rule, denials, keys) in lines(&recorder, &mut logged) {
                    run_contained(|| log(rule, denials, keys));
                }
            }
        }));
    }
}

/// Logs the denials of one rule in an interval. No key is in a log.
fn log(rule: &str, denials: u64, keys: u64) {
    tracing::info!(target: TARGET, rule, denials, keys, "{denials} denials of `{rule}` by {keys} keys");
}

/// Returns the rules with denials since the last call, with the numbers of denials and of their keys. `logged` has the totals of
/// then.
fn lines(recorder: &Recorder, logged: &mut BTreeMap<&'static str, u64>) -> Vec<(&'static str, u64, u64)> {
    let mut now = BTreeMap::<&'static str, (u64, u64)>::new();
    for rule in recorder.rules.iter() {
        let denials = rule.totals().denied;
        if denials > 0 {
            let (total, keys) = now.entry(rule.shown_name()).or_default();
            *total += denials;
            *keys += rule.take_denied_keys();
        }
    }
    let line = |(rule, (total, keys)): (&'static str, (u64, u64))| {
        let denials = total - logged.insert(rule, total).unwrap_or(0);
        // A denial may be counted just before its key.
        (denials > 0).then_some((rule, denials, keys.min(denials)))
    };
    now.into_iter().filter_map(line).collect()
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;
    use crate::{Activity, Key, Limit, Limiter};

    #[test]
    fn each_line_has_the_denials_since_the_last_one() {
        let limiter = Limiter::builder().activity(Activity::new("test").top_keys(0)).build().expect("valid");
        let recorder = limiter.inside().observers.activity().expect("it is on");
        let (limit, mut logged): (Limit, _) = ("1/1h".parse().expect("a limit"), BTreeMap::new());
        assert_eq!(lines(recorder, &mut logged), []);
        let deny = |calls: u32, keys: u32| {
            for call in 0..calls {
                let key = Key::new("user:").part(call % keys);
                let decision = limiter.named("search").check_blocking(&key, &limit);
                assert!(decision.is_ok());
            }
        };
        deny(12, 12);
        assert_eq!(lines(recorder, &mut logged), [], "all are allowed");
        deny(340, 12);
        assert_eq!(lines(recorder, &mut logged), [("search", 340, 12)]);
        assert_eq!(lines(recorder, &mut logged), []);
        deny(5, 1);
        assert_eq!(lines(recorder, &mut logged), [("search", 5, 1)]);
    }
}
