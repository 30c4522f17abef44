//! Decisions about counters that no single script call can decide: each slot group is called by itself.
//!
//! The counters of such a decision are in several slots of a cluster, or in a slot that moves, so that no node has all
//! of them. First all groups are peeked at, at the same time. If one denies, nothing is taken. Otherwise the permits
//! are taken group by group. They are refunded if a group denies or fails, or if the caller is dropped.
//!
//! The group with room for the fewest such decisions is taken first. So a burst above one user's limit is denied there,
//! and takes nothing in vain from a counter that all users share. A decision is allowed only if each group has granted
//! its permits, in any order.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::take;
use std::rc::Rc;
use std::sync::Arc;

use tokio::task::spawn_local;
use tokio::time::timeout_at;

use super::Worker;
use super::call::{Call, Deadline};
use crate::request::{
    ChargeReply, DecisionReply, OwnedRequest, PerRequest, RefundInfo, Request, RequestReport, Settlement, StoreReply,
    sharing, without_blocks,
};
use crate::run::join_all;
use crate::store::redis::connection::managed::Attempt;
use crate::store::redis::connection::topology::{CallError, SlotGroup};
use crate::store::redis::naming::{RedisKey, RedisKeys};
use crate::store::redis::script::action::Action;
use crate::store::redis::script::command::Command;
use crate::{Error, ErrorKind};

/// A slot group with the reply to it.
type GroupReply = (SlotGroup, StoreReply);

/// The requests of one decision, for script calls about some of them at a time.
pub(crate) struct MultiSlotCall<'a> {
    pub(crate) worker: &'a Rc<Worker>,
    pub(crate) requests: &'a [Request<'a>],
    /// The key of each request.
    pub(crate) keys: &'a RedisKeys,
    pub(crate) deadline: Deadline,
    /// A server has refused the keys of one slot, which is being migrated. Calls of one counter each follow, without blocks.
    pub(crate) is_split: Cell<bool>,
}

impl MultiSlotCall<'_> {
    /// Decides by one script call where one will do. Only the future of that call is not boxed: most tasks need no
    /// more.
    pub(crate) async fn decide(&self, call: &Call, groups: Vec<SlotGroup>) -> Result<DecisionReply, Error> {
        let (action, group) = match (&call.action, &groups[..]) {
            // Its permits may have several stamps.
            (Action::Refund(_) | Action::Settle(_), _) | (_, [] | [_, _, ..]) => {
                return Box::pin(self.decide_by_group(call, groups)).await;
            }
            (action, [group]) => (action, group),
        };
        let reply = self.call_script(action, self.requests, self.keys.as_slice().to_vec());
        match reply.await {
            Ok(reply) => Ok(reply),
            Err(CallError::NeedsSplit(_)) => Box::pin(self.decide_by_group(call, self.split(group))).await,
            Err(CallError::Failed(error)) => Err(error),
        }
    }

    async fn decide_by_group(&self, call: &Call, groups: Vec<SlotGroup>) -> Result<DecisionReply, Error> {
        match &call.action {
            // As in one script call about several counters, no turn of a leaky bucket is waited for.
            Action::Take { .. } => self.take_by_group(call, Action::TAKE_NOW, groups).await,
            Action::TakeWithReports => self.take_by_group(call, Action::TakeWithReports, groups).await,
            action @ (Action::Peek | Action::PeekWithReports | Action::FirstLook { .. } | Action::Reset) => {
                let (replies, reports) = self.split_reports(self.call_each(|_| action.clone(), groups).await?);
                Ok(DecisionReply::with_reports(merge_replies(&replies), reports))
            }
            Action::Charge => self.charge(groups).await,
            Action::Settle(settlement) => self.settle(settlement, groups).await,
            Action::Refund(info) => {
                let stamps: Vec<_> = (0..self.requests.len()).map(|index| info.stamp_of_request(index)).collect();
                let replies = self.refund_each(&stamps, info.max_permits, groups).await?;
                Ok(merge_replies(&of_decisions(replies)).into())
            }
        }
    }

    /// Charges each group, at the same time.
    pub(crate) async fn charge(&self, groups: Vec<SlotGroup>) -> Result<DecisionReply, Error> {
        let replies = self.call_each(|_| Action::Charge, groups).await?;
        Ok(merge_charges(&replies, self.requests.len()))
    }

    /// Changes what a call counts in each group, at the same time.
    async fn settle(&self, settlement: &Settlement, groups: Vec<SlotGroup>) -> Result<DecisionReply, Error> {
        let stamp = |index: usize| settlement.info.stamp_of_request(index);
        let settle = |group: &SlotGroup| {
            let info = RefundInfo::from_store(stamp(group.indices[0]));
            let after = group.indices.iter().map(|index| settlement.after[*index]).collect();
            Action::Settle(Box::new(Settlement { info, after, once: None }))
        };
        let replies = self.call_each(settle, split_by_stamp(&groups, stamp)).await?;
        Ok(merge_charges(&replies, self.requests.len()))
    }

    /// Takes the permits group by group, each by `action`.
    async fn take_by_group(&self, call: &Call, action: Action, groups: Vec<SlotGroup>) -> Result<DecisionReply, Error> {
        let with_reports = matches!(action, Action::TakeWithReports);
        let peek = Action::FirstLook { with_reports };
        let (mut peeked, mut reports) = self.split_reports(self.call_each(|_| peek.clone(), groups).await?);
        let before = merge_replies(&peeked);
        if !before.allowed {
            return Ok(DecisionReply::with_reports(before, reports));
        }
        peeked.sort_by_cached_key(|reply| take_order(reply, self.requests, self.keys.as_slice()));
        let mut untaken: VecDeque<_> = peeked.into_iter().map(|(group, _)| group).collect();
        let mut reservation = Reservation::new(self.worker, call);
        let mut replies = Vec::new();
        while let Some(group) = untaken.pop_front() {
            if call.is_abandoned() {
                break;
            }
            match self.call_group(&action, &group).await {
                Ok(taken) if taken.reply.allowed => {
                    reservation.add(group.clone(), &taken);
                    replies.push((group, taken.reply));
                }
                Ok(denial) => {
                    // Those of the other groups stay: what was taken of them is refunded.
                    add_reports(&mut reports, sharing::enforced(self.requests), &group, &denial);
                    let reply = merge_replies(&[(group, denial.reply)]);
                    return Ok(DecisionReply::with_reports(reply, reports));
                }
                Err(CallError::NeedsSplit(_)) => {
                    self.split(&group).into_iter().rev().for_each(|group| untaken.push_front(group));
                }
                Err(CallError::Failed(error)) => return Err(error),
            }
        }
        if call.is_abandoned() {
            // No caller gets this denial. It also releases the reservation of the standby limiter.
            return Ok(StoreReply { allowed: false, ..before }.into());
        }
        Ok(DecisionReply { reply: merge_replies(&replies), per_request: Some(Arc::new(reservation.commit())) })
    }

    /// Separates the replies to groups from the reports of all requests.
    fn split_reports(&self, replies: Vec<(SlotGroup, DecisionReply)>) -> (Vec<GroupReply>, PerRequest) {
        let mut reports = PerRequest::default();
        replies
            .iter()
            .for_each(|(group, reply)| add_reports(&mut reports, sharing::enforced(self.requests), group, reply));
        (of_decisions(replies), reports)
    }

    /// Refunds at most `max_permits` of each request. The stamps are those of the requests' permits.
    async fn refund_each(
        &self,
        stamps: &[u64],
        max_permits: u32,
        groups: Vec<SlotGroup>,
    ) -> Result<Vec<(SlotGroup, DecisionReply)>, Error> {
        let groups = split_by_stamp(&groups, |index| stamps[index]);
        let refund = |group: &SlotGroup| {
            let info = RefundInfo::from_store(stamps[group.indices[0]]).with_max_permits(max_permits);
            Action::Refund(Box::new(info))
        };
        self.call_each(refund, groups).await
    }

    /// Calls the script for all groups at the same time, and for each key of a group that needs a split.
    ///
    /// # Errors
    /// The first failure, after all calls.
    async fn call_each(
        &self,
        action: impl Fn(&SlotGroup) -> Action,
        mut groups: Vec<SlotGroup>,
    ) -> Result<Vec<(SlotGroup, DecisionReply)>, Error> {
        let call = async |group: &SlotGroup| self.call_group(&action(group), group).await;
        let (mut replies, mut failure) = (Vec::new(), None);
        while !groups.is_empty() {
            let results = join_all(groups.iter().map(call)).await;
            for (group, result) in take(&mut groups).into_iter().zip(results) {
                match result {
                    Ok(reply) => replies.push((group, reply)),
                    Err(CallError::NeedsSplit(_)) => groups.extend(self.split(&group)),
                    Err(CallError::Failed(error)) => failure = failure.or(Some(error)),
                }
            }
        }
        failure.map_or(Ok(replies), Err)
    }

    /// One group for each counter, so that none needs another split.
    fn split(&self, group: &SlotGroup) -> Vec<SlotGroup> {
        self.is_split.set(true);
        group.split_by(|index| (&self.keys.as_slice()[index].name, self.requests[index].limit.packed()))
    }

    /// Calls the script for one group.
    async fn call_group(&self, action: &Action, group: &SlotGroup) -> Result<DecisionReply, CallError> {
        let keys = group.indices.iter().map(|index| self.keys.as_slice()[*index].clone());
        self.call_script(action, &group.select(self.requests), keys.collect()).await
    }

    /// Makes one script call about requests of one slot, within the deadline.
    pub(super) async fn call_script(
        &self,
        action: &Action,
        requests: &[Request<'_>],
        keys: Vec<RedisKey>,
    ) -> Result<DecisionReply, CallError> {
        let Self { worker, deadline, is_split, .. } = self;
        if is_split.get() && matches!(action, Action::Reset) && requests.iter().any(|request| request.block.is_some()) {
            let problem =
                "the slot of a key moves to another server, so its block cannot be ended now: reset it again later";
            return Err(Error::new(ErrorKind::Unavailable, problem).into());
        }
        let command = match is_split.get() {
            true => Command::decide(action, &without_blocks(requests), keys),
            false => Command::decide(action, requests, keys),
        };
        let (attempt, mut no_permit) = (Attempt::default(), None);
        let _polled = worker.busy_poll.call_sent();
        match timeout_at(deadline.instant, worker.topology.call(&command, &attempt, &mut no_permit)).await {
            Ok(reply) => Ok(command.decode(&reply?)?),
            Err(_) => {
                attempt.report_timeout();
                Err(deadline.no_reply_error().into())
            }
        }
    }
}

/// One group for each stamp. Permits that were taken group by group may be in one slot and still have several stamps.
fn split_by_stamp(groups: &[SlotGroup], stamp: impl Fn(usize) -> u64) -> Vec<SlotGroup> {
    groups.iter().flat_map(|group| group.split_by(&stamp)).collect()
}

/// The sort key of a group: first the number of such decisions that still fit, then the key, so that decisions about
/// the same counters take them in the same order.
fn take_order((group, reply): &GroupReply, requests: &[Request<'_>], keys: &[RedisKey]) -> (u32, RedisKey) {
    let tightest = group.indices[reply.request_index];
    (reply.remaining / requests[tightest].cost.max(1), keys[tightest].clone())
}

/// Permits that were taken for a decision that is not made yet. Dropping it refunds them, unless it was committed.
struct Reservation {
    worker: Rc<Worker>,
    requests: Arc<[OwnedRequest]>,
    keys: RedisKeys,
    deadline: Deadline,
    groups: Vec<SlotGroup>,
    /// The stamps of all requests, and the reports if there are any.
    per_request: PerRequest,
}

impl Reservation {
    fn new(worker: &Rc<Worker>, Call { requests, keys, deadline, .. }: &Call) -> Self {
        Self {
            worker: Rc::clone(worker),
            requests: Arc::clone(requests),
            keys: keys.clone(),
            deadline: *deadline,
            groups: Vec::new(),
            per_request: PerRequest { stamps: vec![0; requests.len()], ..PerRequest::default() },
        }
    }

    fn add(&mut self, group: SlotGroup, taken: &DecisionReply) {
        group.indices.iter().for_each(|index| self.per_request.stamps[*index] = taken.reply.stamp);
        let enforced = self.requests.iter().filter(|request| !request.as_request().role.is_observed()).count();
        add_reports(&mut self.per_request, enforced, &group, taken);
        self.groups.push(group);
    }

    /// Keeps the permits, and returns the stamps and reports.
    fn commit(mut self) -> PerRequest {
        self.groups.clear();
        take(&mut self.per_request)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let (groups, stamps) = (take(&mut self.groups), take(&mut self.per_request.stamps));
        if groups.is_empty() {
            return;
        }
        let (worker, requests, keys) = (Rc::clone(&self.worker), Arc::clone(&self.requests), self.keys.clone());
        let deadline = self.deadline.renewed();
        spawn_local(async move {
            let requests: Vec<_> = requests.iter().map(OwnedRequest::as_request).collect();
            let taken: Vec<_> = groups.iter().flat_map(|group| group.select(&requests)).collect();
            let is_split = Cell::new(true);
            let call = MultiSlotCall { worker: &worker, requests: &requests, keys: &keys, deadline, is_split };
            // If this fails, the permits come back when their window is over.
            let _ = call.refund_each(&stamps, u32::MAX, groups).await;
            // Calls may have been denied meanwhile.
            worker.local.invalidate_denials(&taken);
        });
    }
}

/// Adds the reports of a group's requests, if the reply has any, to those of all requests, of which so many are `enforced`.
fn add_reports(to: &mut PerRequest, enforced: usize, group: &SlotGroup, decided: &DecisionReply) {
    let Some(of_group) = &decided.per_request else { return };
    to.reports.resize(enforced, RequestReport::default());
    // In each group the observed ones come last, as in the decision.
    let (of_enforced, of_observed) = group.indices.split_at(of_group.reports.len());
    of_enforced.iter().zip(&of_group.reports).for_each(|(index, report)| to.reports[*index] = *report);
    for (index, reply) in of_observed.iter().zip(&of_group.observed) {
        let index = index - enforced;
        to.observed.resize(to.observed.len().max(index + 1), StoreReply::ALLOWED);
        to.observed[index] = *reply;
    }
}

/// The replies of groups without the data of each request.
fn of_decisions(replies: Vec<(SlotGroup, DecisionReply)>) -> Vec<GroupReply> {
    replies.into_iter().map(|(group, decision)| (group, decision.reply)).collect()
}

/// The reply to a charge of so many requests, that those to all groups make together.
fn merge_charges(replies: &[(SlotGroup, DecisionReply)], requests: usize) -> DecisionReply {
    let mut merged = vec![ChargeReply::default(); requests];
    for (group, DecisionReply { per_request, .. }) in replies {
        let charges = per_request.iter().flat_map(|per_request| &per_request.charges);
        group.indices.iter().zip(charges).for_each(|(index, charge)| merged[*index] = *charge);
    }
    let stamp = replies.iter().map(|(_, decision)| decision.reply.stamp).max().unwrap_or(0);
    DecisionReply::of_charges(merged, stamp)
}

/// The reply that those to all groups make together.
fn merge_replies(replies: &[GroupReply]) -> StoreReply {
    let index = |(group, reply): &&GroupReply| group.indices[reply.request_index];
    let denied = replies.iter().filter(|(_, reply)| !reply.allowed).min_by_key(index);
    let tightest = || replies.iter().min_by_key(|reply| (reply.1.remaining, index(reply)));
    // There is at least one: a decision about no requests is never sent.
    let decisive = denied.or_else(tightest).unwrap_or(&replies[0]);
    let retries = replies.iter().map(|(_, reply)| reply.retry_after);
    // `None`, which is never, outweighs any time.
    let retry_after = retries.collect::<Option<Vec<_>>>().and_then(|retries| retries.into_iter().max());
    // The block that ends last outranks, as in one script call.
    let blocked = replies.iter().filter(|(_, reply)| reply.is_blocked);
    if let Some(blocked) = blocked.max_by_key(|(_, reply)| reply.retry_after) {
        return StoreReply { request_index: index(&blocked), ..blocked.1 };
    }
    StoreReply { allowed: denied.is_none(), request_index: index(&decisive), retry_after, ..decisive.1 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn group_reply(indices: &[usize], reply: StoreReply) -> GroupReply {
        (SlotGroup { slot: 0, indices: indices.into() }, reply)
    }

    const ALLOWED: StoreReply = StoreReply { request_index: 1, remaining: 5, ..StoreReply::ALLOWED };

    #[test]
    fn a_merged_reply_is_about_the_tightest_counter_or_the_first_denial() {
        let tight = StoreReply { request_index: 0, remaining: 2, ..ALLOWED };
        let merged =
            merge_replies(&[group_reply(&[0, 3], ALLOWED), group_reply(&[2], tight), group_reply(&[1], tight)]);
        assert_eq!((merged.allowed, merged.request_index, merged.remaining), (true, 1, 2));
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let denied = |retry_after| StoreReply { allowed: false, request_index: 0, retry_after, ..ALLOWED };
        let late = group_reply(&[2], denied(seconds(9)));
        let merged =
            merge_replies(&[late.clone(), group_reply(&[0, 3], ALLOWED), group_reply(&[1], denied(seconds(3)))]);
        assert_eq!((merged.allowed, merged.request_index, merged.retry_after), (false, 1, seconds(9)));
        let never = merge_replies(&[late, group_reply(&[3], denied(None))]);
        assert_eq!((never.request_index, never.retry_after), (2, None));
    }
}
