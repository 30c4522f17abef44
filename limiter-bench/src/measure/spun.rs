//! Threads on a limiter in this process.

use std::time::Instant;

use super::Stage;
use crate::contestant::{Entry, Failure, Rate, Setup};
use crate::order::Order;
use crate::sample::{Outcome, Sample};
use crate::spin::Spin;

pub(super) struct Spun {
    pub(super) threads: usize,
    pub(super) keys: usize,
    pub(super) rate: Rate,
    pub(super) history: bool,
}

impl Spun {
    pub(super) async fn sample(&self, stage: &Stage<'_>, entry: &Entry, outcome: &mut Outcome) -> Result<(), Failure> {
        let setup = Setup::users(String::new(), self.keys, self.rate);
        let contestant = stage.start(entry, setup).await?;
        // A history takes time, and it shows nothing where the limit is not reached.
        let history = self.history && self.keys == 1;
        let order = Order::Random { keys: self.keys };
        let mut spin =
            Spin { threads: self.threads, order, duration: stage.pace.sample / 4, origin: Instant::now(), history };
        let warm = contestant.spin(&spin)?;
        spin.duration = stage.pace.sample;
        let mut tally = contestant.spin(&spin)?;
        outcome.add(Sample::from_tally(&mut tally));
        tally.add(warm);
        outcome.judge(&tally, self.rate);
        Ok(())
    }
}
