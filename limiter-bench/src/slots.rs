//! Limits of concurrent calls: the price of a slot beside a semaphore of two scripts and beside a window, the use of the
//! slots by several processes, the share of each, and the time until a freed slot is used.

pub mod processes;
mod semaphore;
mod single;

use std::fmt;

use processes::{Crew, Held, run_crews};

use crate::contestant::Failure;
use crate::sample::median;
use crate::server::Server;

/// A figure and its bar.
pub struct SlotRow {
    /// The name of the figure.
    pub name: String,
    /// The most or the least that is wanted.
    pub bar: SlotBar,
    /// The unit of both.
    pub unit: &'static str,
    measure: Measure,
}

/// A bar.
#[derive(Debug, Clone, Copy)]
pub enum SlotBar {
    /// The most that is wanted.
    Most(f64),
    /// The least that is wanted.
    Least(f64),
}

impl SlotBar {
    /// Returns true if a figure keeps the bar.
    #[must_use]
    pub fn is_kept(self, figure: f64) -> bool {
        match self {
            Self::Most(most) => figure <= most,
            Self::Least(least) => figure >= least,
        }
    }
}

impl fmt::Debug for SlotRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotRow").field("name", &self.name).finish_non_exhaustive()
    }
}

type Measure = Box<dyn Fn(&Server) -> Result<f64, Failure>>;

impl SlotRow {
    fn new(
        name: impl Into<String>,
        bar: SlotBar,
        unit: &'static str,
        measure: impl Fn(&Server) -> Result<f64, Failure> + 'static,
    ) -> Self {
        Self { name: name.into(), bar, unit, measure: Box::new(measure) }
    }

    /// Returns the median of the rounds.
    ///
    /// # Errors
    ///
    /// Redis is unavailable, another process cannot be started, or a call fails.
    pub fn measure(&self, server: &Server, rounds: usize) -> Result<f64, Failure> {
        let round = |_| {
            server.clear()?;
            (self.measure)(server)
        };
        let figures = (0..rounds).map(round).collect::<Result<Vec<_>, _>>()?;
        Ok(median(figures.into_iter()).unwrap_or_default())
    }
}

/// Returns all rows.
#[must_use]
pub fn rows() -> Vec<SlotRow> {
    use SlotBar::{Least, Most};
    let mut rows = vec![
        SlotRow::new("enter and leave in memory", Most(150.0), "ns", |_| single::in_memory()),
        SlotRow::new("64 tasks, 10 000 slots, of a semaphore", Least(20.0), "×", single::beside_semaphore),
        SlotRow::new("a task in a loop, 5 slots, p50 of a window's", Most(1.0), "×", |server| {
            single::beside_window(server, None)
        }),
        SlotRow::new("the same each 500 ms", Most(1.3), "×", |server| {
            single::beside_window(server, Some(single::LONG_PAUSE))
        }),
        SlotRow::new("until another process has a freed slot, p50", Most(5.0), "ms", single::until_used),
        SlotRow::new("the same without notices", Most(60.0), "ms", |server| {
            server.allow_publish(false)?;
            let time = single::until_used(server);
            server.allow_publish(true)?;
            time
        }),
    ];
    for (slots, least) in [(5, 90.0), (20, 95.0), (1000, 97.0)] {
        let name = format!("in use of {slots} slots, 4 processes, 1.2 × the demand");
        rows.push(SlotRow::new(name, Least(least), "%", move |server| in_use(server, slots)));
    }
    for (slots, least) in [(20, 80.0), (5, 80.0)] {
        let name = format!("least share of {slots} slots, 2 tasks beside 100");
        rows.push(SlotRow::new(name, Least(least), "%", move |server| least_share(server, slots)));
    }
    rows.push(SlotRow::new("least share of the calls, 1 slot", Least(20.0), "%", least_share_of_calls));
    rows
}

/// Runs four processes whose tasks call for as long as they pause, and returns the slots in use in percent.
fn in_use(server: &Server, slots: u32) -> Result<f64, Failure> {
    let tasks = 2 * slots * 12 / 10 / 4;
    let crew = Crew { slots, tasks, call_ms: 50, pause_ms: 50 };
    let held = run_crews(server, [crew; 4])?;
    Ok(held.iter().map(|held| held.slots).sum::<f64>() / f64::from(slots) * 100.0)
}

/// Returns the least that one of three small processes has, in percent of what it is due: what its tasks demand, at most
/// a fourth of the slots.
fn least_share(server: &Server, slots: u32) -> Result<f64, Failure> {
    let [_, small @ ..] = large_and_small(server, slots)?;
    let due = f64::from(SMALL_TASKS).min(f64::from(slots) / 4.0);
    Ok(small.into_iter().map(|held| held.slots / due * 100.0).fold(f64::INFINITY, f64::min))
}

/// Returns the least that one of the small processes has of all calls, in percent. There is one slot.
fn least_share_of_calls(server: &Server) -> Result<f64, Failure> {
    let held = large_and_small(server, 1)?;
    let all = held.iter().map(|held| held.calls).sum::<u64>();
    let least = held[1..].iter().map(|held| held.calls).min().unwrap_or_default();
    Ok(least as f64 / all as f64 * 100.0)
}

const SMALL_TASKS: u32 = 2;

/// Runs one process with many tasks and three with few. None of them pauses.
fn large_and_small(server: &Server, slots: u32) -> Result<[Held; 4], Failure> {
    let small = Crew { slots, tasks: SMALL_TASKS, call_ms: 10, pause_ms: 0 };
    run_crews(server, [Crew { tasks: 100, ..small }, small, small, small])
}
