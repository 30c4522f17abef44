//! The goals for the speed of `rate-limited`, and whether a run meets them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::contestant::Kind;
use crate::contestants::{BARE_SCRIPT, GOVERNOR, TOWER_REDIS, ZSET, attribute};
use crate::report::Report;
use crate::sample::{Outcome, Sample};

/// One goal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Bar {
    /// The measured situation.
    pub row: Cow<'static, str>,
    /// The name of the case that measures it.
    pub case: Cow<'static, str>,
    /// The bound, with its unit and its reference.
    pub bar: String,
    /// The number in the bound.
    pub bound: f64,
    /// The figure of this run; none if it was not measured.
    pub measured: Option<f64>,
    /// True if the figure is within the bound; none if it was not measured.
    pub met: Option<bool>,
}

/// A bound of a figure.
#[derive(Debug, Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bound) => figure >= bound,
            Self::AtMost(bound) => figure <= bound,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(bound) => format!("at least {bound}"),
            Self::AtMost(bound) => format!("at most {bound}"),
        }
    }
}

/// Returns all goals, each with the figure of this run.
#[must_use]
pub fn all(report: &Report) -> Vec<Bar> {
    rows(&Bars { report }).into_iter().map(|bar| bar.with_failure(report)).collect()
}

fn rows(bars: &Bars<'_>) -> Vec<Bar> {
    let (rate, time): (Metric, Metric) = (|sample| sample.per_second, |sample| 1.0 / sample.per_second);
    let server_us: Metric = |sample| sample.server_us.unwrap_or(f64::NAN);
    let bytes: Metric = |sample| sample.bytes.unwrap_or(f64::NAN);
    let least = Bound::AtLeast;
    let most = Bound::AtMost;
    vec![
        bars.versus(
            "in process, 1 000 keys, 1 thread",
            "local-keys",
            GOVERNOR,
            time,
            most(0.8),
            "the time of governor",
        ),
        bars.versus(
            "in process, constant key through the attribute",
            "attribute",
            GOVERNOR,
            time,
            most(0.6),
            "the time of governor",
        ),
        bars.over_the_bare_call(most(45.0)),
        bars.versus(
            "in process, one hot key, 2 threads, denied",
            "local-denied-2",
            GOVERNOR,
            time,
            most(0.3),
            "the time of governor",
        ),
        bars.versus(
            "Redis, 1 task",
            "tasks-1",
            BARE_SCRIPT,
            |sample| sample.p50_us,
            most(1.15),
            "the p50 of a bare `return 1`",
        ),
        bars.best_peer("Redis, 512 tasks, 200 000 keys, 5/10 s", "many-keys", least(3.0)),
        bars.versus("Redis, 512 tasks, 200 000 keys, 5/10 s", "many-keys", ZSET, rate, least(1.6), "the ZSET script"),
        bars.versus("Redis, 512 tasks, 200 000 keys, 5/10 s", "many-keys", TOWER_REDIS, rate, least(1.4), TOWER_REDIS),
        bars.best_peer("Redis, 64 tasks, 1 000 keys, 100 000/s", "tasks-64", least(2.0)),
        bars.versus("Redis, 64 tasks, 1 000 keys, 100 000/s", "tasks-64", ZSET, rate, least(1.2), "the ZSET script"),
        bars.best_peer("Redis, 64 tasks, one key, limit never reached", "one-key-64", least(5.0)),
        bars.versus(
            "Redis, 64 tasks, one key, limit never reached",
            "one-key-64",
            ZSET,
            rate,
            least(3.0),
            "the ZSET script",
        ),
        bars.versus(
            "Redis, 512 tasks, one key, limit never reached",
            "one-key-512",
            ZSET,
            rate,
            least(8.0),
            "the ZSET script",
        ),
        bars.best_peer("Redis, 64 tasks, one key, 99 % denied", "denied-99", least(20.0)),
        bars.commands("Redis, 64 tasks, one key, 99 % denied", "denied-99", most(0.01)),
        bars.versus(
            "Redis's own time a decision, 512 tasks",
            "many-keys",
            ZSET,
            server_us,
            most(0.6),
            "the ZSET script",
        ),
        bars.versus("bytes in Redis, 5 permits", "bytes-5", ZSET, bytes, most(0.8), "the ZSET"),
        bars.versus("bytes in Redis, 100 000 permits", "bytes-100000", ZSET, bytes, most(0.001), "the ZSET"),
        bars.waiting_memory("10 000 tasks waiting, in process", "in process"),
        bars.waiting_spread("10 000 tasks waiting, in process", "in process"),
        bars.waiting_memory("10 000 tasks waiting, on Redis", "on Redis"),
        bars.waiting_spread("10 000 tasks waiting, on Redis", "on Redis"),
    ]
}

type Metric = fn(&Sample) -> f64;

struct Bars<'a> {
    report: &'a Report,
}

impl Bars<'_> {
    fn ours(&self, case: &str) -> Option<&Outcome> {
        self.report.ours(case)
    }

    fn versus(
        &self,
        row: &'static str,
        case: &'static str,
        other: &str,
        figure: Metric,
        bound: Bound,
        reference: &str,
    ) -> Bar {
        let pair = self.ours(case).zip(self.report.outcome(case, other));
        let ratio = pair.and_then(|(ours, other)| ours.ratio_to(other, figure));
        bar(row, case, format!("{} × {reference}", bound.text()), ratio, bound)
    }

    fn best_peer(&self, row: &'static str, case: &'static str, bound: Bound) -> Bar {
        let peer = self.report.best_exact_peer(case);
        let ratio = self.ours(case).zip(peer).and_then(|(ours, peer)| ours.ratio_to(peer, |sample| sample.per_second));
        let name = peer.map_or(String::new(), |peer| format!(" ({})", peer.contestant));
        bar(row, case, format!("{} × the best exact peer{name}", bound.text()), ratio, bound)
    }

    fn over_the_bare_call(&self, bound: Bound) -> Bar {
        let pair = self.ours("attribute").zip(self.report.outcome("attribute", attribute::BARE));
        let nanos = |outcome: &Outcome| 1e9 / outcome.median.per_second;
        let over = pair.map(|(ours, bare)| nanos(ours) - nanos(bare));
        let row = "in process, constant key through the attribute";
        bar(row, "attribute", format!("{} ns over the bare call", bound.text()), over, bound)
    }

    fn commands(&self, row: &'static str, case: &'static str, bound: Bound) -> Bar {
        let commands = self.ours(case).and_then(|ours| ours.median.commands);
        bar(row, case, format!("{} commands a decision", bound.text()), commands, bound)
    }

    fn waiting_memory(&self, row: &'static str, store: &str) -> Bar {
        self.waited(row, store, "a waiting call", Bound::AtMost(2_000.0), "bytes", |sample| {
            sample.bytes.unwrap_or(f64::NAN)
        })
    }

    /// The p99 of the delay of waiting calls, in multiples of the p50. The delay counts from the promised instant.
    fn waiting_spread(&self, row: &'static str, store: &str) -> Bar {
        self.waited(row, store, "the p99 of the delay", Bound::AtMost(4.0), "× the p50 for", |sample| {
            sample.p99_us / sample.p50_us
        })
    }

    /// Returns a goal that is not met if calls got no permit: the figures of the other calls mean little then.
    fn waited(&self, row: &'static str, store: &str, of: &str, bound: Bound, unit: &str, figure: Metric) -> Bar {
        let outcome = self.report.outcome("waiting", store);
        let shown = outcome.map(|outcome| figure(&outcome.median));
        let mut bar = bar(row, "waiting", format!("{} {unit} {of}", bound.text()), shown, bound);
        if let Some(failures) = outcome.map(|outcome| outcome.failures).filter(|&failures| failures > 0) {
            bar.met = Some(false);
            bar.bar.push_str(&format!(" ({failures} calls got no permit)"));
        }
        bar
    }
}

fn bar(row: &'static str, case: &'static str, bar: String, measured: Option<f64>, bound: Bound) -> Bar {
    let measured = measured.filter(|figure| figure.is_finite());
    let (Bound::AtLeast(figure) | Bound::AtMost(figure)) = bound;
    Bar {
        row: row.into(),
        case: case.into(),
        bar,
        bound: figure,
        measured,
        met: measured.map(|figure| bound.is_met(figure)),
    }
}

impl Bar {
    /// Marks the goal as not met if `rate-limited` failed in its case.
    fn with_failure(mut self, report: &Report) -> Self {
        let ours = report.case(&self.case).into_iter().flat_map(|case| &case.outcomes);
        let failure = ours.filter(|outcome| outcome.kind == Kind::Ours).find_map(|outcome| outcome.failure.as_ref());
        if let (None, Some(failure)) = (self.met, failure) {
            self.met = Some(false);
            self.bar.push_str(&format!(" ({failure})"));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::CaseReport;

    #[test]
    fn bounds_include_their_own_value() {
        assert!(Bound::AtLeast(3.0).is_met(3.0) && !Bound::AtLeast(3.0).is_met(2.9));
        assert!(Bound::AtMost(0.6).is_met(0.6) && !Bound::AtMost(0.6).is_met(0.7));
    }

    #[test]
    fn a_bar_that_was_not_measured_is_neither_met_nor_missed() {
        let report = Report::default();
        assert!(all(&report).iter().all(|bar| bar.met.is_none()));
    }

    #[test]
    fn a_failure_does_not_meet_a_bar() {
        let mut failed = Outcome::named("rate-limited (Redis)", Kind::Ours);
        failed.failure = Some("no answer".to_owned());
        let case = CaseReport { name: "one-key-512".into(), title: "".into(), outcomes: vec![failed] };
        let report = Report { cases: vec![case], ..Report::default() };
        let bar = all(&report).into_iter().find(|bar| bar.case == "one-key-512").expect("a bar of that case");
        assert_eq!(bar.met, Some(false));
        assert!(bar.bar.ends_with("(no answer)"), "{}", bar.bar);
    }
}
