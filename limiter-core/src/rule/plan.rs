//! The plan of a call: what is decided about it, after the settings of its rules were read once.
//!
//! Nothing else reads the settings of rules for a decision. A plan has final values: what a rule sets comes before what
//! its caller sets, then come the defaults of all rules, and then the limiter's. A call that waits makes another plan
//! when its rules change.

use std::{iter, mem};

use crate::block::BlockRef;
use crate::request::{CallOptions, Request, check_number_of, sharing};
use crate::rule::{CallDefaults, ResolvedRule, RuleRef, RuleTable, Settings, log_in_call};
use crate::{Error, Key, Limit, Mode, OnError, TARGET};

mod rule_use;
mod rule_requests;
mod shadow;

pub(crate) use rule_requests::RuleRequests;
use rule_requests::{RequestTerms, SharedSettings};
pub(crate) use rule_use::{OwnLimits, OwnPolicy, RuleUse};
pub(crate) use shadow::{Shadow, Trial};

/// What is decided about a call.
pub(crate) struct Plan<'a> {
    /// The state of the rules that it was read in.
    pub(crate) generation: u64,
    pub(crate) options: CallOptions,
    pub(crate) requests: Planned<'a>,
}

/// The requests of a call, by the modes of its rules.
pub(crate) enum Planned<'a> {
    /// One request decides, as in most calls.
    Single {
        rule_index: usize,
        name: [&'static str; 1],
        request: [Request<'a>; 1],
    },
    /// The only rule is off.
    Off {
        name: &'static str,
        limit: Limit,
    },
    Rules(Box<PlannedRules<'a>>),
}

/// The requests of all rules of a call.
///
/// The rules that are enforced decide first, as one decision. If it allows the call, those in shadow mode decide. A rule
/// that is off adds nothing.
#[derive(Default)]
pub(crate) struct PlannedRules<'a> {
    pub(crate) enforced: RuleRequests<'a>,
    pub(crate) shadow: Shadow<'a>,
    /// The requests for slots of the rules that are enforced, and of those in shadow mode. No store of permits decides them.
    pub(crate) slots: RuleRequests<'a>,
    pub(crate) shadow_slots: RuleRequests<'a>,
    /// The first rule that denies every call.
    pub(crate) denying: Option<RuleRequests<'a>>,
    /// The first enforced rule with an invalid limit.
    pub(crate) invalid: Option<(usize, Error)>,
    /// The first rule, which describes a call without any request.
    pub(crate) first: Option<(&'static str, Limit)>,
    /// The enforced rules that have no limit.
    pub(crate) unlimited: Vec<UnlimitedRule>,
}

/// A rule that has no limit.
#[derive(PartialEq)]
pub(crate) struct UnlimitedRule {
    pub(crate) rule_index: usize,
    pub(crate) name: &'static str,
    /// The policy of its own settings.
    of_settings: Option<OnError>,
    /// The policy for the failure to read its limit.
    pub(crate) on_error: OnError,
    /// The limit may be in shared rules, which the limiter has not read yet.
    pub(crate) is_shared_unread: bool,
}

impl UnlimitedRule {
    /// Resolves its policy in a call with this one. A policy of the rule's own settings is not replaced by that of another
    /// rule of the call.
    fn resolve(&mut self, of_call: OnError) {
        // A rule does not make a call return errors that returns none otherwise.
        let own = OwnPolicy { returns_errors: of_call == OnError::Raise, ..OwnPolicy::NONE };
        self.on_error = own.resolve(self.of_settings, None, of_call);
    }
}

impl Plan<'_> {
    /// Returns it as the plan of a charge: its postpaid requests count the cost of their key.
    pub(crate) fn charging(mut self, cost_of: impl Fn(&Key) -> u32) -> Self {
        if let Planned::Rules(planned) = &mut self.requests {
            let PlannedRules { enforced, shadow, .. } = &mut **planned;
            let of_shadow = shadow.0.iter_mut().flat_map(|trial| [&mut trial.observed, &mut trial.taking]);
            for request in iter::once(enforced).chain(of_shadow).flat_map(|requests| &mut requests.requests) {
                *request = request.charged(cost_of(request.key));
            }
        }
        self
    }
}

impl RuleTable {
    /// Returns the limit of a plain call, which needs no plan: its only rule has one valid limit, and no rule has settings.
    /// So this limit decides, under the options of the caller and the limiter.
    #[inline]
    pub(crate) fn plain_limit<'l>(&self, own_limit: Option<&'l Limit>) -> Option<&'l Limit> {
        own_limit.filter(|limit| !self.has_settings() && !limit.is_concurrent())
    }

    /// Plans a call under rules, in one state of the rules: if they change meanwhile, all are read again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`](crate::ErrorKind::InvalidLimit) for too many requests. No policy and no handler makes
    /// those an admission.
    pub(crate) fn plan<'a, 'l, R: RuleRef>(
        &self,
        own: OwnPolicy,
        rules: &(impl Iterator<Item = (RuleUse<'a, 'l>, R)> + Clone),
    ) -> Result<Plan<'a>, Error>
    where
        'a: 'l,
    {
        loop {
            let generation = self.generation();
            let mut first_two = rules.clone();
            let single = match (first_two.next(), first_two.next()) {
                (Some((rule, reference)), None) => self.plan_single(own, &rule, &reference),
                _ => None,
            };
            let (options, requests) = match single {
                Some(single) => single,
                None => self.plan_rules(own, rules.clone()),
            };
            if self.generation() == generation {
                if let Planned::Rules(planned) = &requests {
                    planned.check_size()?;
                }
                return Ok(Plan { generation, options, requests });
            }
        }
    }

    /// Plans a call under one rule, if one request decides about it or the rule is off. `None` leaves it to
    /// [`plan`](Self::plan), also for rules that change meanwhile.
    #[inline]
    pub(crate) fn plan_one<'a>(
        &self,
        own: OwnPolicy,
        rule: &RuleUse<'a, '_>,
        reference: &impl RuleRef,
    ) -> Option<Plan<'a>> {
        let generation = self.generation();
        let (options, requests) = self.plan_single(own, rule, reference)?;
        (self.generation() == generation).then_some(Plan { generation, options, requests })
    }

    /// Plans a call under one rule with one limit. `None` if more than one request decides, or if there is something to
    /// log.
    #[inline]
    fn plan_single<'a>(
        &self,
        own: OwnPolicy,
        rule: &RuleUse<'a, '_>,
        reference: &impl RuleRef,
    ) -> Option<(CallOptions, Planned<'a>)> {
        let own_limit = rule.lone_limit()?;
        if rule.own.postpaid == Some(true) {
            return None;
        }
        let (single, unused) = if self.has_settings() {
            self.with_rule(reference, |resolved| {
                let settings = &*rule.settings(resolved);
                match (settings.mode(), settings.single_limit(own_limit)) {
                    (Mode::Off, _) => {
                        let off = Planned::Off { name: rule.name, limit: rule.described_limit(settings) };
                        (Some((CallOptions::default(), off)), None)
                    }
                    (Mode::Enforce, Some(limit))
                        if !limit.is_concurrent()
                            && !rule.is_postpaid(settings)
                            && (limit.packed().is_none() || rule.block(settings).is_none())
                            && (!settings.ignores_burst_of(limit) || resolved.is_logged()) =>
                    {
                        self.single(own, rule, limit, settings)
                    }
                    _ => (None, None),
                }
            })
        } else {
            let own_limit = own_limit.filter(|limit| !limit.is_concurrent());
            let single = own_limit.map(|limit| self.single(own, rule, limit, &Settings::default()));
            single.unwrap_or((None, None))
        };
        // A log layer may be rate limited itself, so it runs while no settings are borrowed.
        if let Some(problem) = unused {
            self.warn_of_unused_setting(rule.name, problem);
        }
        single
    }

    /// The plan of one request that decides, and the problem of a setting that its limit cannot use.
    #[inline]
    fn single<'a>(
        &self,
        own: OwnPolicy,
        rule: &RuleUse<'a, '_>,
        limit: Limit,
        settings: &Settings,
    ) -> (Option<(CallOptions, Planned<'a>)>, Option<&'static str>) {
        let unused = self.unused_setting(rule, settings, iter::once(limit));
        let options = SharedSettings::new(rule, settings).options(own, self.defaults());
        let block = rule.block(settings);
        let request = [Request { block, ..Request::new(rule.key, limit, rule.cost) }];
        let single = Planned::Single { rule_index: rule.rule_index, name: [rule.name], request };
        (Some((options, single)), unused)
    }

    fn plan_rules<'a, 'l, R: RuleRef>(
        &self,
        own: OwnPolicy,
        rules: impl Iterator<Item = (RuleUse<'a, 'l>, R)>,
    ) -> (CallOptions, Planned<'a>)
    where
        'a: 'l,
    {
        let mut planned = PlannedRules::default();
        for (rule, reference) in rules {
            let mistakes = self.with_rule(&reference, |resolved| self.add_rule(&mut planned, &rule, resolved));
            if let Some(problem) = mistakes.unused {
                self.warn_of_unused_setting(rule.name, problem);
            }
            if let Some(invalid) = mistakes.unusable {
                log_unusable_settings(rule.name, invalid);
            }
        }
        planned.finish(own, self.defaults())
    }

    fn add_rule<'a>(
        &self,
        planned: &mut PlannedRules<'a>,
        rule: &RuleUse<'a, '_>,
        resolved: &ResolvedRule,
    ) -> Mistakes {
        let settings = &*rule.settings(resolved);
        let invalid = planned.add(rule, settings).err();
        let unused = self.unused_setting(rule, settings, settings.applied(rule.valid_limits()));
        let is_unusable = settings.ignores_burst(rule.valid_limits()) || invalid.is_some();
        Mistakes { unused, unusable: (is_unusable && resolved.log_once()).then_some(invalid) }
    }

    /// Plans a direct call without a rule.
    pub(crate) fn plan_direct<'a>(&self, name: &'static str, requests: &[Request<'a>]) -> Plan<'a> {
        let (generation, defaults) = (self.generation(), self.defaults());
        let mut settings = Settings::default();
        settings.switch_mode(self.switch());
        let (options, requests) = match (requests, self.switch()) {
            (&[request], None) if !request.limit.is_concurrent() => {
                let options = SharedSettings::default().options(OwnPolicy::NONE, defaults);
                (options, Planned::Single { rule_index: 0, name: [name], request: [request] })
            }
            // Only with a switch, which the settings have.
            _ => {
                let mut planned = PlannedRules::default();
                for &Request { key, limit, cost, role, block: _ } in requests {
                    let items = [(key, &limit, cost)];
                    let rule = RuleUse::direct(0, name, key, &items).with_postpaid(role.is_postpaid());
                    // Without limits or algorithms in the settings no limit is invalid.
                    let _ = planned.add(&rule, &settings);
                }
                planned.finish(OwnPolicy::NONE, defaults)
            }
        };
        Plan { generation, options, requests }
    }

    /// Returns the problem of a setting that a rule demands and its calls or its limits cannot use. A limiter in memory
    /// leases nothing.
    #[inline]
    fn unused_setting(
        &self,
        rule: &RuleUse<'_, '_>,
        settings: &Settings,
        limits: impl Iterator<Item = Limit> + Clone,
    ) -> Option<&'static str> {
        let of_windows = settings.unused_by_whole_limits(limits.clone()).or_else(|| rule.unused_postpaid(settings));
        let of_rule = settings.call.or(rule.own);
        if let (Some(_), Some(true)) = (of_rule.block, of_rule.leases) {
            return of_windows
                .or(Some("has leases in vain: its `block` needs each call in the store, so remove `leases`"));
        }
        of_windows.or_else(|| if self.defaults().is_guarded { of_rule.unused_by(limits) } else { None })
    }
}

/// The mistakes of a rule's settings, which are logged while none are borrowed: a log layer may be rate limited itself.
struct Mistakes {
    /// The problem of a setting that the rule demands in vain.
    unused: Option<&'static str>,
    /// A limit cannot use the settings, for the first time: the error, or an ignored burst.
    unusable: Option<Option<Error>>,
}

impl<'a> PlannedRules<'a> {
    /// Adds a rule with its settings.
    ///
    /// # Errors
    /// The settings do not suit the limit. Enforced, the call then fails. In shadow mode the rule decides nothing.
    fn add(&mut self, rule: &RuleUse<'a, '_>, settings: &Settings) -> Result<(), Error> {
        self.first.get_or_insert_with(|| (rule.name, rule.described_limit(settings)));
        let is_unlimited = settings.limits().is_empty() && rule.limits().next().is_none();
        if is_unlimited && matches!(settings.mode(), Mode::Enforce) {
            self.unlimited.push(UnlimitedRule {
                rule_index: rule.rule_index,
                name: rule.name,
                of_settings: settings.call.on_error,
                on_error: OnError::default(),
                is_shared_unread: settings.is_shared_unread,
            });
        }
        match settings.mode() {
            Mode::Off => {}
            Mode::Deny => {
                self.denying.get_or_insert_with(|| {
                    let mut denying = RuleRequests::default();
                    denying.push(rule, rule.described_limit(settings), 1, 0, RequestTerms::default());
                    denying
                });
            }
            Mode::Shadow => return self.shadow.requests_of(rule.rule_index).add(rule, settings),
            Mode::Enforce => {
                if let Err(error) = self.enforced.add(rule, settings) {
                    self.invalid.get_or_insert_with(|| (rule.rule_index, error.clone()));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Lets the requests of rules that use one counter take permits of it together, and resolves the settings.
    fn finish(mut self, own: OwnPolicy, defaults: &CallDefaults) -> (CallOptions, Planned<'a>) {
        // No store decides about too many.
        if self.check_size().is_ok() {
            self.slots = self.enforced.split_off_if(is_for_slots);
            self.shadow_slots = self.shadow.split_off_slots();
            self.shadow.share_counters(&self.enforced.requests, defaults.same_counter());
            sharing::remove_unshared_lanes(&mut self.enforced.requests);
        }
        self.shadow.resolve(defaults);
        let options = self.enforced.options(own, defaults);
        self.unlimited.iter_mut().for_each(|rule| rule.resolve(options.on_error));
        (options, Planned::Rules(Box::new(self)))
    }

    /// Returns whether a call must hold slots until it ends.
    pub(crate) fn has_slots(&self) -> bool {
        !self.slots.requests.is_empty() || !self.shadow_slots.requests.is_empty()
    }

    /// Checks the number of requests that decide about the call, before they do.
    fn check_size(&self) -> Result<(), Error> {
        check_number_of(self.enforced.requests.len())
    }
}

fn is_for_slots(request: &Request<'_>) -> bool {
    request.limit.is_concurrent()
}

/// The requests of a call for slots. They are decided before the others.
#[derive(PartialEq)]
pub(crate) struct SlotRequests<'a> {
    pub(crate) enforced: RuleRequests<'a>,
    pub(crate) shadow: RuleRequests<'a>,
    /// No other request decides about the call.
    pub(crate) are_alone: bool,
}

impl<'a> Plan<'a> {
    /// Removes the requests for slots; `None` if there are none.
    pub(crate) fn take_slots(&mut self) -> Option<SlotRequests<'a>> {
        let Planned::Rules(planned) = &mut self.requests else { return None };
        if !planned.has_slots() {
            return None;
        }
        let (enforced, shadow) = (mem::take(&mut planned.slots), mem::take(&mut planned.shadow_slots));
        let are_alone = planned.enforced.requests.is_empty() && planned.denying.is_none() && planned.invalid.is_none();
        Some(SlotRequests { enforced, shadow, are_alone })
    }
}

impl Plan<'_> {
    /// Returns whether only the first of the call's rules can deny it.
    pub(crate) fn is_of_first_rule(&self) -> bool {
        matches!(self.requests, Planned::Single { rule_index: 0, .. } | Planned::Off { .. })
    }

    /// Returns the first rule whose denial blocks a key.
    pub(crate) fn blocking_rule(&self) -> Option<&'static str> {
        let enforced = match &self.requests {
            Planned::Single { request, .. } => request,
            Planned::Off { .. } => &[][..],
            Planned::Rules(rules) => &rules.enforced.requests,
        };
        enforced.iter().find_map(|request| request.block).map(BlockRef::rule)
    }

    /// Returns whether the call is decided as by another plan of it, in whatever state of the rules.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.options == other.options
            && match (&self.requests, &other.requests) {
                (Planned::Rules(rules), Planned::Rules(other)) => rules.is_same(other),
                (Planned::Single { request: one, .. }, Planned::Single { request: other, .. }) => one == other,
                (Planned::Single { request, .. }, Planned::Rules(rules))
                | (Planned::Rules(rules), Planned::Single { request, .. }) => rules.is_single(request),
                (Planned::Off { .. }, Planned::Off { .. }) => true,
                _ => false,
            }
    }
}

impl PlannedRules<'_> {
    fn is_same(&self, other: &Self) -> bool {
        let Self { enforced, shadow, slots, shadow_slots, denying, invalid, first: _, unlimited } = self;
        (enforced, shadow, unlimited) == (&other.enforced, &other.shadow, &other.unlimited)
            && (slots, shadow_slots) == (&other.slots, &other.shadow_slots)
            && (denying.is_none(), invalid.is_none()) == (other.denying.is_none(), other.invalid.is_none())
    }

    /// Returns whether this request alone decides.
    fn is_single(&self, request: &[Request<'_>]) -> bool {
        let Self { enforced, shadow, slots: _, shadow_slots: _, denying, invalid, first: _, unlimited } = self;
        let has_others =
            self.has_slots() || !shadow.is_empty() || denying.is_some() || invalid.is_some() || !unlimited.is_empty();
        !has_others && enforced.requests == request
    }
}

/// Logs that settings of a rule do not suit its limit. They are checked with those of other sets, but an attribute's
/// limit is known at its calls alone.
#[cold]
fn log_unusable_settings(rule: &'static str, invalid: Option<Error>) {
    log_in_call(|| match invalid {
        Some(error) => tracing::error!(
            target: TARGET,
            rule,
            %error,
            "the settings of a rule do not suit its limit: its calls fail, and the failure policy decides"
        ),
        None => tracing::warn!(
            target: TARGET,
            rule,
            "a rule has a burst, and a limit of an algorithm that ignores it: set a bucket as the `algorithm`, or remove it"
        ),
    });
}

#[cfg(all(test, not(limiter_loom)))]
mod tests;
