//! Variants of the scripts on Redis, by the server's own time for a decision. No limiter is in between: a connection
//! sends one script call after the other.
//!
//! | to | see |
//! |---|---|
//! | add a variant | [`variants`], and the Lua files in `scripts/lua/` |
//! | add a case | [`cases`] |
//! | know how a figure is measured | [`measure`] |
//! | know what follows from the figures | [`choices`] |

pub mod cases;
pub mod choices;
pub mod measure;
pub mod page;
pub mod variants;

use cases::Case;
use measure::{Driver, Sample};
use variants::Variant;

use crate::contestant::Failure;
use crate::progress::Progress;
use crate::sample::median;
use crate::server::Server;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Rounds of each case, in each of which every variant has its turn.
    pub rounds: usize,
    /// Keys of the case with many.
    pub keys: usize,
    /// Decisions of one variant in one round.
    pub decisions: usize,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// How it was measured, in a sentence.
    pub measured: String,
    /// Case by case.
    pub tables: Vec<Measured>,
    /// What went wrong, a line each.
    pub problems: Vec<String>,
}

/// One case.
#[derive(Debug)]
pub struct Measured {
    /// What was asked.
    pub case: Case,
    /// Everybody who took part.
    pub rows: Vec<Row>,
}

/// One variant in one case.
#[derive(Debug)]
pub struct Row {
    /// Which.
    pub variant: &'static str,
    /// What it is compared with, if not with nothing.
    pub against: Option<&'static str>,
    /// Round by round.
    pub rounds: Vec<Sample>,
    /// Why it is not in the table.
    pub failure: Option<Failure>,
}

/// Measures every variant in every case, on a Redis of its own.
///
/// # Errors
///
/// There is no server, or what ships cannot be made variants of: in one line.
pub fn run(plan: Plan) -> Result<Report, Failure> {
    let variants = variants::all()?;
    let server = Server::start().map_err(|failure| format!("Redis cannot be started ({failure})"))?;
    let cases = cases::all(plan.keys);
    let takes_part = |case: &Case| variants.iter().filter(|variant| variant.takes_part(case)).count();
    let units = cases.iter().map(takes_part).sum::<usize>() * plan.rounds;
    let progress = Progress::new(units as u64, None);
    let mut tables = Vec::new();
    let mut problems = Vec::new();
    for case in cases {
        let rows = in_rounds(plan, &server, &progress, &case, &variants);
        for row in &rows {
            if let Some(failure) = &row.failure {
                problems.push(format!("{} in {}: {failure}", row.variant, case.name));
            }
        }
        tables.push(Measured { case, rows });
    }
    progress.finish();

    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let Plan { rounds, decisions, .. } = plan;
    let measured = format!(
        "Redis {}, {cores} cores; rounds: {rounds}, of {decisions} decisions for each variant in each case.",
        server.version()
    );
    let mut report = Report { measured, tables, problems };
    let rows = report.tables.iter().flat_map(|table| &table.rows);
    if let Some(spread) = median(rows.filter_map(Row::spread)) {
        report.measured +=
            &format!(" The rounds of a row differ by {:.0} %, in the median of the rows.", spread * 100.0);
    }
    Ok(report)
}

/// Who is first changes from round to round.
fn in_rounds(plan: Plan, server: &Server, progress: &Progress, case: &Case, variants: &[Variant]) -> Vec<Row> {
    let variants: Vec<_> = variants.iter().filter(|variant| variant.takes_part(case)).collect();
    let row =
        |variant: &&Variant| Row { variant: variant.name, against: variant.against, rounds: Vec::new(), failure: None };
    let mut rows: Vec<_> = variants.iter().map(row).collect();
    for round in 0..plan.rounds {
        for turn in 0..variants.len() {
            let which = (round + turn) % variants.len();
            let (variant, row) = (variants[which], &mut rows[which]);
            progress.step(case.name, variant.name);
            if row.failure.is_none() {
                match Driver::connect(server, case, variant).and_then(|driver| driver.sample(plan.decisions)) {
                    Ok(sample) => row.rounds.push(sample),
                    Err(failure) => {
                        progress.say(&format!("{} failed in {}: {failure}", variant.name, case.name));
                        row.failure = Some(failure);
                    }
                }
            }
            progress.done(1);
        }
    }
    rows
}

impl Report {
    /// One variant in one case, unless it failed.
    #[must_use]
    pub fn row(&self, case: &str, variant: &str) -> Option<&Row> {
        self.tables.iter().find(|table| table.case.name == case)?.row(variant)
    }
}

impl Measured {
    /// One variant, unless it failed.
    #[must_use]
    pub fn row(&self, variant: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.variant == variant && row.is_usable())
    }
}

impl Row {
    fn is_usable(&self) -> bool {
        self.failure.is_none() && !self.rounds.is_empty()
    }

    /// The median of a figure.
    #[must_use]
    pub fn figure(&self, of: impl Fn(&Sample) -> f64) -> Option<f64> {
        median(self.rounds.iter().map(of)).filter(|_| self.is_usable())
    }

    /// By how much of the least time the most is above it: how quiet it was.
    fn spread(&self) -> Option<f64> {
        let micros = || self.rounds.iter().map(|round| round.micros);
        Some(micros().max_by(f64::total_cmp)? / micros().min_by(f64::total_cmp)? - 1.0)
    }

    /// Its time as a multiple of another's: the median of the rounds' ratios, since what disturbs a round disturbs both.
    #[must_use]
    pub fn ratio_to(&self, other: &Self) -> Option<f64> {
        let rounds = self.rounds.iter().zip(&other.rounds);
        median(rounds.map(|(own, others)| own.micros / others.micros)).filter(|_| self.is_usable())
    }
}
