//! A store in memory that takes a while for each call, for tests of deadlines.

use std::time::Duration;

use crate::clock::Clock;
use crate::request::{CallOptions, CountedReply, RefundInfo, Request, Settlement, StoreFailure};
use crate::store::memory::MemoryStore;
use crate::{Error, ErrorKind};

#[derive(Debug)]
pub(crate) struct SlowStore {
    pub(crate) delay: Duration,
    /// The deadline of calls without one of their own.
    pub(crate) deadline: Duration,
    pub(crate) clock: Clock,
    pub(crate) memory: MemoryStore,
}

impl SlowStore {
    /// Decides after the delay, and takes the permits if they fit.
    pub(crate) async fn take(
        &self,
        requests: &[Request<'_>],
        options: &CallOptions,
    ) -> Result<CountedReply, StoreFailure> {
        let decide = || match options.wants_reports {
            true => self.memory.decide_with_reports(requests),
            false => CountedReply::from_store(self.memory.decide_within(requests, options.max_wait), 0),
        };
        self.call(options.deadline, decide).await.map_err(|error| StoreFailure { error, reservation: None })
    }

    /// Returns the reply that [`take`](Self::take) would give, and takes nothing.
    pub(crate) async fn peek(
        &self,
        requests: &[Request<'_>],
        options: &CallOptions,
    ) -> Result<CountedReply, StoreFailure> {
        self.call(options.deadline, || self.memory.peek_with_options(requests, options))
            .await
            .map_err(|error| StoreFailure { error, reservation: None })
    }

    /// Counts permits after the delay, whether they fit or not.
    pub(crate) async fn charge(
        &self,
        requests: &[Request<'_>],
        options: &CallOptions,
    ) -> Result<CountedReply, StoreFailure> {
        self.call(options.deadline, || self.memory.charge(requests))
            .await
            .map(|charged| CountedReply::from_charge(charged, 0))
            .map_err(|error| StoreFailure { error, reservation: None })
    }

    /// Changes what a call counts after the delay.
    pub(crate) async fn settle(
        &self,
        requests: &[Request<'_>],
        settlement: Settlement,
        options: &CallOptions,
    ) -> Result<CountedReply, StoreFailure> {
        let Settlement { info, after, .. } = settlement;
        self.call(options.deadline, || self.memory.settle(requests, &after, info.stamp))
            .await
            .map(|settled| CountedReply::from_charge(settled, 0))
            .map_err(|error| StoreFailure { error, reservation: None })
    }

    pub(crate) async fn refund(&self, requests: &[Request<'_>], refund_info: RefundInfo) -> Result<(), Error> {
        self.call(None, || self.memory.refund_part(requests, refund_info.stamp, refund_info.max_permits)).await
    }

    pub(crate) async fn reset(&self, request: &Request<'_>) -> Result<(), Error> {
        self.call(None, || self.memory.reset(request)).await
    }

    /// Returns the result of `run` after the delay, or a timeout at the deadline.
    async fn call<R>(&self, deadline: Option<Duration>, run: impl FnOnce() -> R) -> Result<R, Error> {
        let deadline = deadline.unwrap_or(self.deadline);
        self.clock.sleep(self.delay.min(deadline)).await?;
        if self.delay > deadline {
            let problem =
                format!("the store of this test takes {:?} and sent no reply within {deadline:?}", self.delay);
            return Err(Error::new(ErrorKind::Timeout, problem));
        }
        Ok(run())
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests;
