//! The activity of the limiters that share a store.

use crate::activity::{ActivityLog, DenialBurst};
use crate::limiter::Limiter;
use crate::{Error, ErrorKind};

impl Limiter {
    /// Reads the [activity](crate::Builder::activity) of all limiters that share this one's store and
    /// [`prefix`](crate::Builder::prefix) into a log: what has come since its last reading. Returns the denials among that, in
    /// the order of time. Needs the feature `redis`.
    ///
    /// The limiter need not have activity of its own. At most the newest 8 192 entries are read. The user needs the permissions
    /// `~rl-live:* +time +xrevrange`, with the prefix in place of `rl`. The commands `limiter top` and `limiter watch` print
    /// what it reads.
    ///
    /// ```no_run
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{ActivityLog, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let limiter = Limiter::connect("redis://127.0.0.1:6379").await?;
    /// let mut log = ActivityLog::new();
    /// limiter.activity(&mut log).await?;
    /// for program in log.limiters() {
    ///     for rule in &program.rules {
    ///         let denied = rule.per_second(|counts| counts.denied);
    ///         println!("{:?} {:?}: {} denied, {denied:.1} a second", program.name, rule.rule, rule.total.denied);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The failure of the store, within 5 s. [`ErrorKind::Config`] for a limiter without a store that processes share. The log
    /// is as before.
    ///
    /// # Cancel safety
    /// The log is as before.
    pub async fn activity(&self, log: &mut ActivityLog) -> Result<Vec<DenialBurst>, Error> {
        let in_memory = || {
            let problem = "the activity must be in a shared store, got one in this process: write the `url` of a Redis";
            Error::new(ErrorKind::Config, problem)
        };
        let part = self.inside().redis().ok_or_else(in_memory)?.activity(log.last()).await?;
        Ok(log.add(part))
    }
}
