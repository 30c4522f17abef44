//! The levels of settings: sets of rules in their order of precedence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crate::key::KeyTemplate;
use crate::rule::customer_plan::{CustomerPlanOfRule, CustomerPlansOfRule};
use crate::rule::level_rule::LevelRule;
use crate::rule::level_warnings::{SetName, Unmatched, UnmatchedCalls};
use crate::rule::override_index::InvalidOverride;
use crate::rule::resolved_rule::{LEVELS, ResolvedRule};
use crate::rule::settings::DefaultSettings;
use crate::rule::{Catalog, KeyText, Mode, Origin, Rule, RuleSet, Settings, TextPlace};
use crate::{Error, ErrorKind};

/// The most overrides of a set of rules.
const MAX_OVERRIDES: usize = 100_000;

/// A set of rules that has been checked, with its overrides indexed.
#[derive(Debug, Default)]
pub(crate) struct RuleLevel {
    defaults: Rule,
    rules: BTreeMap<String, Arc<LevelRule>>,
    /// The plans of customers.
    plans: BTreeMap<String, Arc<Rule>>,
    is_strict: bool,
    /// The file of the set.
    file: Option<Arc<Path>>,
}

impl RuleLevel {
    /// Checks a set of rules, compares it with the program's, and indexes its overrides.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for settings that contradict each other, are out of their range or match no key.
    pub(crate) fn new(set: RuleSet, catalog: &Catalog<'_>) -> Result<Self, Error> {
        set.check()?;
        catalog.check(&set)?;
        Self::indexed(set, |name, rule| {
            if catalog.knows_key_of(name, &rule) {
                LevelRule::new(name, Arc::clone(&rule), catalog.template(name, &rule))
                    .map_err(|error| catalog.explain(name, &rule, error))
            } else {
                Ok(LevelRule::of_unknown_key(name, rule))
            }
        })
    }

    /// Checks a shared set of rules and indexes its overrides. Other programs may have its rules, so those of this one make
    /// none of them an error.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for settings that contradict each other or are out of their range, and for overrides that
    /// match no key of the rule, if the rule states its key or its name is one.
    pub(crate) fn of_shared(set: RuleSet) -> Result<Self, Error> {
        set.check()?;
        Self::indexed(set, |name, rule| {
            let template = rule.key.clone().or_else(|| name.contains('{').then(|| name.to_owned()));
            match template {
                Some(template) => LevelRule::new(name, rule, Some(&template)),
                None => Ok(LevelRule::of_unknown_key(name, rule)),
            }
        })
    }

    fn indexed(set: RuleSet, index: impl Fn(&str, Arc<Rule>) -> Result<LevelRule, Error>) -> Result<Self, Error> {
        let overrides: usize = set.rules.values().map(|rule| rule.overrides.len()).sum();
        if overrides > MAX_OVERRIDES {
            let problem = format!(
                "`overriding` must be used at most {MAX_OVERRIDES} times, got {overrides}: use overrides that match parts"
            );
            return Err(Error::new(ErrorKind::Config, problem));
        }
        let RuleSet { defaults, rules, plans, is_strict, file, .. } = set;
        let level_rule = |(name, rule): (String, Rule)| {
            let rule = index(&name, Arc::new(rule))?;
            Ok::<_, Error>((name, Arc::new(rule)))
        };
        let plans = plans.into_iter().map(|(name, plan)| (name, Arc::new(plan))).collect();
        Ok(Self {
            defaults,
            rules: rules.into_iter().map(level_rule).collect::<Result<_, _>>()?,
            plans,
            is_strict,
            file,
        })
    }

    /// Logs the stated keys that no function and no layer of the program has, of the rules that one is known of.
    pub(crate) fn warn_of_keys(&self, origin: Origin, catalog: &Catalog<'_>) {
        for (name, rule) in &self.rules {
            let stated = rule.rule.key.as_deref();
            if let Some(problem) = stated.and_then(|key| catalog.stated_key_problem(name, key, KeyText::Unknown)) {
                self.name(origin).warn_of_key(rule.to_log(name), &problem);
            }
        }
    }

    /// The name of the set, whose origin is this.
    pub(crate) fn name(&self, origin: Origin) -> SetName<'_> {
        SetName { origin, file: self.file.as_deref() }
    }

    fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.plans.is_empty() && self.defaults.is_empty()
    }
}

/// The sets of rules of a limiter. A setting comes from the first level that has it, in the order of the fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleLevels {
    runtime: Arc<RuleLevel>,
    shared: Arc<RuleLevel>,
    file: Arc<RuleLevel>,
    builder: Arc<RuleLevel>,
    /// The limiter follows shared rules, and has not read any yet.
    is_shared_unread: bool,
}

impl RuleLevels {
    /// The levels with their origins, from the highest to the lowest.
    fn iter(&self) -> impl Iterator<Item = (Origin, &RuleLevel)> + Clone {
        let Self { runtime, shared, file, builder, .. } = self;
        let levels: [_; LEVELS] =
            [(Origin::Runtime, runtime), (Origin::Shared, shared), (Origin::File, file), (Origin::Builder, builder)];
        levels.into_iter().map(|(origin, level)| (origin, &**level))
    }

    /// The file of the set of an origin, if it has one.
    pub(crate) fn file_of(&self, origin: Origin) -> Option<&Path> {
        self.iter().find(|(of, _)| *of == origin).and_then(|(_, level)| level.file.as_deref())
    }

    /// Records that the limiter follows shared rules, which it has not read yet.
    pub(crate) fn expect_shared(&mut self) {
        self.is_shared_unread = true;
    }

    /// Replaces the level of an origin, and returns the one before.
    pub(crate) fn set(&mut self, origin: Origin, level: Arc<RuleLevel>) -> Arc<RuleLevel> {
        let place = match origin {
            Origin::Runtime => &mut self.runtime,
            Origin::Shared => {
                self.is_shared_unread = false;
                &mut self.shared
            }
            Origin::File => &mut self.file,
            Origin::Attribute | Origin::Builder => &mut self.builder,
        };
        std::mem::replace(place, level)
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.is_shared_unread && self.iter().all(|(_, level)| level.is_empty())
    }

    /// Checks the levels together, and without the one that is set at run time, which can be removed at any time.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for settings of several levels that contradict each other, for an override of parts that
    /// the key lacks, and, if any level is strict, for a rule of `configured` limits without a limit.
    pub(crate) fn check<'c>(&self, catalog: impl Fn() -> Catalog<'c>) -> Result<(), Error> {
        Self { runtime: Arc::default(), ..self.clone() }.check_together(&catalog)?;
        if self.runtime.is_empty() && !self.runtime.is_strict { Ok(()) } else { self.check_together(&catalog) }
    }

    fn check_together<'c>(&self, catalog: impl Fn() -> Catalog<'c>) -> Result<(), Error> {
        self.names().into_iter().try_for_each(|name| self.check_rule(name))?;
        let is_strict = self.iter().any(|(_, level)| level.is_strict);
        let needs_key = |(_, level): (Origin, &RuleLevel)| {
            level.rules.iter().any(|(name, rule)| {
                let stated = self.key_of(name);
                (stated.is_some() && rule.has_overrides()) || !rule.belongs_to(stated)
            })
        };
        // Most levels need no list of the program's rules.
        if !is_strict && !self.iter().any(needs_key) {
            return Ok(());
        }
        let catalog = catalog();
        self.check_keys(&catalog)?;
        // The shared rules may have the limits.
        if is_strict && !self.is_shared_unread { self.check_limits(&catalog) } else { Ok(()) }
    }

    /// Checks the settings that a rule has from all levels, without overrides and with each of them.
    fn check_rule(&self, name: &str) -> Result<(), Error> {
        let mut keys = self.levels_of(name).filter_map(|(origin, rule)| Some((origin, rule.rule.key.as_deref()?)));
        if let Some((origin, key)) = keys.next()
            && let Some((other_origin, other)) = keys.find(|(_, other)| *other != key)
        {
            let problem = format!(
                "`key` of the rule `{name}` must be the same in all sets of rules, got `{key}` ({origin}) and `{other}` \
                 ({other_origin}): remove one"
            );
            return Err(Error::new(ErrorKind::Config, problem));
        }
        if self.levels_of(name).count() < 2 && !self.has_plans(name) {
            return Ok(()); // The level itself is checked already.
        }
        let resolved = self.resolve(name, KeyText::Unknown, None);
        let check = |settings: &Settings, place: TextPlace, described: &str| {
            let described = format!("{described} `{name}` with all sets of rules");
            settings
                .to_rule()
                .check(&described)
                .map_err(|error| Error::new(ErrorKind::Config, place.locate(&error.to_string())))
        };
        let place = resolved.levels.first().map(|(_, rule)| rule.rule.place).unwrap_or_default();
        check(resolved.settings(), place, "the rule")?;
        for plan in resolved.plans.iter().flat_map(|plans| plans.iter()) {
            let place = plan.tables.iter().flatten().next().map(|table| table.place).unwrap_or_default();
            check(&plan.settings, place, &format!("the plan `{}` of the rule", plan.name()))?;
        }
        for (index, (_, rule)) in resolved.levels.iter().enumerate() {
            let mut found = [None; LEVELS];
            for (number, (_, override_rule)) in (1..).zip(&rule.rule.overrides) {
                found[index] = Some(override_rule);
                let settings = resolved.compose(&found, &[]);
                if settings.to_rule().contradiction().is_some() {
                    check(&settings, override_rule.place, &format!("override {number} of the rule"))?;
                }
            }
        }
        Ok(())
    }

    /// Checks the overrides of rules whose key their own level does not know.
    fn check_keys(&self, catalog: &Catalog<'_>) -> Result<(), Error> {
        let as_written = |template: &str| KeyTemplate::parse(template).map(KeyTemplate::without_kinds);
        // The keys of shared rules may be those of other programs.
        for (_, level) in self.iter().filter(|(origin, _)| *origin != Origin::Shared) {
            for (name, rule) in &level.rules {
                let stated = self.key_of(name);
                if let Some(key) = stated.and_then(as_written) {
                    // A level with this key knows the values that its parts have.
                    let mut templates = catalog.service_templates(name);
                    templates.retain(|template| as_written(template).as_ref() == Some(&key));
                    rule.check_forms(name, &templates)?;
                }
                if rule.belongs_to(stated) {
                    continue;
                }
                if stated.is_none() && catalog.learns_key_of(name) {
                    rule.check_forms(name, &catalog.service_templates(name))?;
                } else if let Some(key) = stated.or_else(|| catalog.knows_sites().then_some(name)) {
                    LevelRule::new(name, Arc::clone(&rule.rule), Some(key)).map_err(|error| match stated {
                        Some(_) => error,
                        None => catalog.explain(name, &rule.rule, error),
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Checks that each rule of `configured` limits has one.
    fn check_limits(&self, catalog: &Catalog<'_>) -> Result<(), Error> {
        let of_plans =
            |name: &str| self.has_plans(name) && self.resolve(name, KeyText::Unknown, None).has_limits_of_plans();
        let has_limits =
            |name: &str| self.levels_of(name).any(|(_, rule)| !rule.rule.limits.is_empty()) || of_plans(name);
        let without_limit = catalog.without_limit(has_limits);
        let Some((name, site)) = without_limit.first_key_value() else { return Ok(()) };
        let problem = format!(
            "`limit` of the rule `{name}` must be set with `strict`, got none for `configured` in {} ({}:{}): write one",
            site.function(),
            site.file(),
            site.line()
        );
        Err(Error::new(ErrorKind::Config, problem))
    }

    /// The key that a set of rules states for a rule.
    pub(crate) fn key_of(&self, name: &str) -> Option<&str> {
        self.levels_of(name).find_map(|(_, rule)| rule.rule.key.as_deref())
    }

    /// Returns whether a rule may have other limits for some keys, or for calls with a plan.
    pub(crate) fn has_limits_for_some_calls(&self, name: &str) -> bool {
        let has_limits = |rule: &Rule| !rule.limits.is_empty() || rule.algorithm.is_some();
        self.has_plans(name)
            || self
                .levels_of(name)
                .any(|(_, rule)| rule.rule.overrides.iter().any(|(_, settings)| has_limits(settings)))
    }

    /// Returns whether a rule has settings of its own.
    pub(crate) fn have(&self, name: &str) -> bool {
        self.levels_of(name).next().is_some()
    }

    /// Returns whether a rule names plans of customers.
    fn has_plans(&self, name: &str) -> bool {
        self.levels_of(name).any(|(_, rule)| rule.rule.plans.is_some())
    }

    /// The names of all rules with settings.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.iter().flat_map(|(_, level)| level.rules.keys().map(String::as_str)).collect()
    }

    /// Composes the settings of a rule, for functions with this key. `switch` is the value of `RATE_LIMITED_MODE`.
    pub(crate) fn resolve(&self, name: &str, key: KeyText, switch: Option<Mode>) -> ResolvedRule {
        self.resolve_with((name, key), switch, |_, _, _| ())
    }

    /// Composes the settings of a rule for calls with this key, and logs what does not suit them: overrides that match
    /// none of them, and another key that a set states.
    pub(crate) fn resolve_for_calls<'c>(
        &self,
        (name, key): (&str, KeyText),
        switch: Option<Mode>,
        catalog: impl Fn() -> Catalog<'c>,
    ) -> ResolvedRule {
        let is_key_unknown = key == KeyText::Unknown && self.key_of(name).is_none();
        let is_other = |stated: &&str| !matches!(key, KeyText::Template(template) if template == *stated);
        for (origin, level) in self.iter() {
            let Some(rule) = level.rules.get(name) else { continue };
            if is_key_unknown {
                let unmatched = Unmatched { calls: UnmatchedCalls::UnknownKey, overrides: rule.unmatched() };
                level.name(origin).warn_of_unmatched(rule.to_log(name), unmatched);
            } else if key != KeyText::Unknown
                && let Some(stated) = rule.rule.key.as_deref().filter(is_other)
                && let Some(problem) = catalog().stated_key_problem(name, stated, key)
            {
                level.name(origin).warn_of_key(rule.to_log(name), &problem);
            }
        }
        self.resolve_with((name, key), switch, |origin, rule, mut overrides| {
            // Overrides of other parts than those of a form of keys may match another form.
            if matches!(key, KeyText::Form(_)) {
                overrides.retain(|invalid| invalid.is_by_value);
            }
            if let Some((_, level)) = self.iter().find(|(other, _)| *other == origin) {
                let unmatched = Unmatched { calls: UnmatchedCalls::KnownKey, overrides: &overrides };
                level.name(origin).warn_of_unmatched(rule.to_log(name), unmatched);
            }
        })
    }

    /// Composes the settings of a rule. `on_unmatched` gets the overrides of each level that match no key of the calls.
    fn resolve_with(
        &self,
        (name, key): (&str, KeyText),
        switch: Option<Mode>,
        on_unmatched: impl Fn(Origin, &LevelRule, Vec<InvalidOverride>),
    ) -> ResolvedRule {
        let template = match key {
            KeyText::Template(template) | KeyText::Form(template) => Some(Some(template)),
            KeyText::Expression => Some(None),
            KeyText::Unknown => self.key_of(name).map(Some),
        };
        let level = |(origin, rule): (Origin, &Arc<LevelRule>)| match template {
            Some(template) => {
                let (for_key, unmatched) = rule.for_template(template);
                on_unmatched(origin, rule, unmatched);
                (origin, for_key)
            }
            None => (origin, Arc::clone(rule)),
        };
        let named_by = self.levels_of(name).map(|(_, rule)| rule).find(|rule| rule.rule.plans.is_some());
        let levels = match named_by.and_then(|rule| rule.rule.plans.as_deref()) {
            None => self.levels_of(name).map(level).collect(),
            // A level may have the table of a plan and not the rule.
            Some(plans) => {
                let with_rule = |(origin, in_level): (Origin, &RuleLevel)| match in_level.rules.get(name) {
                    Some(rule) => Some(level((origin, rule))),
                    None if plans.iter().any(|plan| in_level.plans.contains_key(plan)) => {
                        Some((origin, Arc::new(LevelRule::of_unknown_key(name, Arc::default()))))
                    }
                    None => None,
                };
                self.iter().filter_map(with_rule).collect()
            }
        };
        let mut defaults = DefaultSettings::default();
        self.iter().for_each(|(_, level)| defaults.add(&level.defaults));
        let is_shared_unread = self.is_shared_unread;
        let resolved = ResolvedRule::new(levels, defaults, switch, is_shared_unread);
        match named_by {
            None => resolved,
            Some(named_by) => {
                let plans = self.plans_of_rule(name, named_by, &resolved);
                resolved.with_plans(plans)
            }
        }
    }

    /// Composes the settings of each plan that a rule names, in the level that names them.
    fn plans_of_rule(&self, name: &str, named_by: &Arc<LevelRule>, resolved: &ResolvedRule) -> CustomerPlansOfRule {
        let table = |plan: &str, origin: Origin| {
            let level = self.iter().find(|(other, _)| *other == origin);
            level.and_then(|(_, level)| level.plans.get(plan)).cloned()
        };
        let plan = |plan: &String| {
            let tables = resolved.levels.iter().map(|(origin, _)| table(plan, *origin)).collect();
            CustomerPlanOfRule::new(plan, tables, |tables| resolved.compose(&[], tables))
        };
        let plans = named_by.rule.plans.iter().flatten().map(plan).collect();
        CustomerPlansOfRule::new(name, Arc::clone(named_by), plans)
    }

    /// Returns what the log has about the plans of customers in the set of an origin: those that no rule names, and those of
    /// a rule whose limits have other counters than one another.
    pub(crate) fn problems_of_plans(&self, origin: Origin) -> Vec<String> {
        let Some((_, level)) = self.iter().find(|(other, _)| *other == origin) else { return Vec::new() };
        let names = self.iter().flat_map(|(_, level)| level.rules.values()).filter_map(|rule| rule.rule.plans.as_ref());
        let named: BTreeSet<_> = names.flatten().map(String::as_str).collect();
        let unnamed = level.plans.iter().filter(|(plan, _)| !named.contains(plan.as_str()));
        let unnamed = unnamed.map(|(plan, table)| {
            let problem =
                format!("the plan `{plan}` has no effect, because no rule names it: add it to the `plans` of a rule");
            table.place.locate(&problem)
        });
        let is_of_level = |name: &&str| {
            let names = self.levels_of(name).find_map(|(_, rule)| rule.rule.plans.as_ref());
            let has_table = |plan: &String| level.plans.contains_key(plan);
            names.is_some_and(|plans| level.rules.contains_key(*name) || plans.iter().any(has_table))
        };
        let new_counts = self.names().into_iter().filter(is_of_level).filter_map(|name| {
            let resolved = self.resolve(name, KeyText::Unknown, None);
            let (one, other) = resolved.plans.as_ref()?.with_other_counters()?;
            let place = level.rules.get(name).map(|rule| rule.rule.place).unwrap_or_default();
            let [of_one, of_other] = [one, other].map(CustomerPlanOfRule::described);
            Some(place.locate(&format!(
                "a change between the plans {of_one} and {of_other} of the rule `{name}` starts new counts, because their \
                 limits have other windows or algorithms: what was used does not count"
            )))
        });
        unnamed.chain(new_counts).collect()
    }

    fn levels_of(&self, name: &str) -> impl Iterator<Item = (Origin, &Arc<LevelRule>)> {
        self.iter().filter_map(move |(origin, level)| Some((origin, level.rules.get(name)?)))
    }
}

/// Checks a text of shared rules without those of any program.
///
/// # Errors
/// [`ErrorKind::Config`] with the line and the column of the mistake.
#[cfg(all(feature = "rules", feature = "redis"))]
pub(crate) fn check_shared_text(toml: &str) -> Result<(), Error> {
    let level = Arc::new(RuleLevel::of_shared(RuleSet::from_shared_text(toml)?)?);
    let levels = RuleLevels { shared: level, ..RuleLevels::default() };
    levels.names().into_iter().try_for_each(|name| levels.check_rule(name))
}
