//! The decision about a request of Envoy: the matching descriptors together, those in shadow mode by themselves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, join3};
use rate_limited::{ErrorKind, Limit, Mode, Source, Usage};
use tokio::task::JoinHandle;
use tonic::Status;

use super::held::{HeldHits, HeldKey, Hits};
use super::messages::{Code, DescriptorStatus, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use super::status;
use crate::envoy::{EnvoyConfig, EnvoyDomains, EnvoyRule, Match};
use crate::service::{
    Answer, Call, CatalogRule, DecisionService, LimitAnswer, Problem, ProblemClass, Target, Value, Values,
};

/// The most descriptors of a request, as many as a decision has limits.
const MAX_DESCRIPTORS: usize = 128;

/// The least time of a step, also where the request has none left.
const MIN_DEADLINE: Duration = Duration::from_millis(1);

/// The time in which a failure in shadow mode is logged once.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The decisions about requests of Envoy.
#[derive(Debug)]
pub(super) struct RateLimits {
    pub(super) service: Arc<DecisionService>,
    pub(super) config: Arc<EnvoyConfig>,
    pub(super) held: HeldHits,
}

/// A descriptor with a limit.
struct Matched<'t, 'r> {
    /// Its place in the request.
    index: usize,
    rule: &'t EnvoyRule,
    values: Vec<&'r str>,
    call: Call<'r>,
    action: Action,
    /// The permits that must be free for it.
    need: u32,
    /// Its rule is off, for keys without an override.
    is_off: bool,
}

/// What a descriptor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Its rule is off, for all keys.
    Off,
    /// It is decided with others, all or nothing.
    Together,
    /// It is decided by itself, in shadow mode.
    Alone,
    /// It takes a slot.
    Enter,
    /// It looks at slots.
    Look,
    /// Its hits are counted, also beyond the limit.
    Charge,
    /// Its hits are given back.
    GiveBack,
}

/// The hits of a descriptor.
#[derive(Clone, Copy)]
struct Addend {
    hits: u32,
    /// The request has the number, which is not 0.
    is_given: bool,
}

/// What has become of the descriptors.
#[derive(Default)]
struct Outcomes {
    /// The answer about those that were decided together.
    together: Option<Answer>,
    /// The answers about slots and about those decided alone, by their places in the request.
    answers: BTreeMap<usize, Answer>,
    /// Those that were charged or given back.
    usages: BTreeMap<usize, Option<Usage>>,
}

impl Outcomes {
    /// The denial of the request, if there is one: that of slots, else of those decided alone, else of those decided together.
    fn denial(&self, matched: &[Matched<'_, '_>]) -> Option<&Answer> {
        // A look denies nothing. Shadow mode neither: an override of the key has denied.
        let by = |action: Action| {
            let indices = matched.iter().filter(move |matched| matched.action == action).map(|matched| matched.index);
            indices.filter_map(|index| self.answers.get(&index)).find(|answer| !answer.is_allowed())
        };
        let together = || self.together.as_ref().filter(|answer| !answer.is_allowed());
        by(Action::Enter).or_else(|| by(Action::Alone)).or_else(together)
    }

    /// Returns whether one of those decided together, with this status, was allowed by its mode: no limit has decided.
    fn is_allowed_by_mode(&self, status: &DescriptorStatus) -> bool {
        let is_decided = self.together.as_ref().is_some_and(|answer| answer.source() != Source::Policy);
        is_decided && status.code == i32::from(Code::Ok) && status.duration_until_reset.is_none()
    }
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
        let matched = self.match_descriptors(&domains, request)?;
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
        outcomes.together = decided.map_err(|problem| status_of(&problem))?;
        for (matched, answer) in alone {
            match answer {
                Ok(answer) => drop(outcomes.answers.insert(matched.index, answer)),
                // The others have taken their permits, and shadow mode denies nothing.
                Err(problem) if matched.action == Action::Alone => log_undecided(matched.rule, &problem),
                Err(problem) => return Err(status_of(&problem)),
            }
        }
        for (index, usage) in changes {
            outcomes.usages.insert(index, usage.map_err(|problem| status_of(&problem))?);
        }
        if outcomes.denial(&matched).is_none() {
            let slots = std::mem::take(&mut entered.slots);
            self.hold(&matched, outcomes.together.as_ref(), slots);
        }
        Ok(response(request, &matched, &outcomes))
    }

    /// Finds the rules of the descriptors, without those that another one replaces.
    fn match_descriptors<'t, 'r>(
        &self,
        domains: &'t EnvoyDomains,
        request: &'r RateLimitRequest,
    ) -> Result<Vec<Matched<'t, 'r>>, Status> {
        let found = request.descriptors.iter().map(|descriptor| {
            let entries = descriptor.entries.iter().map(|entry| (&*entry.key, &*entry.value));
            domains.find(&request.domain, entries)
        });
        let found: Vec<Option<Match<'t, 'r>>> = found.collect();
        let is_replaced = |rule: &EnvoyRule| found.iter().flatten().any(|other| other.rule.replaces(rule));
        let is_replaced: Vec<_> =
            found.iter().map(|found| found.as_ref().is_some_and(|found| is_replaced(found.rule))).collect();
        let catalog = self.service.catalog();
        let mut matched = Vec::with_capacity(found.len());
        for (index, found) in found.into_iter().enumerate() {
            let Some(Match { rule, values }) = found.filter(|_| !is_replaced[index]) else { continue };
            let in_force = catalog.rule(rule.name()).map_err(|problem| status_of(&problem))?;
            let descriptor = &request.descriptors[index];
            let addend = Addend::of(descriptor, request);
            let action = action_of(descriptor, addend, rule, in_force)
                .map_err(|message| Status::invalid_argument(format!("`descriptors[{index}]` {message}")))?;
            let in_order = Values::InOrder(values.iter().map(|value| Value::from(*value)).collect());
            let target = Target::Rule { name: in_force.name().to_owned().into(), values: in_order };
            // A slot is entered and given back as a whole, whatever the hits.
            let cost = if holds_slots(in_force) { 1 } else { addend.hits };
            let need = if in_force.is_postpaid() { 1 } else { cost };
            let call = Call { cost, ..Call::new(target) };
            let is_off = in_force.mode() == Mode::Off;
            matched.push(Matched { index, rule, values, call, action, need, is_off });
        }
        Ok(matched)
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
            let answer = answer.map_err(|problem| status_of(&problem))?;
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

impl<'r> Matched<'_, 'r> {
    /// Its call, with the time that is left until the end of the request.
    fn call_until(&self, end: Option<Instant>) -> Call<'r> {
        let left = |end: Instant| end.saturating_duration_since(Instant::now()).max(MIN_DEADLINE);
        Call { deadline: end.map(left), ..self.call.clone() }
    }

    fn held_key(&self) -> HeldKey {
        HeldKey { rule: self.rule.name().into(), values: self.values.iter().map(|value| Box::from(*value)).collect() }
    }

    /// Returns whether a limit of a denial denies this descriptor.
    fn lacks(&self, limit: &LimitAnswer<'_>) -> bool {
        limit.remaining < self.need
    }
}

impl Action {
    fn is_alone(self) -> bool {
        matches!(self, Self::Alone | Self::Look)
    }
}

impl Addend {
    /// The hits of a descriptor: its own, else those of the request, of which 0 is 1.
    fn of(descriptor: &RateLimitDescriptor, request: &RateLimitRequest) -> Self {
        let hits = match (descriptor.hits_addend, request.hits_addend) {
            (Some(hits), _) => u32::try_from(hits).unwrap_or(u32::MAX),
            (None, 0) => return Self { hits: 1, is_given: false },
            (None, hits) => hits,
        };
        Self { hits, is_given: hits > 0 }
    }
}

/// Checks what does not depend on the configuration.
fn check(request: &RateLimitRequest) -> Result<(), Status> {
    let RateLimitRequest { domain, descriptors, .. } = request;
    if domain.is_empty() {
        return Err(Status::invalid_argument("`domain` must be that of a file, got none: set it in Envoy's filter"));
    }
    if descriptors.is_empty() {
        return Err(Status::invalid_argument("`descriptors` must have at least one, got none"));
    }
    if descriptors.len() > MAX_DESCRIPTORS {
        let count = descriptors.len();
        return Err(Status::resource_exhausted(format!(
            "`descriptors` must have at most {MAX_DESCRIPTORS}, got {count}: send several requests"
        )));
    }
    if let Some(index) = descriptors.iter().position(|descriptor| descriptor.entries.is_empty()) {
        return Err(Status::invalid_argument(format!("`descriptors[{index}]` must have at least one entry, got none")));
    }
    if let Some(index) = descriptors.iter().position(|descriptor| descriptor.limit.is_some()) {
        return Err(Status::invalid_argument(format!(
            "`descriptors[{index}]` must have no `limit`, got one: this server decides by its rules alone, so write it into \
             the configuration"
        )));
    }
    Ok(())
}

/// Returns whether the calls of a rule hold slots.
fn holds_slots(in_force: &CatalogRule) -> bool {
    in_force.limits().iter().any(Limit::is_concurrent)
}

/// Returns what a descriptor does under a rule.
fn action_of(
    descriptor: &RateLimitDescriptor,
    addend: Addend,
    rule: &EnvoyRule,
    in_force: &CatalogRule,
) -> Result<Action, &'static str> {
    let holds_slots = holds_slots(in_force);
    let mode = in_force.mode();
    if mode == Mode::Off && !in_force.has_exceptions() {
        return Ok(Action::Off);
    }
    if descriptor.is_negative_hits {
        return if holds_slots || rule.has_refunds() {
            Ok(Action::GiveBack)
        } else if mode == Mode::Off {
            Ok(Action::Off)
        } else {
            Err("must have no `is_negative_hits`, got it: write `refunds: true` into its `rate_limit`")
        };
    }
    Ok(match mode {
        _ if holds_slots && addend.hits == 0 => Action::Look,
        _ if holds_slots => Action::Enter,
        _ if in_force.is_postpaid() && addend.is_given => Action::Charge,
        Mode::Shadow => Action::Alone,
        _ => Action::Together,
    })
}

/// Writes the answer.
fn response(request: &RateLimitRequest, matched: &[Matched<'_, '_>], outcomes: &Outcomes) -> RateLimitResponse {
    let mut statuses = vec![status::unlimited(0); request.descriptors.len()];
    let together: Vec<_> = matched.iter().filter(|matched| matched.action == Action::Together).collect();
    if let Some(answer) = &outcomes.together {
        for (matched, status) in together.iter().zip(statuses_together(answer, &together)) {
            statuses[matched.index] = status;
        }
    }
    let mut violations = Vec::new();
    for matched in matched {
        let &Matched { index, rule, action, .. } = matched;
        if let Some(usage) = outcomes.usages.get(&index) {
            statuses[index] = status::charged(usage.as_ref(), rule);
        } else if let Some(answer) = outcomes.answers.get(&index) {
            let code = if answer.is_allowed() || action == Action::Look { Code::Ok } else { Code::OverLimit };
            let limits = limits_of(answer);
            statuses[index] = status::decided(code, &limits, rule);
            if rule.is_quota() && answer.is_shadowed() {
                violations.push(index);
            }
        } else if action == Action::Off || matched.is_off && outcomes.is_allowed_by_mode(&statuses[index]) {
            let grants_nothing = rule.denied_limit().is_some();
            statuses[index] =
                if grants_nothing { status::denied_by_mode(rule, Code::Ok) } else { status::unlimited(u32::MAX) };
            if rule.is_quota() && grants_nothing {
                violations.push(index);
            }
        }
    }
    let mut of_slots = matched.iter().filter(|matched| matched.action == Action::Enter);
    let first_slot = || of_slots.find_map(|matched| outcomes.answers.get(&matched.index));
    let denial = outcomes.denial(matched);
    let decisive = denial.or(outcomes.together.as_ref()).or_else(first_slot);
    let is_allowed = denial.is_none();
    let has_quota = matched.iter().any(|matched| matched.rule.is_quota());
    RateLimitResponse {
        overall_code: if is_allowed { Code::Ok } else { Code::OverLimit }.into(),
        statuses,
        response_headers_to_add: decisive.map(status::headers).unwrap_or_default(),
        raw_body: decisive.map(status::body).unwrap_or_default(),
        dynamic_metadata: has_quota.then(|| status::quota_metadata(&request.domain, &violations)),
    }
}

/// The statuses of descriptors that were decided together, in their order.
fn statuses_together(answer: &Answer, together: &[&Matched<'_, '_>]) -> Vec<DescriptorStatus> {
    let limits = limits_of(answer);
    let own = limits_of_each(&limits, together);
    let has_culprit = own.iter().zip(together).any(|(own, matched)| own.iter().any(|limit| matched.lacks(limit)));
    let is_over = |matched: &Matched<'_, '_>, own: &[LimitAnswer<'_>]| match has_culprit && !answer.is_blocked() {
        true => own.iter().any(|limit| matched.lacks(limit)),
        // A mode, a block or a bucket denied: the rule of the decision did.
        false => answer.rule() == matched.rule.name(),
    };
    let status = |(own, matched): (Vec<LimitAnswer<'_>>, &&Matched<'_, '_>)| {
        let code = if !answer.is_allowed() && is_over(matched, &own) { Code::OverLimit } else { Code::Ok };
        status::decided(code, &own, matched.rule)
    };
    let mut statuses: Vec<_> = own.clone().into_iter().zip(together).map(status).collect();
    // A policy names the first rule alone, and the names of decisions are bounded.
    let is_unnamed = answer.source() == Source::Policy && !answer.is_allowed()
        || !answer.is_allowed() && statuses.iter().all(|status| status.code == i32::from(Code::Ok));
    for status in statuses.iter_mut().filter(|_| is_unnamed) {
        status.code = Code::OverLimit.into();
    }
    statuses
}

/// The limits that decided. A policy or a mode has the numbers of none.
fn limits_of(answer: &Answer) -> Vec<LimitAnswer<'_>> {
    match answer.source() {
        Source::Policy | Source::Mode => Vec::new(),
        _ => answer.limits().collect(),
    }
}

/// Returns the limits of each descriptor, from those of a decision, which has them in order and once for each key of a rule.
fn limits_of_each<'a>(limits: &[LimitAnswer<'a>], together: &[&Matched<'_, '_>]) -> Vec<Vec<LimitAnswer<'a>>> {
    let each = together.iter().map(|matched| {
        let name = matched.rule.name();
        let own: Vec<_> = limits.iter().filter(|limit| limit.rule == name).copied().collect();
        let mut keys: Vec<&[&str]> = Vec::new();
        for other in together.iter().filter(|other| other.rule.name() == name) {
            if !keys.contains(&&*other.values) {
                keys.push(&other.values);
            }
        }
        match keys.iter().position(|values| **values == *matched.values) {
            // Overrides may give the keys of one rule different numbers of limits: then each has those of all.
            Some(place) if keys.len() > 1 && own.len() % keys.len() == 0 => {
                let count = own.len() / keys.len();
                own[place * count..(place + 1) * count].to_vec()
            }
            _ => own,
        }
    });
    each.collect()
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

/// The status of gRPC for a problem.
fn status_of(problem: &Problem) -> Status {
    let detail = match problem.suggestion() {
        Some(suggestion) => format!("{}: {suggestion}", problem.detail()),
        None => problem.detail(),
    };
    match problem.class() {
        ProblemClass::Invalid => Status::invalid_argument(detail),
        ProblemClass::Unknown => Status::not_found(detail),
        ProblemClass::Used => Status::already_exists(detail),
        ProblemClass::Unusable => Status::failed_precondition(detail),
        ProblemClass::Forbidden => Status::permission_denied(detail),
        ProblemClass::Unavailable => Status::unavailable(detail),
    }
}
