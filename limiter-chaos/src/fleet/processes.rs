//! The processes of a run: started, stopped and continued at random, and awaited.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::member::MemberOptions;
use super::pauses::{PauseChange, Pauses};

/// Running processes. They are killed when the value is dropped.
#[derive(Debug)]
pub(super) struct Processes {
    running: Vec<Running>,
}

/// One process that has not ended, with the file of its output.
#[derive(Debug)]
struct Running {
    child: Child,
    output: PathBuf,
}

/// The time that processes may take to start and to write their records, even on a busy machine.
const EXTRA_TIME: Duration = Duration::from_secs(120);
/// The pause before another look whether a process has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

impl Processes {
    pub(super) fn start(members: &[MemberOptions], command: impl Fn() -> Command) -> Self {
        let mut processes = Self { running: Vec::new() };
        for member in members {
            let output = member.records.with_extension("log");
            let log = File::create(&output).expect("writing to a temporary directory");
            let child = command()
                .envs(member.variables())
                .stdin(Stdio::null())
                .stdout(log.try_clone().expect("a file"))
                .stderr(log)
                .spawn()
                .expect("this program runs");
            processes.running.push(Running { child, output });
        }
        processes
    }

    /// Stops and continues the processes until all have ended well. Returns the number of pauses.
    pub(super) fn run(mut self, length: Duration, max_pause: Duration, seed: u64) -> u32 {
        let give_up_at = Instant::now() + length + EXTRA_TIME;
        let seeds = (0..).map(|index: u64| seed.wrapping_mul(1_000).wrapping_add(index));
        let pauses = seeds.take(self.running.len()).map(|seed| Pauses::new(max_pause, seed, Instant::now()));
        let mut pauses: Vec<_> = pauses.collect();
        let mut stops = 0;
        while !self.running.is_empty() {
            let mut index = 0;
            while index < self.running.len() {
                if self.running[index].has_ended() {
                    self.running.remove(index);
                    pauses.remove(index);
                    continue;
                }
                if let Some(change) = pauses[index].as_mut().and_then(|pauses| pauses.take_due(Instant::now())) {
                    self.running[index].apply(change);
                    stops += u32::from(change == PauseChange::Stop);
                }
                index += 1;
            }
            let now = Instant::now();
            assert!(now < give_up_at, "processes did not end:\n{}", self.outputs());
            let next = pauses.iter().flatten().map(|pauses| pauses.next().saturating_duration_since(now)).min();
            thread::sleep(next.unwrap_or(LOOK_INTERVAL).min(LOOK_INTERVAL));
        }
        stops
    }

    fn outputs(&self) -> String {
        self.running.iter().map(Running::output).collect()
    }
}

impl Running {
    /// Returns whether the process has ended.
    fn has_ended(&mut self) -> bool {
        let status = self.child.try_wait().expect("the status of a child process");
        assert!(status.is_none_or(|status| status.success()), "a process failed:\n{}", self.output());
        status.is_some()
    }

    /// Sends a signal. The process has not been reaped, so its id is still its own.
    fn apply(&self, change: PauseChange) {
        let signal = match change {
            PauseChange::Stop => Signal::STOP,
            PauseChange::Continue => Signal::CONT,
        };
        kill_process(Pid::from_child(&self.child), signal).expect("a signal to a child process");
    }

    fn output(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_else(|error| format!("{}: {error}\n", self.output.display()))
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for Running { child, .. } in &mut self.running {
            // The signal also ends a process that is stopped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
