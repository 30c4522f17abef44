//! The operations of a decision.

use std::time::Duration;

use crate::request::{CallOptions, RefundInfo, Request, Settlement};

/// The operation of one decision.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Takes the permits. A leaky bucket may delay the call by up to `max_wait`.
    Take {
        max_wait: Duration,
        /// The process may lease permits of the limit.
        leases: bool,
    },
    /// Takes the permits of several requests without a wait. The reply has a report of each request.
    TakeWithReports,
    Peek,
    /// Takes nothing. The reply has a report of each request.
    PeekWithReports,
    /// Takes nothing, and a denial begins blocks: the first step of a decision in several script calls.
    FirstLook {
        with_reports: bool,
    },
    /// Takes the permits whether they fit or not. The reply has the level of each counter.
    Charge,
    Refund(Box<RefundInfo>),
    /// Changes what a call counts. The reply is that of a charge.
    Settle(Box<Settlement>),
    Reset,
}

impl Action {
    /// Takes the permits without a wait, by the store alone.
    pub(crate) const TAKE_NOW: Self = Self::Take { max_wait: Duration::ZERO, leases: false };

    /// The action of a call that takes permits.
    pub(crate) fn take(requests: &[Request<'_>], options: &CallOptions) -> Self {
        let &CallOptions { max_wait, leases, wants_reports, .. } = options;
        // No turn is taken that a postpaid call could wait for.
        let is_postpaid = requests.iter().any(|request| request.role.is_postpaid());
        let max_wait = if is_postpaid { Duration::ZERO } else { max_wait };
        if wants_reports {
            return Self::TakeWithReports;
        }
        let may_be_leased = |request: &Request<'_>| request.own_take() > 0 && request.may_be_leased();
        Self::Take { max_wait, leases: leases && matches!(requests, [request] if may_be_leased(request)) }
    }

    /// Returns whether its permits may come from a lease.
    pub(crate) fn takes_leases(&self) -> bool {
        matches!(self, Self::Take { leases: true, .. })
    }

    /// Returns whether the worker has to send it. It leases permits for later calls.
    pub(crate) fn needs_worker(&self) -> bool {
        self.takes_leases()
    }

    /// Returns whether one entry of a batch may decide both, if their requests are equal.
    pub(crate) fn shares_entry_with(&self, other: &Self) -> bool {
        self.takes_leases() == other.takes_leases() && !self.is_charge() && !other.is_charge()
    }

    pub(crate) fn is_charge(&self) -> bool {
        matches!(self, Self::Charge)
    }

    /// Returns whether a batch may have it, if it is about one counter.
    pub(crate) fn is_batched(&self) -> bool {
        match self {
            Self::Take { max_wait, .. } => max_wait.is_zero(),
            Self::Charge => true,
            Self::TakeWithReports
            | Self::Peek
            | Self::PeekWithReports
            | Self::FirstLook { .. }
            | Self::Refund(_)
            | Self::Settle(_)
            | Self::Reset => false,
        }
    }

    /// The longest delay of the permits that it takes; `None` if it takes none.
    pub(crate) fn max_wait(&self) -> Option<Duration> {
        match self {
            Self::Take { max_wait, .. } => Some(*max_wait),
            Self::TakeWithReports | Self::Charge | Self::Settle(_) => Some(Duration::ZERO),
            Self::Peek | Self::PeekWithReports | Self::FirstLook { .. } | Self::Refund(_) | Self::Reset => None,
        }
    }

    /// Returns whether it reads, begins or deletes the blocks of keys.
    pub(crate) fn uses_blocks(&self) -> bool {
        !matches!(self, Self::Charge | Self::Refund(_) | Self::Settle(_))
    }

    /// Returns whether a denial begins blocks.
    pub(super) fn begins_blocks(&self) -> bool {
        matches!(self, Self::Take { .. } | Self::TakeWithReports | Self::FirstLook { .. })
    }
}
