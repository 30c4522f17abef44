//! The events of a schedule.

use super::judge::Grant;
use super::ledger::PermitStamp;
use super::process::SimulatedReceipt;
use crate::Limit;
use crate::clock::Moment;
use crate::local::leases::LeaseId;
use crate::store::redis::script::command::BatchEntry;
use crate::store::redis::script::reply::LeaseReply;

/// A process and one of the keys, by their numbers.
#[derive(Clone, Copy)]
pub(super) struct Actor {
    pub(super) process: usize,
    pub(super) key: usize,
}

/// An event at an instant of real time.
pub(super) enum Event {
    /// Anything that a process does by itself, and later again.
    Act(usize),
    /// A call for all permits that are left.
    Fill(Actor),
    /// A request for a lease alone.
    Renew(Actor),
    /// Calls that take all permits of the lease.
    Drain(Actor),
    Batch(BatchCall),
    Reply(Actor, BatchCompletion),
    LeaseEnd(Actor, Limit, LeaseId),
    Refund {
        key: usize,
        admission: usize,
        permits: u32,
        stamp: u64,
        stamped_at: PermitStamp,
        limit: Limit,
    },
    Reset(Actor),
    Step,
}

/// A script call on its way to the store.
pub(super) struct BatchCall {
    pub(super) key: usize,
    /// The process that gets the reply, with the time before it was sent.
    pub(super) sender: Option<(usize, Moment)>,
    pub(super) entry: BatchEntry,
    /// The admission and the permits that it refunds.
    pub(super) refunded: Option<(usize, u32)>,
}

/// The reply to a script call on its way to the process.
pub(super) struct BatchCompletion {
    pub(super) limit: Limit,
    pub(super) sent_at: Moment,
    pub(super) lease: LeaseReply,
    pub(super) grant: Grant,
    pub(super) receipt: Option<SimulatedReceipt>,
}

impl Event {
    /// The process that has to run for it.
    pub(super) fn process(&self) -> Option<usize> {
        match *self {
            Self::Act(process) => Some(process),
            Self::Fill(actor)
            | Self::Renew(actor)
            | Self::Drain(actor)
            | Self::Reply(actor, _)
            | Self::LeaseEnd(actor, ..) => Some(actor.process),
            Self::Batch(_) | Self::Refund { .. } | Self::Reset(_) | Self::Step => None,
        }
    }
}
