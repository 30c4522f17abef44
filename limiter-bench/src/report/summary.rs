//! The four sentences that open the page. Each one states figures of the run, and is left out if they are missing.

use crate::contestants::{BARE_SCRIPT, GOVERNOR, ZSET};
use crate::report::Report;
use crate::report::table::count;

/// Returns the sentences whose figures were measured.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    [in_process(report), throughput(report), latency(report), memory(report)].into_iter().flatten().collect()
}

fn in_process(report: &Report) -> Option<String> {
    let nanos = |per_second: f64| 1e9 / per_second;
    let ours = nanos(report.ours("local-keys")?.median.per_second);
    let governor = nanos(report.outcome("local-keys", GOVERNOR)?.median.per_second);
    Some(format!(
        "In process, a decision on one of 1 000 keys takes {ours:.1} ns on one thread, where governor takes \
         {governor:.1} ns."
    ))
}

fn throughput(report: &Report) -> Option<String> {
    let (ours, peer) = (report.ours("many-keys")?, report.best_exact_peer("many-keys")?);
    let ratio = ours.ratio_to(peer, |sample| sample.per_second)?;
    Some(format!(
        "On Redis, 512 tasks on 200 000 keys get {} decisions a second, {ratio:.2} × those of {}, the fastest exact \
         peer.",
        count(ours.median.per_second),
        peer.contestant
    ))
}

fn latency(report: &Report) -> Option<String> {
    let (ours, floor) = (report.ours("tasks-1")?, report.outcome("tasks-1", BARE_SCRIPT)?);
    Some(format!(
        "One task alone waits {} µs for a decision at the median, where a script call that does nothing takes {} µs.",
        count(ours.median.p50_us),
        count(floor.median.p50_us)
    ))
}

fn memory(report: &Report) -> Option<String> {
    let (ours, zset) = (report.ours("bytes-100000")?, report.outcome("bytes-100000", ZSET)?);
    Some(format!(
        "A key with 100 000 permits in use takes {} bytes in Redis, where a sorted set takes {}.",
        count(ours.median.bytes?),
        count(zset.median.bytes?)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::Kind;
    use crate::report::CaseReport;
    use crate::sample::{Outcome, Sample};

    #[test]
    fn a_sentence_states_the_figures_of_its_case() {
        let mut outcomes = Vec::new();
        for (name, kind, p50_us) in [("ours", Kind::Ours, 125.0), (BARE_SCRIPT, Kind::Floor, 86.0)] {
            let mut outcome = Outcome::named(name, kind);
            outcome.add(Sample { p50_us, ..Sample::default() });
            outcomes.push(outcome);
        }
        let cases = vec![CaseReport { name: "tasks-1".into(), title: "".into(), outcomes }];
        let report = Report { cases, ..Report::default() };
        let sentences = sentences(&report);
        assert_eq!(sentences.len(), 1, "cases that were not measured have no sentence");
        assert!(sentences[0].contains("125 µs") && sentences[0].contains("86 µs"), "{sentences:?}");
    }
}
