//! The key and the limits that a command line names.

use std::time::Duration;

use rate_limited::{Decision, Key, Limit, Limiter, Mode, Named, Rule, RuleInForce, SharedRules, Source};
use toml_edit::DocumentMut;

use super::counts::{CountReports, Counts};
use super::holding::LossReports;
use super::slots::Slots;
use crate::arguments::{AlgorithmName, LimitArguments};
use crate::bounded_input::{self, MAX_FILE_BYTES};
use crate::connection::Connection;
use crate::duration_text;
use crate::failure::Failure;
use crate::output::visible;
use crate::suggestion;
use limiter_inspect::{Fleet, OverrideKeys, overrides, rules_alone};

/// A key under a rule, with a limiter that has the rule.
pub(super) struct Target {
    pub(super) key: Key,
    /// The limit for a rule that sets none.
    pub(super) default_limit: Limit,
    pub(super) limiter: Limiter,
    /// The reports that slots of this process are lost.
    pub(super) losses: LossReports,
    rule: String,
    /// The plan of the customer. Empty for none.
    plan: String,
    reports: CountReports,
}

/// The rule that has the limits of the command line.
const OWN_RULE: &str = "check";

impl Target {
    /// Connects a limiter with the limits of the command line, or with the rules that it names.
    pub(super) async fn new(key: Key, arguments: &LimitArguments, connection: &Connection) -> Result<Self, Failure> {
        if let Some(rule) = &arguments.rule {
            return Self::of_rule(key, rule, arguments, connection).await;
        }
        let limits = arguments.limit.iter().map(|limit| with_algorithm(*limit, arguments));
        let limits = limits.collect::<Result<Vec<_>, _>>()?;
        // Limits of one window have one counter, which would count the call twice.
        let mut windows: Vec<_> = limits.iter().map(Limit::window).collect();
        windows.sort();
        if let Some(twice) = windows.windows(2).find(|windows| windows[0] == windows[1]) {
            if twice[0].is_zero() {
                return Err(Failure::usage(
                    "`--limit` must count calls at once in one limit, got several: remove the larger ones",
                ));
            }
            return Err(Failure::usage(format!(
                "`--limit` must have another window each time, got {} twice: remove the larger limit",
                duration_text::write(twice[0])
            )));
        }
        let default_limit = limits.first().copied().unwrap_or_else(unlimited);
        let rule = limits.into_iter().fold(Rule::new(), Rule::limit);
        let (reports, losses) = (CountReports::default(), LossReports::default());
        let builder = losses.add_to(reports.add_to(connection.builder()));
        let limiter = builder.rule(OWN_RULE, rule).connect().await?;
        Ok(Self { key, default_limit, rule: OWN_RULE.to_owned(), plan: String::new(), limiter, losses, reports })
    }

    async fn of_rule(
        key: Key,
        rule: &str,
        arguments: &LimitArguments,
        connection: &Connection,
    ) -> Result<Self, Failure> {
        let default_limit = with_algorithm(unlimited(), arguments)?;
        let (reports, losses) = (CountReports::default(), LossReports::default());
        let builder = || losses.add_to(reports.add_to(connection.builder()));
        let connect = async || builder().connect().await;
        // A file is read before the store is used: its mistakes are found without one.
        let (mut limiter, text, rules, place) = match &arguments.rules {
            Some(file) => {
                let name = bounded_input::name(file);
                let text = bounded_input::read_text(file, MAX_FILE_BYTES)?;
                let rules = rules_alone(&text).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
                (connect().await?, text, rules, name)
            }
            None => {
                let limiter = connect().await?;
                let shared = SharedRules::new(&limiter).read().await?;
                let rules = rules_alone(&shared.toml).map_err(|error| {
                    Failure::usage(format!("version {} of the shared rules cannot be read: {error}", shared.version))
                })?;
                (limiter, shared.toml, rules, "the shared rules".to_owned())
            }
        };
        limiter.set_rules(rules)?;
        let has_limits = |found: &RuleInForce| !found.limits().is_empty() || !found.plans().is_empty();
        let is_known = limiter.rules().iter().any(|found| found.name() == rule && has_limits(found));
        // The source has them, and so have the limiters that live. A user without their permissions writes the limit.
        let fleet = if arguments.rules.is_none() && !is_known { Fleet::read(&limiter).await.ok() } else { None };
        if let Some(live) = fleet.as_ref().and_then(|fleet| fleet.rule(rule)?.in_most()) {
            limiter = builder().rule(rule, live).connect().await?;
            limiter.set_rules(rules_alone(&text)?)?;
        }
        let in_force = limiter.rules();
        let Some(found) = in_force.iter().find(|candidate| candidate.name() == rule) else {
            let live = fleet.iter().flat_map(Fleet::rules).map(|(name, _)| name);
            let remedy = match suggestion::nearest(rule, in_force.iter().map(|rule| rule.name()).chain(live)) {
                Some(name) => format!("write `{name}`"),
                None => "`limiter rules list` shows the rules".to_owned(),
            };
            return Err(Failure::usage(format!("`--rule` must be a rule of {place}, got `{rule}`: {remedy}")));
        };
        if let Some(part) = unknown_part(&text, rule, &key) {
            return Err(without_key(rule, &place, &part));
        }
        let (rule, plan) = (rule.to_owned(), arguments.plan.clone().unwrap_or_default());
        if !plan.is_empty() && !found.plans().contains(&plan) {
            return Err(unknown_plan(&plan, found));
        }
        let target = Self { key, default_limit, rule, plan, limiter: limiter.clone(), losses, reports };
        let needs_limit = found.limits().is_empty() && !matches!(found.mode(), Mode::Off | Mode::Deny);
        // An override for this key may have a limit, or the plan.
        let has_variants = found.overrides() > 0 || !found.plans().is_empty();
        if needs_limit && (!has_variants || target.is_without_limit().await?) {
            return Err(match found.plans() {
                plans if plans.is_empty() || !target.plan.is_empty() => without_limit(&target.rule, &place),
                plans => without_plan(&target.rule, plans),
            });
        }
        Ok(target)
    }

    /// The limiter's calls under the rule.
    pub(super) fn rule(&self) -> Named<'_> {
        self.limiter.named(&self.rule).plan(&self.plan)
    }

    /// Reads the counts of the key for all limits of the rule. Nothing is taken.
    pub(super) async fn counts(&self) -> Result<Counts, Failure> {
        Ok(self.reports.read(&self.rule(), &self.key, &self.default_limit).await?)
    }

    /// Returns the limit of concurrent calls that applies to the key.
    pub(super) fn concurrent_limit(&self) -> Result<Option<Limit>, Failure> {
        let limits = self.rule().limits_for(&self.key, &self.default_limit)?;
        Ok(limits.into_iter().filter(Limit::is_concurrent).min_by_key(Limit::max))
    }

    /// Reads the slots of the key, if it has a limit of concurrent calls.
    pub(super) async fn slots(&self) -> Result<Option<Slots>, Failure> {
        let Some(limit) = self.concurrent_limit()? else { return Ok(None) };
        Ok(Some(Slots::new(limit, self.limiter.slot_holders(&self.key).await?)))
    }

    /// Checks that the key has a limit without the source. A count belongs to its window and its algorithm.
    ///
    /// # Errors
    /// A wrong usage for a rule whose limits are in the source alone.
    pub(super) async fn require_limit(&self) -> Result<(), Failure> {
        let in_force = self.limiter.rules();
        let Some(found) = in_force.iter().find(|candidate| candidate.name() == self.rule) else { return Ok(()) };
        if !found.limits().is_empty() {
            return Ok(());
        }
        // An override for this key may have a limit.
        let decision = self.rule().peek(&self.key, &self.default_limit).await?;
        if limit_and_source(&decision).0.unpacked() == self.default_limit {
            return Err(without_limit(&self.rule, "the rules"));
        }
        Ok(())
    }

    async fn is_without_limit(&self) -> Result<bool, Failure> {
        let decision = self.rule().peek(&self.key, &self.default_limit).await?;
        let (limit, source) = limit_and_source(&decision);
        Ok(limit.unpacked() == self.default_limit && source != Source::Mode)
    }
}

fn limit_and_source(decision: &Decision) -> (Limit, Source) {
    match decision {
        Decision::Allowed(allowed) => (allowed.limit(), allowed.source()),
        Decision::Denied(denied) => (denied.limit(), denied.source()),
    }
}

fn without_limit(rule: &str, place: &str) -> Failure {
    Failure::usage(format!(
        "`{rule}` must have a limit in {place}, got none for this key: write `--limit` with the limit of the source in \
         place of `--rule`"
    ))
}

fn unknown_plan(plan: &str, rule: &RuleInForce) -> Failure {
    let (name, plans) = (visible(rule.name()), rule.plans());
    let remedy = match suggestion::nearest(plan, plans.iter().map(String::as_str)) {
        Some(plan) => format!("write `{}`", visible(plan)),
        None if plans.is_empty() => "remove it, because the rule names none".to_owned(),
        None => format!("write one of {}", list_of_plans(plans)),
    };
    Failure::usage(format!("`--plan` must be a plan that the rule `{name}` names, got `{}`: {remedy}", visible(plan)))
}

fn without_plan(rule: &str, plans: &[String]) -> Failure {
    let (rule, plans) = (visible(rule), list_of_plans(plans));
    Failure::usage(format!(
        "`--plan` must be written for the rule `{rule}`, which has no limit of its own, got none: write one of {plans}"
    ))
}

fn list_of_plans(plans: &[String]) -> String {
    plans.iter().map(|plan| format!("`{}`", visible(plan))).collect::<Vec<_>>().join(", ")
}

/// Returns a part by which an override may match the key, if the rule does not state where its keys have their parts.
fn unknown_part(text: &str, rule: &str, key: &Key) -> Option<String> {
    let document = text.parse::<DocumentMut>().ok()?;
    let settings = document.get("rules")?.as_table_like()?.get(rule)?.as_table_like()?;
    let encoded = key.encoded();
    let has_parts = encoded.contains(['@', '+']);
    if !has_parts || rule.contains('{') || settings.get("key").is_some() {
        return None;
    }
    let all: Vec<_> = overrides(settings).into_iter().filter_map(OverrideKeys::of).collect();
    // An override of the key itself comes before those by parts.
    let is_of_key = |keys: &OverrideKeys| matches!(keys, OverrideKeys::Key(of_key) if *of_key == encoded);
    if all.iter().any(is_of_key) {
        return None;
    }
    all.into_iter().find_map(|keys| match keys {
        OverrideKeys::Parts(parts) => parts.into_iter().next().map(|(part, _)| part),
        OverrideKeys::Key(_) => None,
    })
}

fn without_key(rule: &str, place: &str, part: &str) -> Failure {
    let (rule, part) = (visible(rule), visible(part));
    Failure::usage(format!(
        "`key` of the rule `{rule}` must be in {place}, because its overrides match by `{part}`, got none: write it as \
         the function or the layer has it, such as `key = \"{rule}:{part}:{{{part}}}\"`, or write `--limit` with the \
         limit of this key in place of `--rule`"
    ))
}

fn with_algorithm(limit: Limit, arguments: &LimitArguments) -> Result<Limit, Failure> {
    if limit.is_concurrent() {
        let given = arguments.algorithm.map(|_| "--algorithm").or(arguments.burst.map(|_| "--burst"));
        let given = given.filter(|_| arguments.limit.iter().all(Limit::is_concurrent));
        return given.map_or(Ok(limit), |option| {
            Err(Failure::usage(format!("`{option}` must be left out for `{limit}`, got one: remove it")))
        });
    }
    let name = arguments.algorithm.unwrap_or(AlgorithmName::SlidingWindow);
    let limit = limit.with_algorithm(name.algorithm());
    match arguments.burst {
        None => Ok(limit),
        Some(0) => {
            Err(Failure::usage("`--burst` must be at least 1, got 0: leave it out for the permits of the limit"))
        }
        Some(burst) => limit.with_burst(burst).map_err(|_| {
            Failure::usage(format!(
                "`--burst` must be left out for {}, got {burst}: write `--algorithm token_bucket` or remove it",
                name.name()
            ))
        }),
    }
}

/// Returns the limit that stands for none: a rule of the text replaces it.
pub(super) fn unlimited() -> Limit {
    let longest = Limit::new(u32::MAX, Limit::MAX_WINDOW);
    longest.or_else(|_| Limit::new(1, Duration::from_secs(1))).expect("one permit a second is a limit")
}
