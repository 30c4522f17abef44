//! Measures a limiter under load while its store fails.
//!
//! Tasks call one limiter at four times its limits, with one [`Workload`] for each algorithm, all at once. Meanwhile
//! the fault of a [`Row`] is injected into the store. Every decision is recorded with its instants and its source, and
//! evaluated from the caller's side: see [`WorkloadReport`].
//!
//! The program `faults` runs all rows with long faults; the tests run them with short ones.

mod bar;
mod call;
mod cluster;
mod document;
mod flood;
mod fullest;
mod load;
mod report;
mod rows;
mod run;
mod sentinels;
mod server;
mod server_windows;
mod storm;
mod workload;

pub use bar::{Allowance, Bar, Miss};
pub use call::{Call, DecidedBy};
pub use document::{MeasuredRow, document, lease_table, tables};
pub use flood::{FLOODS, Flood, FloodReport, flood};
pub use fullest::{FullestWindow, WindowKind};
pub use report::{RowReport, WorkloadReport};
pub use rows::{Row, Scene, row, rows};
pub use run::{Pace, run};
pub use storm::{Storm, StormReport, storm};
pub use workload::Workload;
