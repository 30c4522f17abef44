//! Aborts the process when a round hangs.

use std::fs;
use std::process::abort;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// A guard that prints all threads and aborts the process unless it is dropped in time.
#[derive(Debug)]
#[must_use = "the guard must live as long as the round"]
pub(super) struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    pub(super) fn start(limit: Duration, round: String) -> Self {
        let (alive, dropped) = channel::<()>();
        thread::spawn(move || {
            if dropped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("\nVIOLATION: a hang: no end after {limit:?}: {round}\n{}", describe_threads());
                abort();
            }
        });
        Self { _alive: alive }
    }
}

/// Returns name, state and wait channel of each thread, on systems with `/proc`.
fn describe_threads() -> String {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return String::new() };
    let read = |path: std::path::PathBuf| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let line = |task: fs::DirEntry| {
        let path = task.path();
        let status = read(path.join("status"));
        let state = status.lines().find(|line| line.starts_with("State")).unwrap_or_default().to_owned();
        format!("  {} {state} {}\n", read(path.join("comm")), read(path.join("wchan")))
    };
    tasks.filter_map(Result::ok).map(line).collect()
}

/// Returns the number of threads of this process, on systems with `/proc`.
pub(super) fn thread_count() -> Option<usize> {
    Some(fs::read_dir("/proc/self/task").ok()?.count())
}
