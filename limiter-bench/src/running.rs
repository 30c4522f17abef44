//! A started contestant whose type is erased. The code that runs it is still compiled for each contestant, so that
//! calls have no overhead.

use std::pin::Pin;
use std::sync::Arc;

use crate::contestant::{Contestant, Failure, Verdict};
use crate::load::{self, Load};
use crate::spin::{self, Spin};
use crate::tally::Tally;

/// A future of an erased contestant.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A contestant that runs.
pub trait Running: Send + Sync {
    /// Makes one decision, for callers to whom the cost of a box does not matter.
    fn decide(&self, key: usize) -> Pending<'_, Verdict>;

    /// Runs tasks that make one call after the other.
    fn load<'a>(&'a self, load: &'a Load) -> Pending<'a, Tally>;

    /// Runs threads that make one call after the other, for contestants that never wait.
    ///
    /// # Errors
    ///
    /// A call failed or had to wait.
    fn spin(&self, spin: &Spin) -> Result<Tally, Failure>;
}

/// A contestant that several tasks or threads share.
pub(crate) struct Shared<C>(Arc<C>);

impl<C> Shared<C> {
    pub(crate) fn new(contestant: C) -> Self {
        Self(Arc::new(contestant))
    }
}

impl<C: Contestant> Running for Shared<C> {
    fn decide(&self, key: usize) -> Pending<'_, Verdict> {
        Box::pin(self.0.decide(key))
    }

    fn load<'a>(&'a self, load: &'a Load) -> Pending<'a, Tally> {
        Box::pin(load::run(&self.0, load))
    }

    fn spin(&self, spin: &Spin) -> Result<Tally, Failure> {
        spin::run(&*self.0, spin)
    }
}
