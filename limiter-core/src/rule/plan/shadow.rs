//! The rules of a call that are in shadow mode. They decide what they would do, and deny nothing.
//!
//! The permits of a counter of the enforced rules are taken by those. Requests of shadow rules for it are observed in
//! their decision. All other requests take permits, in a decision for each rule. Rules that share a counter make one
//! decision, in which the call counts once.

use std::mem;
use std::time::Duration;

use super::rule_requests::RuleRequests;
use super::rule_use::OwnPolicy;
use crate::request::sharing::{self, SameCounter};
use crate::request::{CallOptions, Request, check_number_of};
use crate::rule::CallDefaults;
use crate::{Algorithm, Error};

/// The decisions of a call's rules in shadow mode.
#[derive(Default, PartialEq)]
pub(crate) struct Shadow<'a>(pub(crate) Vec<Trial<'a>>);

/// The requests of one rule in shadow mode, or of several that share a counter.
#[derive(Default, PartialEq)]
pub(crate) struct Trial<'a> {
    /// Requests on counters of the enforced rules. They come in the enforced decision.
    pub(crate) observed: RuleRequests<'a>,
    /// Requests on all other counters.
    pub(crate) taking: RuleRequests<'a>,
    pub(crate) options: CallOptions,
}

impl<'a> Shadow<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The requests of one rule, to which the caller adds. All keys of a rule make one decision.
    pub(super) fn requests_of(&mut self, rule_index: usize) -> &mut RuleRequests<'a> {
        let is_same = |trial: &Trial<'_>| trial.taking.rule_indices.first() == Some(&rule_index);
        let index = self.0.iter().position(is_same).unwrap_or(self.0.len());
        if index == self.0.len() {
            self.0.push(Trial::default());
        }
        &mut self.0[index].taking
    }

    /// The requests of the first rule, if it has any and not too many.
    pub(crate) fn first(&self) -> Option<&RuleRequests<'a>> {
        let first = &self.for_decision(0).ok()?.0.first()?.taking;
        (!first.requests.is_empty()).then_some(first)
    }

    /// Removes and returns the requests for slots.
    pub(super) fn split_off_slots(&mut self) -> RuleRequests<'a> {
        let slots = self.0.iter_mut().map(|trial| trial.taking.split_off_if(super::is_for_slots));
        let slots = slots.reduce(RuleRequests::then).unwrap_or_default();
        self.0.retain(|trial| !trial.taking.requests.is_empty());
        slots
    }

    /// Separates the requests on counters of the enforced ones, and joins the rules that share another counter. Does nothing
    /// for too many, of which no store decides.
    pub(super) fn share_counters(&mut self, enforced: &[Request<'a>], same_counter: SameCounter) {
        if self.for_decision(0).is_err() {
            return;
        }
        for Trial { observed, taking, .. } in &mut self.0 {
            let is_enforced = |request: &Request<'_>| enforced.iter().any(|other| same_counter(request, other));
            *observed = taking.split_off_if(is_enforced);
        }
        for trial in mem::take(&mut self.0) {
            let shares = |other: &Trial<'_>| {
                let mut requests = other.taking.requests.iter();
                requests.any(|one| trial.taking.requests.iter().any(|other| same_counter(one, other)))
            };
            match self.0.iter().position(shares) {
                None => self.0.push(trial),
                Some(first) => {
                    let (sharing, others): (Vec<_>, Vec<_>) = self.0.drain(first..).partition(shares);
                    self.0.extend(sharing.into_iter().chain([trial]).reduce(Trial::join));
                    self.0.extend(others);
                }
            }
        }
        self.0.iter_mut().for_each(|trial| sharing::remove_unshared_lanes(&mut trial.taking.requests));
    }

    /// Resolves the settings of each decision. The policies of callers do not apply to rules in shadow mode.
    pub(super) fn resolve(&mut self, defaults: &CallDefaults) {
        self.0.iter_mut().for_each(|trial| trial.options = trial.taking.options(OwnPolicy::NONE, defaults));
    }

    /// Returns it if the decision about so many enforced requests, and each other one, has room for its requests.
    ///
    /// # Errors
    /// A decision would have too many. Rules in shadow mode must not stop a call, so that they decide nothing then.
    pub(crate) fn for_decision(&self, enforced: usize) -> Result<&Self, Error> {
        let observed: usize = self.0.iter().map(|trial| trial.observed.requests.len()).sum();
        if observed > 0 {
            check_number_of(enforced + observed)?;
        }
        self.0.iter().try_for_each(|trial| check_number_of(trial.taking.requests.len()))?;
        Ok(self)
    }

    /// The enforced requests with those that the store observes in their decision. `None` if there are none, or if a
    /// bucket gives the call its turn, which it does for one request alone.
    pub(crate) fn with_observed(&self, enforced: &[Request<'a>], max_wait: Duration) -> Option<Box<[Request<'a>]>> {
        if self.0.iter().all(|trial| trial.observed.requests.is_empty()) {
            return None;
        }
        let waits_for_turn =
            !max_wait.is_zero() && matches!(enforced, [request] if request.limit.algorithm() == Algorithm::LeakyBucket);
        // The script reports an observed request in the decision of others, and neither reads nor begins its block.
        let observe = |request: &Request<'a>| Request { role: request.role.observed(), block: None, ..*request };
        let observed = self.0.iter().flat_map(|trial| trial.observed.requests.iter().map(observe));
        (!waits_for_turn).then(|| enforced.iter().copied().chain(observed).collect())
    }
}

impl Trial<'_> {
    fn join(self, next: Self) -> Self {
        let (observed, taking) = (self.observed.then(next.observed), self.taking.then(next.taking));
        Self { observed, taking, ..self }
    }
}
