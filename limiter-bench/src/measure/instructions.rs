//! Instructions a decision, by callgrind: the one figure that other work on the machine does not change.

use std::env;
use std::hint::black_box;
use std::process::Command;
use std::time::Duration;

use rate_limited::{Key, Limit, Limiter};

use super::Stage;
use crate::cases::Case;
use crate::contestant::{Failure, Kind, failed};
use crate::contestants::attribute;
use crate::sample::{Outcome, Sample};
use crate::spin::poll_once;

/// The hottest paths.
const PATHS: [&str; 3] = ["keyed check", "constant key through the attribute", "denied check"];

/// Decisions of the two runs whose difference counts. The instructions of the start are in both.
const CALLS: [u64; 2] = [10_000, 30_000];

pub(super) fn measure(stage: &Stage<'_>, case: &Case) -> Vec<Outcome> {
    stage.progress.step(case.name, "callgrind");
    if Command::new("valgrind").arg("--version").output().is_err() {
        let mut none = Outcome::named("callgrind", Kind::Ours);
        none.note = Some("left out, there is no valgrind here".to_owned());
        return vec![none];
    }
    let mut outcomes: Vec<_> = PATHS.iter().map(|path| Outcome::named(path, Kind::Ours)).collect();
    for outcome in &mut outcomes {
        match instructions(&outcome.contestant) {
            Ok(instructions) => outcome.add(Sample { instructions: Some(instructions), ..Sample::default() }),
            Err(failure) => {
                stage.progress.print_line(&format!("callgrind failed: {failure}"));
                outcome.failure = Some(failure);
            }
        }
    }
    outcomes
}

fn instructions(path: &str) -> Result<f64, Failure> {
    let [few, many] = [count(path, CALLS[0])?, count(path, CALLS[1])?];
    Ok(many.saturating_sub(few) as f64 / (CALLS[1] - CALLS[0]) as f64)
}

/// Counts all instructions of a process that makes this many calls.
fn count(path: &str, calls: u64) -> Result<u64, Failure> {
    let program = env::current_exe().map_err(failed)?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["spin-path", path, &calls.to_string()])
        .output()
        .map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.split_once("Collected :"));
    line.ok_or("callgrind printed no count")?.1.trim().parse().map_err(failed)
}

/// Makes calls on one path, and does nothing else. This is the work of that process.
///
/// # Errors
///
/// There is no such path.
pub fn spin_path(path: &str, calls: u64) -> Result<(), Failure> {
    let limiter = Limiter::memory();
    if path == PATHS[0] {
        let keys: Vec<_> = (0..1_000).map(|key| Key::new("user:").part(key)).collect();
        let limit = Limit::new(100_000, Duration::from_secs(1)).map_err(failed)?;
        for key in keys.iter().cycle().zip(0..calls).map(|(key, _)| key) {
            black_box(poll_once(limiter.check(key, &limit))?.is_ok());
        }
    } else if path == PATHS[1] {
        limiter.install().map_err(failed)?;
        for call in 0..calls {
            black_box(poll_once(attribute::limited(usize::try_from(call).map_err(failed)?))?);
        }
    } else if path == PATHS[2] {
        let (key, limit) = (Key::new("hot"), Limit::new(1, Duration::from_secs(3_600)).map_err(failed)?);
        for _ in 0..calls {
            black_box(poll_once(limiter.check(&key, &limit))?.is_ok());
        }
    } else {
        return Err(format!("there is no path {path:?}"));
    }
    Ok(())
}
