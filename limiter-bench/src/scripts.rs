//! The server's own time for a decision by each shipped script, without a limiter around it: one connection sends one
//! script call after the other.
//!
//! | to | see |
//! |---|---|
//! | add a script | [`subjects`] |
//! | add a case | [`cases`] |
//! | see how a figure is measured | [`measure`] |
//! | read why the scripts are as they are | `scripts/choices.md`, which [`page`] includes |

pub mod cases;
pub mod measure;
pub mod page;
pub mod subjects;

use cases::ScriptCase;
use measure::{Driver, ScriptSample};
use subjects::{SHIPPED, ScriptSubject};

use crate::contestant::Failure;
use crate::progress::Progress;
use crate::sample::median;
use crate::server::Server;

/// The amount of work of one run.
#[derive(Debug, Clone, Copy)]
pub struct ScriptPlan {
    /// Rounds of each case. Every script runs once in each round.
    pub rounds: usize,
    /// Keys of the case with many keys.
    pub keys: usize,
    /// Decisions of one script in one round.
    pub decisions: usize,
}

/// The result of one run.
#[derive(Debug)]
pub struct ScriptReport {
    /// One sentence about the server and the amount of work.
    pub measured: String,
    /// One table a case.
    pub tables: Vec<ScriptTable>,
    /// Failures, a line each.
    pub problems: Vec<String>,
}

/// The results of one case.
#[derive(Debug)]
pub struct ScriptTable {
    /// The case.
    pub case: ScriptCase,
    /// One row a script.
    pub rows: Vec<ScriptRow>,
}

/// The results of one script in one case.
#[derive(Debug)]
pub struct ScriptRow {
    /// The name of the script.
    pub script: &'static str,
    /// One sample a round.
    pub rounds: Vec<ScriptSample>,
    /// The reason why the script has no figures.
    pub failure: Option<Failure>,
}

/// Measures every script in every case, on a Redis of its own.
///
/// # Errors
///
/// Redis cannot be started. The failure is one line.
pub fn run(plan: ScriptPlan) -> Result<ScriptReport, Failure> {
    let server = Server::start().map_err(|failure| format!("Redis cannot be started ({failure})"))?;
    let subjects = subjects::all();
    let cases = cases::all(plan.keys);
    let scripts_of = |case: &ScriptCase| subjects.iter().filter(|subject| subject.takes_part(case)).count();
    let units = cases.iter().map(scripts_of).sum::<usize>() * plan.rounds;
    let progress = Progress::new(units as u64, None);
    let mut tables = Vec::new();
    let mut problems = Vec::new();
    for case in cases {
        let rows = run_rounds(plan, &server, &progress, &case, &subjects);
        for row in &rows {
            if let Some(failure) = &row.failure {
                problems.push(format!("{} in {}: {failure}", row.script, case.name));
            }
        }
        tables.push(ScriptTable { case, rows });
    }
    progress.finish();

    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let ScriptPlan { rounds, decisions, .. } = plan;
    let measured = format!(
        "Redis {}, {cores} cores; rounds: {rounds}, of {decisions} decisions for each script in each case.",
        server.version()
    );
    let mut report = ScriptReport { measured, tables, problems };
    let rows = report.tables.iter().flat_map(|table| &table.rows);
    if let Some(spread) = median(rows.filter_map(ScriptRow::spread)) {
        report.measured +=
            &format!(" The rounds of a row differ by {:.0} %, in the median of the rows.", spread * 100.0);
    }
    Ok(report)
}

/// Runs all rounds of one case. Each round starts with another script.
fn run_rounds(
    plan: ScriptPlan,
    server: &Server,
    progress: &Progress,
    case: &ScriptCase,
    subjects: &[ScriptSubject],
) -> Vec<ScriptRow> {
    let subjects: Vec<_> = subjects.iter().filter(|subject| subject.takes_part(case)).collect();
    let row = |subject: &&ScriptSubject| ScriptRow { script: subject.name, rounds: Vec::new(), failure: None };
    let mut rows: Vec<_> = subjects.iter().map(row).collect();
    for round in 0..plan.rounds {
        for turn in 0..subjects.len() {
            let index = (round + turn) % subjects.len();
            let (subject, row) = (subjects[index], &mut rows[index]);
            progress.step(case.name, subject.name);
            if row.failure.is_none() {
                match Driver::connect(server, case, subject).and_then(|driver| driver.sample(plan.decisions)) {
                    Ok(sample) => row.rounds.push(sample),
                    Err(failure) => {
                        progress.print_line(&format!("{} failed in {}: {failure}", subject.name, case.name));
                        row.failure = Some(failure);
                    }
                }
            }
            progress.done(1);
        }
    }
    rows
}

impl ScriptTable {
    /// Returns the row that the others are compared with, unless its script failed.
    #[must_use]
    pub fn reference(&self) -> Option<&ScriptRow> {
        self.rows.iter().find(|row| row.script == SHIPPED && row.is_usable())
    }
}

impl ScriptRow {
    fn is_usable(&self) -> bool {
        self.failure.is_none() && !self.rounds.is_empty()
    }

    /// Returns the median of a figure over the rounds.
    #[must_use]
    pub fn median(&self, figure: impl Fn(&ScriptSample) -> f64) -> Option<f64> {
        median(self.rounds.iter().map(figure)).filter(|_| self.is_usable())
    }

    /// Returns the share by which the slowest round is above the fastest.
    fn spread(&self) -> Option<f64> {
        let micros = || self.rounds.iter().map(|round| round.micros);
        Some(micros().max_by(f64::total_cmp)? / micros().min_by(f64::total_cmp)? - 1.0)
    }

    /// Returns this row's time as a multiple of another row's: the median of the rounds' ratios, because a disturbance
    /// affects both rows of a round.
    #[must_use]
    pub fn ratio_to(&self, other: &Self) -> Option<f64> {
        let rounds = self.rounds.iter().zip(&other.rounds);
        median(rounds.map(|(own, others)| own.micros / others.micros)).filter(|_| self.is_usable())
    }
}
