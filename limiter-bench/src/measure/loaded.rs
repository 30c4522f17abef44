//! Tasks on a limiter in Redis.

use std::collections::HashSet;
use std::time::Instant;

use super::Stage;
use crate::cases::Spread;
use crate::contestant::{Entry, Failure, Kind, Rate, Setup};
use crate::load::Load;
use crate::sample::{Outcome, Sample};
use crate::server::Server;
use crate::tally::Tally;

pub(super) struct Loaded<'a> {
    pub(super) tasks: usize,
    pub(super) spread: Spread,
    pub(super) rate: Rate,
    pub(super) server: &'a Server,
}

impl Loaded<'_> {
    /// Measures a new contestant on an empty server. The calls of its warm-up count in the history, not in the figures.
    pub(super) async fn sample(&self, stage: &Stage<'_>, entry: &Entry, outcome: &mut Outcome) -> Result<(), Failure> {
        let server = self.server;
        server.clear()?;
        let setup = Setup::users(server.url(), self.spread.keys(), self.rate);
        let contestant = stage.start(entry, setup).await?;
        let empty = server.used_memory()?;

        let duration = stage.pace.sample / 4;
        let mut load = Load { tasks: self.tasks, order: self.spread.order(), duration, origin: Instant::now() };
        let warm = contestant.load(&load).await?;
        load.duration = stage.pace.sample;
        let before = server.work(&entry.commands)?;
        let mut tally = contestant.load(&load).await?;
        let after = server.work(&entry.commands)?;

        let mut sample = Sample::from_tally(&mut tally).with_work(before, after, tally.decisions);
        tally.add(warm);
        if entry.kind != Kind::Floor {
            sample.bytes = self.bytes(&tally, empty)?;
        }
        outcome.add(sample);
        outcome.judge(&tally, self.rate);
        Ok(())
    }

    /// Returns the bytes of each key that has a permit taken: of one key by `MEMORY USAGE`, of many by the growth of
    /// the server's memory.
    fn bytes(&self, tally: &Tally, empty: u64) -> Result<Option<f64>, Failure> {
        let keys = tally.admissions.iter().map(|call| call.key).collect::<HashSet<_>>().len();
        let bytes = match keys {
            0 => return Ok(None),
            1 => self.server.size_of_keys()?,
            _ => self.server.used_memory()?.saturating_sub(empty),
        };
        Ok(Some(bytes as f64 / keys as f64))
    }
}
