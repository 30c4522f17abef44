//! The decision about a request of Envoy: the matching descriptors together, those in shadow mode by themselves.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, join3};
use rate_limited::{ErrorKind, Usage};
use tokio::task::JoinHandle;
use tonic::Status;

use super::held::{HeldHits, HeldKey, Hits};
use super::matching::{Action, Matched, check, match_descriptors};
use super::messages::{RateLimitRequest, RateLimitResponse};
use super::response::{Outcomes, response};
use super::status;
use crate::envoy::{EnvoyConfig, EnvoyRule};
use crate::service::{Answer, Call, DecisionService, Problem, ProblemClass, Target, Value, Values};

/// The time in which a failure in shadow mode is logged once.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The decisions about requests of Envoy.
#[derive(Debug)]
pub(super) struct RateLimits {
    pub(super) service: Arc<DecisionService>,
    pub(super) config: Arc<EnvoyConfig>,
    pub(super) held: HeldHits,
}

/// The slots of a request that is not admitted yet. They are free when it is dropped.
struct EnteredSlots<'s> {
    service: &'s DecisionService,
    slots: Vec<(usize, Arc<str>)>,
}

impl Drop for EnteredSlots<'_> {
    fn drop(&mut self) {
        for (_, slot) in self.slots.drain(..) {
            // It has ended if it is not there.
            let _ = self.service.leave(&slot);
        }
    }
}

impl RateLimits {
    /// Answers a request, whose sender waits until `end`.
    ///
    /// # Errors
    /// The request is wrong, or the limiter could not decide and the policy is to raise that.
    ///
    /// # Cancel safety
    /// Permits may have been taken. Slots are free. Charges and returns end nevertheless.
    pub(super) async fn answer(
        &self,
        request: &RateLimitRequest,
        end: Option<Instant>,
    ) -> Result<RateLimitResponse, Status> {
        check(request)?;
        let domains = self.config.domains();
        let matched = match_descriptors(&self.service, &domains, request)?;
        let mut outcomes = Outcomes::default();
        let changes = self.begin_changes(&matched);
        let mut entered = self.enter(&matched, end, &mut outcomes).await?;
        let is_entered = outcomes.answers.values().all(Answer::is_allowed);
        let together: Vec<_> = matched.iter().filter(|matched| matched.action == Action::Together).collect();
        let decided = async {
            if together.is_empty() || !is_entered {
                return Ok(None);
            }
            let calls: Vec<_> = together.iter().map(|matched| matched.call_until(end)).collect();
            self.service.check_together(&calls).await.map(Some)
        };
        let alone = matched.iter().filter(|matched| matched.action.is_alone());
        let alone = join_all(alone.map(|matched| async move { (matched, self.decide_alone(matched, end).await) }));
        let changes = join_all(changes.into_iter().map(|(index, change)| async move { (index, end_of(change).await) }));
        let (decided, alone, changes) = join3(decided, alone, changes).await;
        outcomes.together = decided.map_err(|problem| status::of_problem(&problem))?;
        for (matched, answer) in alone {
            match answer {
                Ok(answer) => drop(outcomes.answers.insert(matched.index, answer)),
                // The others have taken their permits, and shadow mode denies nothing.
                Err(problem) if matched.action == Action::Alone => log_undecided(matched.rule, &problem),
                Err(problem) => return Err(status::of_problem(&problem)),
            }
        }
        for (index, usage) in changes {
            outcomes.usages.insert(index, usage.map_err(|problem| status::of_problem(&problem))?);
        }
        if outcomes.denial(&matched).is_none() {
            let slots = std::mem::take(&mut entered.slots);
            self.hold(&matched, outcomes.together.as_ref(), slots);
        }
        Ok(response(request, &matched, &outcomes))
    }

    /// Takes the slots of the descriptors, until one of them has none.
    async fn enter(
        &self,
        matched: &[Matched<'_, '_>],
        end: Option<Instant>,
        outcomes: &mut Outcomes,
    ) -> Result<EnteredSlots<'_>, Status> {
        let mut entered = EnteredSlots { service: &self.service, slots: Vec::new() };
        for matched in matched.iter().filter(|matched| matched.action == Action::Enter) {
            let answer = self.service.enter(&matched.call_until(end), matched.rule.hold()).await;
            let answer = answer.map_err(|problem| status::of_problem(&problem))?;
            entered.slots.extend(answer.slot().map(|slot| (matched.index, Arc::clone(&slot.id))));
            let is_allowed = answer.is_allowed();
            outcomes.answers.insert(matched.index, answer);
            if !is_allowed {
                break;
            }
        }
        Ok(entered)
    }

    async fn decide_alone(&self, matched: &Matched<'_, '_>, end: Option<Instant>) -> Result<Answer, Problem> {
        let call = matched.call_until(end);
        match matched.action {
            Action::Look => self.service.peek(&call).await,
            _ => self.service.check_together(&[call]).await,
        }
    }

    /// Begins the charges and the returns, which end whether their request does or not: what they count has happened.
    fn begin_changes(&self, matched: &[Matched<'_, '_>]) -> Vec<(usize, JoinHandle<ChangeResult>)> {
        let changes = matched.iter().filter(|matched| matches!(matched.action, Action::Charge | Action::GiveBack));
        let begun = changes.map(|matched| {
            let change = Change {
                service: Arc::clone(&self.service),
                held: self.held.clone(),
                key: matched.held_key(),
                cost: matched.call.cost,
            };
            let is_charge = matched.action == Action::Charge;
            let changed = async move { if is_charge { change.charge().await } else { change.give_back().await } };
            (matched.index, tokio::spawn(changed))
        });
        begun.collect()
    }

    /// Holds the hits of an admitted request that a later one may give back. What has no receipt cannot be given back.
    fn hold(&self, matched: &[Matched<'_, '_>], together: Option<&Answer>, slots: Vec<(usize, Arc<str>)>) {
        let now = Instant::now();
        for (index, slot) in slots {
            if let Some(matched) = matched.iter().find(|matched| matched.index == index) {
                self.held.hold(matched.held_key(), Hits::Slot(slot), matched.rule.hold(), now);
            }
        }
        let Some(answer) = together else { return };
        let refundable = |matched: &&Matched<'_, '_>| {
            matched.action == Action::Together && matched.rule.has_refunds() && matched.call.cost > 0
        };
        let refundable: Vec<_> = matched.iter().filter(refundable).collect();
        for (place, matched) in refundable.iter().enumerate() {
            let is_same = |other: &&&Matched<'_, '_>| other.held_key() == matched.held_key();
            if refundable[..place].iter().any(|other| is_same(&other)) {
                continue;
            }
            // One receipt is of all descriptors with this key, which take the most that one of them has.
            let costs = refundable.iter().filter(is_same).map(|other| other.call.cost);
            let cost = costs.max().unwrap_or(matched.call.cost);
            match self.service.receipt(&matched.call, answer) {
                Ok(receipt) => {
                    let hits = Hits::Permits { receipt: receipt.into(), cost };
                    self.held.hold(matched.held_key(), hits, matched.rule.hold(), now);
                }
                Err(problem) => {
                    let rule = matched.rule.name();
                    tracing::debug!(rule, "hits cannot be given back later: {}", problem.detail());
                }
            }
        }
    }
}

/// A charge or a return, apart from its request. It has the deadline of the limiter, as its sender may not wait.
struct Change {
    service: Arc<DecisionService>,
    held: HeldHits,
    key: HeldKey,
    cost: u32,
}

/// The usage after a change. `None` if nothing was given back.
type ChangeResult = Result<Option<Usage>, Problem>;

impl Change {
    fn call(&self) -> Call<'_> {
        let values = Values::InOrder(self.key.values.iter().map(|value| Value::from(&**value)).collect());
        Call { cost: self.cost, ..Call::new(Target::Rule { name: (&*self.key.rule).into(), values }) }
    }

    async fn charge(self) -> ChangeResult {
        self.service.charge(&self.call()).await.map(Some)
    }

    /// Gives hits back, those of the oldest request first. Nothing is given back that no request holds.
    async fn give_back(self) -> ChangeResult {
        let (mut hits, mut usage) = (self.cost, None);
        while hits > 0 {
            let Some((end, held)) = self.held.take(&self.key, Instant::now()) else { break };
            let (back, result) = match &held {
                Hits::Slot(slot) => (1, self.service.leave(slot).map(|()| None)),
                Hits::Permits { receipt, cost } => {
                    let back = hits.min(*cost);
                    (back, self.service.settle(&self.call(), receipt, cost - back).await.map(Some))
                }
            };
            match result {
                Ok(of_hits) => usage = of_hits.or(usage),
                // The slot is free. A return that failed earlier was done after all.
                Err(Problem::EndedSlot | Problem::UsedReceipt) => {}
                Err(problem) => {
                    if problem.class() == ProblemClass::Unavailable {
                        // A later return gives them back.
                        self.held.put_back(self.key.clone(), end, held);
                    }
                    return Err(problem);
                }
            }
            hits -= back;
        }
        Ok(usage)
    }
}

/// Waits for the end of a change.
async fn end_of(change: JoinHandle<ChangeResult>) -> ChangeResult {
    match change.await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends.
            Err(_) => Err(Problem::Undecided { kind: ErrorKind::Unavailable }),
        },
    }
}

/// Logs that a descriptor in shadow mode was not decided, once a minute at most.
fn log_undecided(rule: &EnvoyRule, problem: &Problem) {
    static LOGGED: Mutex<Option<Instant>> = Mutex::new(None);
    let now = Instant::now();
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    if logged.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL) {
        *logged = Some(now);
        drop(logged);
        let (rule, problem) = (rule.name(), problem.detail());
        tracing::warn!(rule, problem, "a descriptor in shadow mode was not decided; this is logged once a minute");
    }
}
