//! The bytes of a key by its permits: the sliding window here, and the published layouts of one.
//!
//! Each server is measured by a process of its own, since its program is that of the whole process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use serde::{Deserialize, Serialize};

use crate::contestant::{Failure, Rate, Setup, failed};
use crate::contestants;
use crate::load::Load;
use crate::measure::SETTLE_TIME;
use crate::order::Order;
use crate::report::table::Table;
use crate::server::Server;

/// The limit of each key. No permit comes back while the keys are filled.
const RATE: Rate = Rate { max: PERMITS[PERMITS.len() - 1], seconds: 3600 };
/// The permits of a key for which the table has a column.
const PERMITS: [u32; 4] = [1, 2, 5, 20];
/// Tasks that fill the keys.
const TASKS: usize = 128;
/// The most time for one permit of each key.
const MAX_ROUND: Duration = Duration::from_secs(300);
/// The share of keys, one of so many, that may lack a permit: a client of a design gives up a call after half a second.
const MAX_MISSING: u64 = 100;
/// The directory in which `scripts/test --all-servers` keeps further servers, each in a directory of its name.
const SERVERS: &str = "target/servers";
/// The variable that names a server's program.
const PROGRAM: &str = "RATE_LIMITED_REDIS_SERVER";

/// The bytes of a key in each layout, on one server.
#[derive(Debug, Serialize, Deserialize)]
pub struct LayoutBytes {
    /// The name and the version of the server.
    pub server: String,
    /// Each layout with its bytes, by permits.
    layouts: Vec<(String, Vec<f64>)>,
}

impl LayoutBytes {
    /// Returns a row for each layout.
    #[must_use]
    pub fn table(&self) -> Table {
        let headings = PERMITS.map(|permits| format!("{permits} permit{}", if permits == 1 { "" } else { "s" }));
        let header: Vec<_> = [""].into_iter().chain(headings.iter().map(String::as_str)).collect();
        let row = |(layout, bytes): &(String, Vec<f64>)| {
            let cells = bytes.iter().map(|bytes| format!("{bytes:.1}"));
            [layout.clone()].into_iter().chain(cells).collect()
        };
        Table::new(&header, self.layouts.iter().map(row).collect(), Vec::new())
    }
}

/// Returns the programs of servers: that of the environment or in `PATH`, and those below `target/servers`.
#[must_use]
pub fn known_servers() -> Vec<PathBuf> {
    let first = env::var_os(PROGRAM).unwrap_or_else(|| "redis-server".into());
    let directories = fs::read_dir(SERVERS).into_iter().flatten().flatten();
    // Each name is a link to a directory of that name with a digest.
    let links = directories.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    let mut others: Vec<_> = links.map(|entry| entry.path().join("server")).filter(|path| path.exists()).collect();
    others.sort();
    [PathBuf::from(first)].into_iter().chain(others).collect()
}

/// Measures a server by a process of this program.
///
/// # Errors
///
/// The process fails. The failure has its last line.
pub fn measure_on(server: &Path, keys: u32) -> Result<LayoutBytes, Failure> {
    let mut command = Command::new(env::current_exe().map_err(failed)?);
    let output = command.arg("bytes-here").arg(keys.to_string()).env(PROGRAM, server).output().map_err(failed)?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim_start_matches("limiter-bench: ")));
    }
    serde_json::from_slice(&output.stdout).map_err(failed)
}

/// Fills keys of the same text in each layout, one permit of all keys after the other. So the permits of a key are at
/// different instants.
///
/// # Errors
///
/// The server does not start or fails, or a permit is denied.
pub async fn measure_here(keys: u32) -> Result<LayoutBytes, Failure> {
    let (server, keys) = (Server::start()?, keys as usize);
    let mut layouts = Vec::new();
    for entry in contestants::layouts() {
        server.clear()?;
        let contestant = (entry.start)(Setup::users(server.url(), keys, RATE)).await?;
        let (empty, mut bytes) = (server.used_memory()?, Vec::new());
        for permit in 1..=RATE.max {
            let order = Order::in_turn(keys, 1);
            let tally =
                contestant.load(&Load { tasks: TASKS, order, duration: MAX_ROUND, origin: Instant::now() }).await?;
            let missing = (keys as u64).saturating_sub(tally.decisions - tally.denied);
            if missing > keys as u64 / MAX_MISSING {
                return Err(format!("{}: {missing} of {keys} keys did not get permit {permit}", entry.name));
            }
            if PERMITS.contains(&permit) {
                tokio::time::sleep(SETTLE_TIME).await;
                bytes.push(server.used_memory()?.saturating_sub(empty) as f64 / keys as f64);
            }
        }
        layouts.push((entry.name.to_owned(), bytes));
    }
    Ok(LayoutBytes { server: server.name()?, layouts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_permits_take_more_memory_than_one_in_each_layout() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let measured = runtime.block_on(measure_here(1_000)).expect("figures");
        assert_eq!(measured.layouts.len(), 3);
        for (layout, bytes) in &measured.layouts {
            assert_eq!(bytes.len(), PERMITS.len());
            // With so few keys the buffers of connections weigh as much as a permit.
            assert!(bytes[0] > 50.0 && bytes[3] > bytes[0], "{layout}: {bytes:?}");
        }
    }
}
