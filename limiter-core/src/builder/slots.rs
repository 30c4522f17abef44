//! The options of limits of concurrent calls.

use std::time::Duration;

use crate::builder::Builder;
use crate::concurrency::LostSlots;

impl Builder {
    /// Sets the time for which slots of a process that is gone stay in use, 1 s to 10 min. Default: 10 s.
    ///
    /// A process that runs calls with slots renews them each third of it. So the slots of a process that stands still,
    /// or does not reach the store, for most of this time are lost, and [`on_lost`](Builder::on_lost) observers hear of
    /// it. A longer time bridges longer pauses, and a shorter one frees slots earlier after a crash. It is for a store
    /// that processes share.
    ///
    /// # Errors
    /// [`build`](Builder::build) fails with [`ErrorKind::Config`](crate::ErrorKind::Config) for one out of its range.
    pub fn slot_time(mut self, slot_time: Duration) -> Self {
        self.slots.slot_time = slot_time;
        self
    }

    /// Adds an observer of lost slots: calls that run while other processes may use their slots.
    ///
    /// It runs on a thread of the limiter's own. Its panics are caught. The log gets a warning too.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// let limiter = Limiter::builder().on_lost(|lost| eprintln!("{} calls have lost their slots",
    /// lost.slots())).build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn on_lost(mut self, observer: impl Fn(&LostSlots) + Send + Sync + 'static) -> Self {
        self.slots.add_observer(observer);
        self
    }
}
