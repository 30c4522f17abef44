//! The measurement of each case.

mod bytes;
mod exactness;
mod instructions;
#[cfg(feature = "leases")]
mod leased;
mod loaded;
mod spun;
mod waiting;

pub(crate) use bytes::SETTLE_TIME;
pub use instructions::spin_path;
pub use waiting::{Waited, wait_here};

use std::time::Duration;

use crate::cases::{Case, How};
use crate::contestant::{Entry, Failure, Kind, Place, Setup};
use crate::contestants::{self, attribute};
use crate::progress::Progress;
use crate::running::Running;
use crate::sample::Outcome;
use crate::server::Server;

/// The most time that a contestant may take to start.
const MAX_START: Duration = Duration::from_secs(10);

/// The amount of work of one run.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Rounds of each case.
    pub rounds: usize,
    /// The time for which one contestant runs in one round.
    pub sample: Duration,
    /// The most time for filling keys.
    pub fill: Duration,
    /// The time for the whole run. If it is short, cases have fewer rounds, but at least one.
    pub time: Option<Duration>,
    /// True if bytes are measured only for the contestants of a bar, because filling keys takes long.
    pub few_bytes: bool,
    /// True if `rate-limited` runs alone, without peers and designs.
    pub ours_only: bool,
}

/// The parts that every case needs.
#[derive(Debug)]
pub struct Stage<'a> {
    /// The server, if it could be started.
    pub server: Option<&'a Server>,
    /// The amount of work.
    pub pace: Pace,
    /// The progress bar.
    pub progress: &'a Progress,
}

impl Stage<'_> {
    /// Measures one case, and returns one outcome a contestant.
    pub async fn measure(&self, case: &Case) -> Vec<Outcome> {
        let entries = entries(case, self.pace, self.server.is_some());
        match case.how {
            How::Spin { threads, keys, rate } => {
                let spun = spun::Spun { threads, keys, rate, history: true };
                self.run_rounds(case, &entries, async |entry, outcome| spun.sample(self, entry, outcome).await).await
            }
            How::Attribute => {
                let spun = spun::Spun { threads: 1, keys: 1, rate: crate::cases::ENDLESS, history: false };
                self.run_rounds(case, &entries, async |entry, outcome| spun.sample(self, entry, outcome).await).await
            }
            How::Load { tasks, spread, rate } => {
                let Some(server) = self.server else { return Vec::new() };
                let loaded = loaded::Loaded { tasks, spread, rate, server };
                self.run_rounds(case, &entries, async |entry, outcome| loaded.sample(self, entry, outcome).await).await
            }
            #[cfg(feature = "leases")]
            How::Leased { tasks, instances, rate } => {
                let Some(server) = self.server else { return Vec::new() };
                let leased = leased::Leased { tasks, instances, rate, server };
                self.run_rounds(case, &entries, async |entry, outcome| leased.sample(self, entry, outcome).await).await
            }
            How::Exactness => self.finish_case(case, exactness::measure(self, case, &entries).await),
            How::Bytes { keys, permits } => {
                self.finish_case(case, bytes::measure(self, case, &entries, keys, permits).await)
            }
            How::Waiting => self.finish_case(case, waiting::measure(self, case)),
            How::Instructions => self.finish_case(case, instructions::measure(self, case)),
        }
    }

    /// Finishes a case that is not measured in rounds.
    fn finish_case(&self, case: &Case, outcomes: Vec<Outcome>) -> Vec<Outcome> {
        self.progress.done(units(case, self.pace, self.server.is_some()));
        outcomes
    }

    /// Measures all contestants in each round. A disturbance of the machine then affects them all. Each round begins
    /// with another contestant.
    async fn run_rounds(
        &self,
        case: &Case,
        entries: &[Entry],
        sample: impl AsyncFn(&Entry, &mut Outcome) -> Result<(), Failure>,
    ) -> Vec<Outcome> {
        let mut outcomes: Vec<_> = entries.iter().map(Outcome::new).collect();
        for round in 0..self.pace.rounds {
            if round > 0 && self.progress.is_late() {
                self.progress.done(entries.len() as u64);
                continue;
            }
            for turn in 0..entries.len() {
                let index = (round + turn) % entries.len();
                let (entry, outcome) = (&entries[index], &mut outcomes[index]);
                self.progress.step(case.name, entry.name);
                if outcome.failure.is_none() {
                    if let Err(failure) = sample(entry, outcome).await {
                        outcome.failure = Some(failure);
                    }
                    if let Some(failure) = &outcome.failure {
                        self.progress.print_line(&format!("{} failed in {}: {failure}", entry.name, case.name));
                    }
                }
                self.progress.done(1);
            }
        }
        outcomes
    }

    /// Starts a contestant.
    async fn start(&self, entry: &Entry, setup: Setup) -> Result<Box<dyn Running>, Failure> {
        match tokio::time::timeout(MAX_START, (entry.start)(setup)).await {
            Ok(started) => started,
            Err(_) => Err(format!("did not start within {MAX_START:?}")),
        }
    }

    fn url(&self) -> String {
        self.server.map(Server::url).unwrap_or_default()
    }
}

/// Returns the units of progress of a case.
#[must_use]
pub fn units(case: &Case, pace: Pace, redis: bool) -> u64 {
    let units = match case.how {
        How::Spin { .. } | How::Attribute | How::Load { .. } => entries(case, pace, redis).len() * pace.rounds,
        #[cfg(feature = "leases")]
        How::Leased { .. } => entries(case, pace, redis).len() * pace.rounds,
        How::Bytes { .. } => 10 * entries(case, pace, redis).len(),
        How::Exactness | How::Instructions => 20,
        How::Waiting => 50,
    };
    units as u64
}

/// Returns the contestants of a case.
fn entries(case: &Case, pace: Pace, redis: bool) -> Vec<Entry> {
    let mut entries = all_entries(case, pace, redis);
    entries.retain(|entry| !pace.ours_only || entry.kind == Kind::Ours);
    entries
}

fn all_entries(case: &Case, pace: Pace, redis: bool) -> Vec<Entry> {
    match case.how {
        How::Spin { .. } => contestants::counting_in(Place::InProcess),
        How::Attribute => attribute::ENTRIES.to_vec(),
        How::Load { .. } => contestants::counting_in(Place::Redis),
        #[cfg(feature = "leases")]
        How::Leased { .. } => contestants::LEASED.to_vec(),
        How::Bytes { .. } => {
            let mut entries = limiters(contestants::counting_in(Place::Redis));
            entries.retain(|entry| !pace.few_bytes || entry.kind == Kind::Ours || entry.name == contestants::ZSET);
            entries
        }
        How::Exactness => {
            let on_redis = if redis { contestants::counting_in(Place::Redis) } else { Vec::new() };
            limiters(contestants::counting_in(Place::InProcess).into_iter().chain(on_redis).collect())
        }
        How::Waiting | How::Instructions => Vec::new(),
    }
}

fn limiters(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.retain(|entry| entry.kind != Kind::Floor);
    entries
}

#[cfg(test)]
mod tests;
