//! The figures of the machine, from `/proc`: memory, and the time of processors.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::contestant::{Failure, failed};

/// Returns the bytes of memory that programs can still get.
///
/// # Errors
///
/// The system has no `/proc`.
pub(super) fn available_memory() -> Result<u64, Failure> {
    let text = read("/proc/meminfo")?;
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB"));
    let kibibytes: u64 = kibibytes.ok_or("/proc/meminfo without MemAvailable")?.trim().parse().map_err(failed)?;
    Ok(kibibytes << 10)
}

/// Returns the number of processors.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The processor time that the machine, this process and the main thread of another have used so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuTimes {
    master: Duration,
    own: Duration,
    /// Ticks of all processors, busy and in all.
    busy: u64,
    all: u64,
}

/// Shares of one core.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuShares {
    /// The main thread of the master.
    pub master: f64,
    /// This process.
    pub own: f64,
    /// All else that runs on the machine, the empty masters included.
    pub other: f64,
}

impl CpuTimes {
    /// Reads the times of this process and of the main thread of `master`.
    ///
    /// # Errors
    ///
    /// The system has no `/proc` with these files.
    pub(super) fn read(master: u32) -> Result<Self, Failure> {
        let threads = fs::read_dir("/proc/self/task").map_err(failed)?;
        // A thread may end meanwhile.
        let own = threads.flatten().filter_map(|thread| time_on_core(&thread.path().join("schedstat")).ok()).sum();
        let text = read("/proc/stat")?;
        let ticks: Vec<u64> =
            text.lines().next().unwrap_or_default().split_whitespace().skip(1).flat_map(str::parse).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are part of the first two.
        let [user, nice, system, idle, waiting, irq, soft, steal, ..] = ticks[..] else {
            return Err("/proc/stat without times".to_owned());
        };
        let busy = user + nice + system + irq + soft + steal;
        let master = time_on_core(Path::new(&format!("/proc/{master}/schedstat")))?;
        Ok(Self { master, own, busy, all: busy + idle + waiting })
    }

    /// Returns the shares since an earlier reading.
    pub(super) fn shares_since(self, before: Self, time: Duration) -> CpuShares {
        let share = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64() / time.as_secs_f64();
        let (master, own) = (share(self.master, before.master), share(self.own, before.own));
        let busy = (self.busy - before.busy) as f64 / (self.all - before.all).max(1) as f64;
        CpuShares { master, own, other: (busy * cores() as f64 - master - own).max(0.0) }
    }
}

/// Reads the time that a thread has run.
fn time_on_core(path: &Path) -> Result<Duration, Failure> {
    let text = fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let nanos = text.split_whitespace().next().ok_or("an empty schedstat")?;
    Ok(Duration::from_nanos(nanos.parse().map_err(failed)?))
}

fn read(path: &str) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| format!("{path} cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_thread_that_computes_uses_its_core() {
        let process = std::process::id();
        let (began, before) = (Instant::now(), CpuTimes::read(process).expect("times"));
        while began.elapsed() < Duration::from_millis(200) {
            black_box(0);
        }
        let shares = CpuTimes::read(process).expect("times").shares_since(before, began.elapsed());
        assert!(shares.own > 0.02 && shares.own < cores() as f64 + 0.5, "{shares:?}");
        assert!(available_memory().expect("a figure") > 1 << 20);
    }
}
