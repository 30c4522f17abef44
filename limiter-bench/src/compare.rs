//! Runs the chosen cases and returns a report.

use std::process::Command;

use crate::bars;
use crate::cases::{self, Case, How};
use crate::contestants::versions;
use crate::measure::{self, Pace, Stage};
use crate::progress::Progress;
use crate::report::{CaseReport, Report};
use crate::server::Server;

/// The cases to compare, and how long to measure them.
#[derive(Debug)]
pub struct Plan {
    /// The cases, one table each.
    pub cases: Vec<Case>,
    /// The amount of work.
    pub pace: Pace,
}

/// Measures all cases. A case that cannot be measured is one of the report's problems.
pub async fn run(plan: Plan) -> Report {
    let Plan { mut cases, pace } = plan;
    let chosen: Vec<_> = cases.iter().map(|case| case.name).collect();
    // It finds the exact peers, so it runs before each case that is compared with them.
    if !chosen.contains(&cases::EXACT.name) && cases.iter().any(Case::has_peers) {
        cases.insert(0, cases::EXACT);
    }
    let mut problems = Vec::new();
    let mut version = String::new();
    let server = if cases.iter().any(|case| case.needs_redis() || matches!(case.how, How::Exactness | How::Waiting)) {
        match Server::start() {
            Ok(server) => {
                version = format!("Redis {}, ", server.version());
                Some(server)
            }
            Err(failure) => {
                let out: Vec<_> = cases.iter().filter(|case| case.needs_redis()).map(|case| case.name).collect();
                let out = if out.is_empty() { String::new() } else { format!(": {}", out.join(", ")) };
                let problem = format!("Redis cannot be started ({failure}); cases that need it are left out{out}");
                eprintln!("limiter-bench: {problem}");
                problems.push(problem);
                cases.retain(|case| !case.needs_redis());
                None
            }
        }
    } else {
        None
    };

    let units = cases.iter().map(|case| measure::units(case, pace, server.is_some())).sum();
    let progress = Progress::new(units, pace.time);
    let stage = Stage { server: server.as_ref(), pace, progress: &progress };
    let mut reports = Vec::new();
    for case in &cases {
        let outcomes = stage.measure(case).await;
        for outcome in &outcomes {
            if let Some(failure) = &outcome.failure {
                problems.push(format!("{} in {}: {failure}", outcome.contestant, case.name));
            }
        }
        reports.push(CaseReport { name: case.name.into(), title: case.title.into(), outcomes });
    }
    progress.finish();

    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let measured = format!(
        "{version}{cores} cores; rounds: {}{}, of {} ms for each contestant in each case; {}.",
        if pace.time.is_some() { "up to " } else { "" },
        pace.rounds,
        pace.sample.as_millis(),
        versions::peer_versions()
    );
    let mut report = Report { measured, commit: commit(), cases: reports, bars: Vec::new(), problems };
    report.bars = bars::all(&report);
    report.bars.retain(|bar| chosen.contains(&&*bar.case));
    report
}

/// Returns the commit of the working directory and its date, and whether files differ from it; empty without one.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok()
    };
    let Some(commit) = git(&["log", "-1", "--format=%h of %cs"]) else { return String::new() };
    let is_changed = git(&["status", "--porcelain"]).is_none_or(|status| !status.is_empty());
    format!("{}{}", commit.trim(), if is_changed { ", with changes" } else { "" })
}
