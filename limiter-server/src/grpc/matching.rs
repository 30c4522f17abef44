//! The rules of a request's descriptors, and what each descriptor does.

use std::time::{Duration, Instant};

use rate_limited::{Limit, Mode};
use tonic::Status;

use super::held::HeldKey;
use super::messages::{RateLimitDescriptor, RateLimitRequest};
use super::status;
use crate::envoy::{EnvoyDomains, EnvoyRule, Match};
use crate::service::{Call, CatalogRule, DecisionService, LimitAnswer, Target, Value, Values};

/// The most descriptors of a request, as many as a decision has limits.
const MAX_DESCRIPTORS: usize = 128;
/// The least time of a step, also where the request has none left.
const MIN_DEADLINE: Duration = Duration::from_millis(1);

/// A descriptor with a limit.
pub(super) struct Matched<'t, 'r> {
    /// Its place in the request.
    pub(super) index: usize,
    pub(super) rule: &'t EnvoyRule,
    pub(super) values: Vec<&'r str>,
    pub(super) call: Call<'r>,
    pub(super) action: Action,
    /// The permits that must be free for it.
    pub(super) need: u32,
    /// Its rule is off, for keys without an override.
    pub(super) is_off: bool,
}

/// What a descriptor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
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

/// Finds the rules of the descriptors, without those that another one replaces.
pub(super) fn match_descriptors<'t, 'r>(
    service: &DecisionService,
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
    let catalog = service.catalog();
    let mut matched = Vec::with_capacity(found.len());
    for (index, found) in found.into_iter().enumerate() {
        let Some(Match { rule, values }) = found.filter(|_| !is_replaced[index]) else { continue };
        let in_force = catalog.rule(rule.name()).map_err(|problem| status::of_problem(&problem))?;
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

impl<'r> Matched<'_, 'r> {
    /// Its call, with the time that is left until the end of the request.
    pub(super) fn call_until(&self, end: Option<Instant>) -> Call<'r> {
        let left = |end: Instant| end.saturating_duration_since(Instant::now()).max(MIN_DEADLINE);
        Call { deadline: end.map(left), ..self.call.clone() }
    }

    pub(super) fn held_key(&self) -> HeldKey {
        HeldKey { rule: self.rule.name().into(), values: self.values.iter().map(|value| Box::from(*value)).collect() }
    }

    /// Returns whether a limit of a denial denies this descriptor.
    pub(super) fn lacks(&self, limit: &LimitAnswer<'_>) -> bool {
        limit.remaining < self.need
    }
}

impl Action {
    pub(super) fn is_alone(self) -> bool {
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
pub(super) fn check(request: &RateLimitRequest) -> Result<(), Status> {
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
