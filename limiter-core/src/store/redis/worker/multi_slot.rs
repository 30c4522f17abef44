//! Decisions, and those that no script call can make: they are made count by count.
//!
//! The counts of such a decision are in several slots of a cluster, or in a slot that moves, so that no node has all of
//! them. First all counts are peeked at, at the same time. If one denies, nothing is taken. Else the permits are taken one
//! part after the other, and what was taken is given back if a part denies or fails, or if the caller is gone.
//!
//! The part that fits the fewest such decisions takes first. So a burst above one user's limit is denied there, and takes
//! nothing in vain from a count that everybody needs. A decision is allowed only if each part has granted its permits,
//! whatever their order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem::take;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::spawn_local;

use crate::Error;
use crate::request::RefundInfo;
use crate::request::{OwnedRequest, Request, StoreReply};
use crate::store::redis::connection::topology::SlotGroup;
use crate::store::redis::script::KeyNames;
use crate::store::redis::worker::call::{Action, Call, Deadline};
use crate::store::redis::worker::{ScriptCallError, Worker};

/// The reply to a decision.
pub(crate) struct DecisionReply {
    pub(crate) answer: StoreReply,
    /// When the permits of each request were taken, where they were not taken together.
    pub(crate) stamps: Option<Arc<[u64]>>,
}

impl From<StoreReply> for DecisionReply {
    fn from(answer: StoreReply) -> Self {
        Self { answer, stamps: None }
    }
}

/// A part of a decision with the reply to it.
type GroupReply = (SlotGroup, StoreReply);

impl Worker {
    /// Makes a decision: by one script call where one will do.
    pub(crate) async fn decide(
        self: &Rc<Self>,
        call: &Call,
        requests: &[Request<'_>],
        parts: Vec<SlotGroup>,
    ) -> Result<DecisionReply, Error> {
        match &call.action {
            Action::Take { .. } => self.take(call, requests, parts).await,
            action @ (Action::Peek | Action::Reset) => self
                .ask_each(|_| action.clone(), requests, parts, call.until)
                .await
                .map(|answers| joint(&answers).into()),
            Action::Refund(granted) => {
                let stamps: Vec<_> = (0..requests.len()).map(|place| granted.for_request(place).stamp).collect();
                self.refund_each(&stamps, requests, parts, call.until).await.map(|answers| joint(&answers).into())
            }
        }
    }

    async fn take(
        self: &Rc<Self>,
        call: &Call,
        requests: &[Request<'_>],
        parts: Vec<SlotGroup>,
    ) -> Result<DecisionReply, Error> {
        let [part] = &parts[..] else { return self.take_by_count(call, requests, parts).await };
        match self.ask(&call.action, requests, part.slot, call.until).await {
            Ok(answer) => Ok(answer.into()),
            Err(ScriptCallError::Torn) => self.take_by_count(call, requests, self.by_key(part, requests)).await,
            Err(ScriptCallError::Failed(error)) => Err(error),
        }
    }

    async fn take_by_count(
        self: &Rc<Self>,
        call: &Call,
        requests: &[Request<'_>],
        parts: Vec<SlotGroup>,
    ) -> Result<DecisionReply, Error> {
        let mut peeked = self.ask_each(|_| Action::Peek, requests, parts, call.until).await?;
        let before = joint(&peeked);
        if !before.allowed {
            return Ok(before.into());
        }
        peeked.sort_by_cached_key(|answered| self.turn(answered, requests));
        let mut untaken: VecDeque<_> = peeked.into_iter().map(|(part, _)| part).collect();
        let mut reservation = Reservation::new(self, call);
        let mut answers = Vec::new();
        // As in one script call about several counts, none gives a turn to wait for.
        let action = Action::Take { max_wait: Duration::ZERO };
        while let Some(part) = untaken.pop_front() {
            if call.reply.is_closed() {
                break;
            }
            match self.ask(&action, &part.of(requests), part.slot, call.until).await {
                Ok(answer) if answer.allowed => {
                    reservation.add(part.clone(), answer.stamp);
                    answers.push((part, answer));
                }
                Ok(denial) => return Ok(joint(&[(part, denial)]).into()),
                Err(ScriptCallError::Torn) => {
                    self.by_key(&part, requests).into_iter().rev().for_each(|part| untaken.push_front(part));
                }
                Err(ScriptCallError::Failed(error)) => return Err(error),
            }
        }
        if call.reply.is_closed() {
            // Nobody reads this denial, but it also frees what the standby limiter has reserved.
            return Ok(StoreReply { allowed: false, ..before }.into());
        }
        Ok(DecisionReply { answer: joint(&answers), stamps: Some(reservation.keep()) })
    }

    /// Gives back what was taken at these times, one for each request.
    async fn refund_each(
        &self,
        stamps: &[u64],
        requests: &[Request<'_>],
        parts: Vec<SlotGroup>,
        until: Deadline,
    ) -> Result<Vec<GroupReply>, Error> {
        // What was taken count by count may be in one slot, but is of several instants.
        let parts = parts.iter().flat_map(|part| part.split_by(|place| stamps[place])).collect();
        let refund = |part: &SlotGroup| Action::Refund(Box::new(RefundInfo::from_store(stamps[part.places[0]])));
        self.ask_each(refund, requests, parts, until).await
    }

    /// Puts an action to all parts at the same time, and to each key of a part that is torn.
    ///
    /// # Errors
    /// The first failure, after all have been asked.
    async fn ask_each(
        &self,
        action: impl Fn(&SlotGroup) -> Action,
        requests: &[Request<'_>],
        mut parts: Vec<SlotGroup>,
        until: Deadline,
    ) -> Result<Vec<GroupReply>, Error> {
        let ask = async |part: &SlotGroup| self.ask(&action(part), &part.of(requests), part.slot, until).await;
        let (mut answers, mut failure) = (Vec::new(), None);
        while !parts.is_empty() {
            let replies = all(parts.iter().map(ask)).await;
            for (part, reply) in take(&mut parts).into_iter().zip(replies) {
                match reply {
                    Ok(answer) => answers.push((part, answer)),
                    Err(ScriptCallError::Torn) => parts.extend(self.by_key(&part, requests)),
                    Err(ScriptCallError::Failed(error)) => failure = failure.or(Some(error)),
                }
            }
        }
        failure.map_or(Ok(answers), Err)
    }

    /// The parts of a part that is torn: one for each Redis key, so that none is torn again.
    fn by_key(&self, part: &SlotGroup, requests: &[Request<'_>]) -> Vec<SlotGroup> {
        part.split_by(|place| self.name(&requests[place]))
    }

    /// By what the parts of a decision take in order: how many such decisions still fit, and then what makes decisions about
    /// the same counts take in the same order.
    fn turn(&self, (part, answer): &GroupReply, requests: &[Request<'_>]) -> (u32, u16, KeyNames) {
        let tightest = &requests[part.places[answer.request_index]];
        (answer.remaining / tightest.cost.max(1), part.slot, self.name(tightest))
    }

    fn name(&self, request: &Request<'_>) -> KeyNames {
        let mut name = KeyNames::default();
        self.script().name(request, &mut name);
        name
    }
}

/// Permits that were taken for a decision that is not made yet: given back when dropped, unless they are kept.
struct Reservation {
    driver: Rc<Worker>,
    asked: Arc<[OwnedRequest]>,
    until: Deadline,
    parts: Vec<SlotGroup>,
    /// By request.
    stamps: Vec<u64>,
}

impl Reservation {
    fn new(driver: &Rc<Worker>, Call { asked, until, .. }: &Call) -> Self {
        let (driver, asked, stamps) = (Rc::clone(driver), Arc::clone(asked), vec![0; asked.len()]);
        Self { driver, asked, until: *until, parts: Vec::new(), stamps }
    }

    fn add(&mut self, part: SlotGroup, stamp: u64) {
        part.places.iter().for_each(|place| self.stamps[*place] = stamp);
        self.parts.push(part);
    }

    /// Makes the decision; gives when the permits of each request were taken.
    fn keep(mut self) -> Arc<[u64]> {
        self.parts.clear();
        take(&mut self.stamps).into()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let (parts, stamps) = (take(&mut self.parts), take(&mut self.stamps));
        if parts.is_empty() {
            return;
        }
        let (driver, asked, until) = (Rc::clone(&self.driver), Arc::clone(&self.asked), self.until.again());
        spawn_local(async move {
            let requests: Vec<_> = asked.iter().map(OwnedRequest::as_request).collect();
            let taken: Vec<_> = parts.iter().flat_map(|part| part.of(&requests)).collect();
            // If this fails, they come back when their time is over.
            let _ = driver.refund_each(&stamps, &requests, parts, until).await;
            // Others may have been denied meanwhile what is there again.
            driver.denied().invalidate(&taken);
        });
    }
}

/// The reply that those to all parts make together.
fn joint(answers: &[GroupReply]) -> StoreReply {
    let place = |(part, answer): &&GroupReply| part.places[answer.request_index];
    let denied = answers.iter().filter(|(_, answer)| !answer.allowed).min_by_key(place);
    let tightest = || answers.iter().min_by_key(|answered| (answered.1.remaining, place(answered)));
    // There is at least one: of no requests nothing is asked.
    let told = denied.or_else(tightest).unwrap_or(&answers[0]);
    let retries = answers.iter().map(|(_, answer)| answer.retry_after);
    // `None`, which is never, outweighs any time.
    let retry_after = retries.collect::<Option<Vec<_>>>().and_then(|retries| retries.into_iter().max());
    StoreReply { allowed: denied.is_none(), request_index: place(&told), retry_after, ..told.1 }
}

/// Waits for all of them at once.
pub(crate) async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in &mut waiting {
            if output.is_none() {
                match Pin::new(future).poll(context) {
                    Poll::Ready(ready) => *output = Some(ready),
                    Poll::Pending => is_done = false,
                }
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    waiting.into_iter().filter_map(|(_, output)| output).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(places: &[usize], answer: StoreReply) -> GroupReply {
        (SlotGroup { slot: 0, places: places.into() }, answer)
    }

    const ALLOWED: StoreReply = StoreReply { request_index: 1, remaining: 5, ..StoreReply::ALLOWED };

    #[test]
    fn the_joint_reply_is_about_the_tightest_count_or_the_first_that_denies() {
        let tight = StoreReply { request_index: 0, remaining: 2, ..ALLOWED };
        let all = joint(&[answered(&[0, 3], ALLOWED), answered(&[2], tight), answered(&[1], tight)]);
        assert_eq!((all.allowed, all.request_index, all.remaining), (true, 1, 2));
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let denied = |retry_after| StoreReply { allowed: false, request_index: 0, retry_after, ..ALLOWED };
        let late = answered(&[2], denied(seconds(9)));
        let all = joint(&[late.clone(), answered(&[0, 3], ALLOWED), answered(&[1], denied(seconds(3)))]);
        assert_eq!((all.allowed, all.request_index, all.retry_after), (false, 1, seconds(9)));
        let never = joint(&[late, answered(&[3], denied(None))]);
        assert_eq!((never.request_index, never.retry_after), (2, None));
    }
}
