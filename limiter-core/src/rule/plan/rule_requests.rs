//! The requests of rules that decide together, with the settings that the rules share.

use super::rule_use::{OwnLimits, OwnPolicy, RuleUse};
use crate::block::BlockRef;
use crate::decision::DecisionContext;
use crate::limit::LimitOrNearest;
use crate::request::{CallOptions, CallSettings, Request, Role};
use crate::rule::{CallDefaults, PackedConflict, Settings, packed_problem};
use crate::{Denied, Error, ErrorKind, Limit};

/// Requests of one decision, with the rule of each.
#[derive(Default, PartialEq)]
pub(crate) struct RuleRequests<'a> {
    pub(crate) requests: Vec<Request<'a>>,
    names: Vec<&'static str>,
    pub(super) rule_indices: Vec<usize>,
    settings: SharedSettings,
}

/// The settings that rules share in a decision, before precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SharedSettings {
    of_rules: CallSettings,
    /// Those of rules that set none, in any level or attribute.
    of_defaults: CallSettings,
}

/// What the settings of a rule change in each of its requests.
#[derive(Clone, Copy, Default)]
pub(super) struct RequestTerms {
    is_postpaid: bool,
    block: Option<BlockRef>,
}

impl SharedSettings {
    #[inline]
    pub(super) fn new(rule: &RuleUse<'_, '_>, settings: &Settings) -> Self {
        let Settings { call, default_call: of_defaults, .. } = *settings;
        // The shortest deadline of a call may be that of the defaults.
        let deadline = call.deadline.or(of_defaults.deadline);
        Self { of_rules: CallSettings { deadline, ..call.or(rule.own) }, of_defaults }
    }

    /// Returns them with those of the next rules.
    fn then(self, next: Self) -> Self {
        Self { of_rules: self.of_rules.then(next.of_rules), of_defaults: self.of_defaults.or(next.of_defaults) }
    }

    /// Returns those of a rule that adds no request.
    fn without_request(self) -> Self {
        Self { of_rules: self.of_rules.without_request(), ..self }
    }

    #[inline]
    pub(super) fn options(self, own: OwnPolicy, defaults: &CallDefaults) -> CallOptions {
        let Self { of_rules, of_defaults } = self;
        let on_error = own.resolve(of_rules.on_error, of_defaults.on_error, defaults.options.on_error);
        let options = CallOptions { on_error, ..of_rules.or(of_defaults).resolve(&defaults.options) };
        match own.max_deadline {
            None => options,
            Some(most) => {
                CallOptions { deadline: Some(options.deadline.unwrap_or(defaults.deadline).min(most)), ..options }
            }
        }
    }
}

impl RuleRequests<'_> {
    pub(crate) fn context(&self) -> DecisionContext<'_> {
        DecisionContext::new(&self.names, &self.requests)
    }

    pub(crate) fn rule_of(&self, denied: &Denied) -> usize {
        self.rule_indices.get(denied.request_index()).copied().unwrap_or(0)
    }

    pub(super) fn options(&self, own: OwnPolicy, defaults: &CallDefaults) -> CallOptions {
        self.settings.options(own, defaults)
    }

    /// Removes and returns some of the requests.
    pub(super) fn split_off_if(&mut self, is_split: impl Fn(&Request<'_>) -> bool) -> Self {
        let mut split = Self { settings: self.settings, ..Self::default() };
        let mut index = 0;
        while let Some(request) = self.requests.get(index).copied() {
            if is_split(&request) {
                self.requests.remove(index);
                split.requests.push(request);
                split.names.push(self.names.remove(index));
                split.rule_indices.push(self.rule_indices.remove(index));
            } else {
                index += 1;
            }
        }
        split
    }

    /// Returns them with those of the next rules.
    pub(super) fn then(mut self, next: Self) -> Self {
        self.requests.extend(next.requests);
        self.names.extend(next.names);
        self.rule_indices.extend(next.rule_indices);
        Self { settings: self.settings.then(next.settings), ..self }
    }
}

impl<'a> RuleRequests<'a> {
    pub(super) fn push(
        &mut self,
        rule: &RuleUse<'a, '_>,
        limit: Limit,
        cost: u32,
        limit_index: usize,
        RequestTerms { is_postpaid, block }: RequestTerms,
    ) {
        let role = Role::of_limit(rule.rule_index, limit_index);
        // A slot is denied until a call ends, which is no reason for a block.
        let block = block.filter(|_| !limit.is_concurrent());
        let request = Request { role, block, ..Request::new(rule.key, limit, cost) };
        self.requests.push(match is_postpaid {
            // A call without a slot would not be limited.
            true if limit.is_concurrent() => Request { cost: cost.max(1), ..request },
            true => request.postpaid(),
            false => request,
        });
        self.names.push(rule.name);
        self.rule_indices.push(rule.rule_index);
    }

    /// Adds the requests of a rule: one for each of its limits.
    ///
    /// # Errors
    /// The first invalid limit. The requests then have the nearest valid limit in its place.
    pub(super) fn add(&mut self, rule: &RuleUse<'a, '_>, settings: &Settings) -> Result<(), Error> {
        let (requests, mut invalid) = (self.requests.len(), None);
        let terms = RequestTerms { is_postpaid: rule.is_postpaid(settings), block: rule.block(settings) };
        let mut add = |limit: LimitOrNearest, cost, limit_index| {
            let limit = limit.unwrap_or_else(|(error, nearest)| {
                invalid.get_or_insert(error);
                nearest
            });
            self.push(rule, limit, cost, limit_index, terms);
        };
        let apply = |limit: Limit, own| {
            let applied = settings.apply(limit, own).map_err(|error| (error, limit))?;
            // The block may be that of an attribute.
            if terms.block.is_some() && applied.packed().is_some() {
                Err((Error::new(ErrorKind::InvalidLimit, packed_problem(PackedConflict::Block)), limit))
            } else {
                Ok(applied)
            }
        };
        match settings.limits() {
            [] => {
                let is_direct = matches!(rule.limits, OwnLimits::Items(_));
                for (index, (own, cost)) in rule.limits().enumerate() {
                    let limit_index = if is_direct { 0 } else { index };
                    add(own.and_then(|own| apply(own, None)), cost, limit_index);
                }
            }
            limits => {
                for (index, limit) in limits.iter().enumerate() {
                    let own = limit.example_among(rule.valid_limits());
                    add(apply(*limit, own), rule.cost, index);
                }
            }
        }
        let of_rule = SharedSettings::new(rule, settings);
        let has_request = self.requests.len() > requests;
        self.settings = self.settings.then(if has_request { of_rule } else { of_rule.without_request() });
        invalid.map_or(Ok(()), Err)
    }
}
