//! What a fault does to a limiter under load, measured.
//!
//! Tasks call one limiter, at four times what its limits allow: a [`Subject`] for each algorithm, all at once. Meanwhile a
//! [`Row`]'s fault befalls the store. Every decision is recorded with its instants and with who decided, and judged from
//! outside: see [`Report`].
//!
//! The program `faults` runs all rows for long; the tests run each for short.

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
mod subject;

use crate::stalls;

pub use bar::{Allowance, Bar, Miss};
pub use call::{By, Call};
pub use document::{Measured, tables, text};
pub use flood::{FLOODS, Flood, FloodReport, flood};
pub use fullest::{Fullest, Windows};
pub use report::{Report, RowReport};
pub use rows::{Row, Scene, row, rows};
pub use run::{Pace, run};
pub use storm::{Storm, StormReport, storm};
pub use subject::Subject;
