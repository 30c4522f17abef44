//! Two builds of the bench against each other, row by row: this program and one that was built from another commit.
//!
//! Each sample runs in a process of its own, the two builds in turn, so that both see the same machine. A row is
//! *worse* if the median of its ratios is above [`MAX_RATIO`](verdict::MAX_RATIO) and nearly all pairs agree; see
//! [`verdict`]. `scripts/pairs COMMIT` builds both and runs this.

use std::path::{Path, PathBuf};

use crate::contestant::{Failure, failed};
use crate::progress::Progress;
use crate::report::table::Table;
use crate::sample::median;

pub mod rows;
mod run;
pub mod verdict;

use run::Program;
use verdict::{Pair, RowVerdict};

/// The builds and rows to compare, and how often.
#[derive(Debug)]
pub struct PairPlan {
    /// The program that was built from the other commit.
    pub against: PathBuf,
    /// Samples of each build in each row.
    pub pairs: usize,
    /// Names of groups of rows; all of them if it is empty.
    pub only: Vec<String>,
}

/// The result of a comparison.
#[derive(Debug)]
pub struct PairReport {
    /// Row by row, in the order in which they ran.
    pub rows: Vec<Compared>,
    /// Groups of rows that the other build does not have.
    pub left_out: Vec<String>,
    /// Samples that failed, a line each.
    pub problems: Vec<String>,
}

/// One row, with the figures of both builds in pairs.
#[derive(Debug)]
pub struct Compared {
    /// The name of the row.
    pub name: String,
    /// The unit of its figures. Less is better.
    pub unit: String,
    /// The other build's figure and this one's, sample by sample.
    pub pairs: Vec<Pair>,
}

impl PairReport {
    /// Returns whether nothing failed and no row is worse.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.problems.is_empty() && self.rows.iter().all(|row| row.verdict() != RowVerdict::Worse)
    }

    /// Returns a table with one line a row.
    #[must_use]
    pub fn table(&self) -> Table {
        let header = ["row", "unit", "before", "now", "ratio", "pairs above 1", "verdict"];
        let left_out = |group: &String| format!("left out, because the other commit cannot build it: {group}");
        let notes = self.left_out.iter().map(left_out).chain(self.problems.iter().cloned());
        Table::new(&header, self.rows.iter().map(Compared::cells).collect(), notes.collect())
    }
}

impl Compared {
    /// Returns whether the row is worse than before.
    #[must_use]
    pub fn verdict(&self) -> RowVerdict {
        RowVerdict::judge(&self.unit, &self.pairs)
    }

    fn cells(&self) -> Vec<String> {
        let median_of = |side: fn(&Pair) -> f64| median(self.pairs.iter().map(side)).unwrap_or_default();
        vec![
            self.name.clone(),
            self.unit.clone(),
            format!("{:.1}", median_of(|pair| pair.before)),
            format!("{:.1}", median_of(|pair| pair.now)),
            format!("{:.3}", median_of(Pair::ratio)),
            format!("{} of {}", verdict::above_one(&self.pairs), self.pairs.len()),
            self.verdict().to_string(),
        ]
    }
}

/// Runs all rows of both builds in turn.
///
/// # Errors
///
/// One of the programs does not run, or there is no row of a name that was given.
pub fn run(plan: &PairPlan) -> Result<PairReport, Failure> {
    let now = Program::new(std::env::current_exe().map_err(failed)?);
    let before = Program::new(absolute(&plan.against)?);
    let (own_groups, other_groups) = (now.groups()?, before.groups()?);
    let unknown: Vec<_> = plan.only.iter().filter(|name| !own_groups.contains(name)).cloned().collect();
    if !unknown.is_empty() {
        return Err(format!("there is no row {}: the rows are {}", unknown.join(", "), own_groups.join(", ")));
    }
    let is_chosen = |group: &String| plan.only.is_empty() || plan.only.contains(group);
    let (groups, left_out): (Vec<_>, Vec<_>) =
        own_groups.into_iter().filter(is_chosen).partition(|group| other_groups.contains(group));
    let progress = Progress::new((groups.len() * plan.pairs) as u64, None);
    let mut report = PairReport { rows: Vec::new(), left_out, problems: Vec::new() };
    for pair in 0..plan.pairs {
        for (position, group) in groups.iter().enumerate() {
            progress.step(group, &format!("pair {} of {}", pair + 1, plan.pairs));
            // The machine may change between the two samples of a pair, so the builds take turns in being first.
            let now_first = (pair + position) % 2 == 0;
            match run::pair(&before, &now, group, now_first) {
                Ok(figures) => figures.into_iter().for_each(|figure| report.add(figure)),
                Err(failure) => {
                    progress.print_line(&failure);
                    report.problems.push(failure);
                }
            }
            progress.done(1);
        }
    }
    progress.finish();
    Ok(report)
}

impl PairReport {
    fn add(&mut self, (name, unit, pair): (String, String, Pair)) {
        match self.rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row.pairs.push(pair),
            None => self.rows.push(Compared { name, unit, pairs: vec![pair] }),
        }
    }
}

fn absolute(program: &Path) -> Result<PathBuf, Failure> {
    program.canonicalize().map_err(|error| format!("{} cannot be run: {error}", program.display()))
}
