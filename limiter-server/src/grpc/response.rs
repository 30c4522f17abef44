//! The answer to a request: the status of each descriptor, and the fields of the decisive one.

use std::collections::BTreeMap;

use rate_limited::{Source, Usage};

use super::matching::{Action, Matched};
use super::messages::{Code, DescriptorStatus, RateLimitRequest, RateLimitResponse};
use super::status;
use crate::service::{Answer, LimitAnswer};

/// What has become of the descriptors.
#[derive(Default)]
pub(super) struct Outcomes {
    /// The answer about those that were decided together.
    pub(super) together: Option<Answer>,
    /// The answers about slots and about those decided alone, by their places in the request.
    pub(super) answers: BTreeMap<usize, Answer>,
    /// Those that were charged or given back.
    pub(super) usages: BTreeMap<usize, Option<Usage>>,
}

impl Outcomes {
    /// The denial of the request, if there is one: that of slots, else of those decided alone, else of those decided together.
    pub(super) fn denial(&self, matched: &[Matched<'_, '_>]) -> Option<&Answer> {
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

/// Writes the answer.
pub(super) fn response(
    request: &RateLimitRequest,
    matched: &[Matched<'_, '_>],
    outcomes: &Outcomes,
) -> RateLimitResponse {
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
