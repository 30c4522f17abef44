//! Tasks on several instances of a limiter in Redis, which all call one key.

use std::time::Instant;

use futures_util::future::join_all;

use super::Stage;
use crate::contestant::{Entry, Failure, Rate, Setup};
use crate::load::Load;
use crate::order::Order;
use crate::running::Running;
use crate::sample::{Outcome, Sample};
use crate::server::Server;
use crate::tally::Tally;

pub(super) struct Leased<'a> {
    /// The number of tasks of each instance.
    pub(super) tasks: usize,
    pub(super) instances: usize,
    pub(super) rate: Rate,
    pub(super) server: &'a Server,
}

impl Leased<'_> {
    /// Measures new instances of a contestant on an empty server, all at the same time. The calls of their warm-up count
    /// in the history, not in the figures.
    pub(super) async fn sample(&self, stage: &Stage<'_>, entry: &Entry, outcome: &mut Outcome) -> Result<(), Failure> {
        let server = self.server;
        server.clear()?;
        let mut instances = Vec::new();
        for _ in 0..self.instances {
            instances.push(stage.start(entry, Setup::users(server.url(), 1, self.rate)).await?);
        }
        let (order, duration) = (Order::Random { keys: 1 }, stage.pace.sample / 4);
        let mut load = Load { tasks: self.tasks, order, duration, origin: Instant::now() };
        let warm = load_all(&instances, &load).await?;
        load.duration = stage.pace.sample;
        let before = server.work(&entry.commands)?;
        let mut tally = load_all(&instances, &load).await?;
        let after = server.work(&entry.commands)?;
        let sample = Sample::from_tally(&mut tally).with_work(before, after, tally.decisions);
        tally.add(warm);
        outcome.add(sample);
        outcome.judge(&tally, self.rate);
        Ok(())
    }
}

async fn load_all(instances: &[Box<dyn Running>], load: &Load) -> Result<Tally, Failure> {
    let mut total = Tally::default();
    for tally in join_all(instances.iter().map(|instance| instance.load(load))).await {
        total.add(tally?);
    }
    Ok(total)
}
