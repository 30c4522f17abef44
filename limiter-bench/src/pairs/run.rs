//! One build in a process of its own, and its figures.

use std::path::PathBuf;
use std::process::Command;

use super::rows::Figure;
use super::verdict::Pair;
use crate::contestant::{Failure, failed};

/// A build of the bench.
#[derive(Debug)]
pub(super) struct Program(PathBuf);

impl Program {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Returns the names of the groups of rows that it has.
    pub(super) fn groups(&self) -> Result<Vec<String>, Failure> {
        Ok(self.output(&["pair-rows"])?.lines().map(str::to_owned).collect())
    }

    fn sample(&self, group: &str) -> Result<Vec<Figure>, Failure> {
        let output = self.output(&["pair-sample", group])?;
        serde_json::from_str(&output).map_err(failed)
    }

    fn output(&self, arguments: &[&str]) -> Result<String, Failure> {
        let failed_in = |problem: String| format!("{} {}: {problem}", self.0.display(), arguments.join(" "));
        let output = Command::new(&self.0).args(arguments).output().map_err(|error| failed_in(error.to_string()))?;
        if !output.status.success() {
            return Err(failed_in(failed(String::from_utf8_lossy(&output.stderr))));
        }
        String::from_utf8(output.stdout).map_err(failed)
    }
}

/// Takes one sample of a group of rows by each build, and returns name, unit and figures of each row.
pub(super) fn pair(
    before: &Program,
    now: &Program,
    group: &str,
    now_first: bool,
) -> Result<Vec<(String, String, Pair)>, Failure> {
    let (own, others) = if now_first {
        let own = now.sample(group)?;
        (own, before.sample(group)?)
    } else {
        let others = before.sample(group)?;
        (now.sample(group)?, others)
    };
    let pair = |own: Figure| {
        let other = others.iter().find(|other| other.row == own.row);
        let before = other.ok_or_else(|| format!("{}: the other build gave no figure", own.row))?.value;
        Ok((own.row, own.unit, Pair { before, now: own.value }))
    };
    own.into_iter().map(pair).collect()
}
