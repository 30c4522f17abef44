//! The rules that the program has: those of its annotated functions and of its services, and those that it declares.

use std::collections::{BTreeMap, BTreeSet};

use limiter_syntax::{nearest, with_same_start};

use crate::key::KeyTemplate;
use crate::rule::level_warnings::ImpossibleCost;
use crate::rule::message_text::list;
use crate::rule::override_index::without_kinds;
use crate::rule::{KeyText, Mode, RegisteredRule, Rule, RuleSet, is_interned, log_apart};
use crate::{Error, ErrorKind, Site, TARGET, sites};

/// The most unknown names that a message lists.
const MAX_LISTED: usize = 20;

/// The rules of the program, to compare sets of rules with.
#[derive(Debug)]
pub(crate) struct Catalog<'d> {
    /// Empty if they are unknown.
    sites: Vec<Site>,
    /// Those of the layers that are made already.
    services: Vec<RegisteredRule>,
    declared: &'d BTreeSet<String>,
}

impl<'d> Catalog<'d> {
    /// Creates the catalog of this program, with the names that its builder declares.
    pub(crate) fn new(declared: &'d BTreeSet<String>) -> Self {
        Self { sites: sites(), services: RegisteredRule::all(), declared }
    }

    /// The names of all rules that are known.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        let declared = self.declared.iter().map(String::as_str);
        let services = self.services.iter().map(|rule| rule.name);
        self.sites.iter().map(|site| site.rule()).chain(services).chain(declared).collect()
    }

    /// The limits in the source of the rule with this name, as text.
    pub(crate) fn limits_of(&self, name: &str) -> &'static [&'static str] {
        let of_service = || self.services_of(name).map(|rule| rule.limits).next();
        self.sites_of(name).map(Site::limits).next().or_else(of_service).unwrap_or_default()
    }

    fn services_of<'c>(&'c self, name: &'c str) -> impl Iterator<Item = &'c RegisteredRule> {
        self.services.iter().filter(move |rule| rule.name == name)
    }

    /// Returns whether the keys of a rule become known at its first call: it is declared, or it is a service's.
    pub(crate) fn learns_key_of(&self, name: &str) -> bool {
        self.sites_of(name).next().is_none()
            && (self.declared.contains(name) || self.services_of(name).next().is_some())
    }

    /// The templates of the keys of a service's rule. Empty if no layer with this name was added to a service yet.
    pub(crate) fn service_templates(&self, name: &str) -> Vec<&'static str> {
        self.services_of(name).flat_map(|rule| rule.forms).map(|form| form.template).collect()
    }

    /// Returns the message for a stated key that no function and no layer with this name has. `called` is the key of a
    /// call. `None` if one has it, or if no key of the rule is known.
    pub(crate) fn stated_key_problem(&self, name: &str, stated: &str, called: KeyText) -> Option<String> {
        const MAX_KEYS: usize = 3;
        let called = if let KeyText::Template(key) = called { Some(key) } else { None };
        let templates = self.service_templates(name);
        let known = || templates.iter().copied().chain(self.sites_of(name).filter_map(Site::key)).chain(called);
        let as_written = |key: &str| KeyTemplate::parse(key).map(KeyTemplate::without_kinds);
        let parsed = as_written(stated);
        if known().next().is_none() || known().any(|key| key == stated || parsed.is_some() && as_written(key) == parsed)
        {
            return None;
        }
        // The last form of a service's keys is that of requests without their key.
        let of_services =
            self.services_of(name).flat_map(|rule| rule.forms.split_last().map_or(&[][..], |(_, forms)| forms));
        let keys = of_services.map(|form| form.template).chain(self.sites_of(name).filter_map(Site::key)).chain(called);
        let keys: BTreeSet<_> = keys.map(|key| without_kinds(key).into_owned()).collect();
        let keys: Vec<_> = keys.iter().take(MAX_KEYS).map(|key| format!("`{key}`")).collect();
        let keys = keys.join(" or ");
        Some(format!(
            "`key` of the rule `{name}` must be that of its function or layer, got `{stated}`: write {keys}, or remove it"
        ))
    }

    /// The rule of the annotated functions with this name.
    pub(crate) fn sites_of<'c>(&'c self, name: &'c str) -> impl Iterator<Item = &'c Site> + Clone {
        self.sites.iter().filter(move |site| site.rule() == name)
    }

    /// The key to which the overrides of a rule belong: that of its text, or of its function, or else its name.
    pub(crate) fn template<'c>(&'c self, name: &'c str, rule: &'c Rule) -> Option<&'c str> {
        match (&rule.key, self.key_of(name)) {
            (Some(key), _) => Some(key),
            (None, KeyText::Template(key) | KeyText::Form(key)) => Some(key),
            (None, KeyText::Expression) => None,
            (None, KeyText::Unknown) => Some(name),
        }
    }

    /// Returns whether the key of a rule is known: a function has it, or the rule states it, or its name is a template.
    pub(crate) fn knows_key_of(&self, name: &str, rule: &Rule) -> bool {
        rule.key.is_some() || name.contains('{') || self.sites_of(name).next().is_some()
    }

    /// Returns whether the rules of the program's functions are known.
    pub(crate) fn knows_sites(&self) -> bool {
        !self.sites.is_empty()
    }

    fn key_of(&self, name: &str) -> KeyText {
        match self.sites_of(name).next() {
            Some(site) => site.key().map_or(KeyText::Expression, KeyText::Template),
            None => KeyText::Unknown,
        }
    }

    /// Compares a set of rules with the program's. A rule without a function is a warning, or an error if the set is
    /// strict.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for such a rule in a strict set, and for a key that differs from the function's.
    pub(crate) fn check(&self, set: &RuleSet) -> Result<(), Error> {
        for (name, rule) in &set.rules {
            if let Some(key) = &rule.key
                && let Some(other) = self.sites_of(name).find(|site| site.key() != Some(key))
            {
                let problem = format!(
                    "`key` of the rule `{name}` must be that of its function {} ({}:{}), got `{key}`: write that one, or remove it",
                    other.function(),
                    other.file(),
                    other.line()
                );
                return Err(config_error(problem, rule));
            }
        }
        set.rules.keys().for_each(|name| self.warn_of_two_limits(name));
        if self.sites.is_empty() {
            return Ok(());
        }
        let known = self.names();
        let unknown: Vec<_> =
            set.rules.iter().filter(|(name, rule)| rule.key.is_none() && !known.contains(name.as_str())).collect();
        let Some((_, first)) = unknown.first() else { return Ok(()) };
        let described = |(name, rule): &(&String, &Rule)| match rule.place.line() {
            line if line > 0 && !set.is_strict => format!("`{name}` in line {line}{}", self.hint(name, &known)),
            _ => format!("`{name}`{}", self.hint(name, &known)),
        };
        let mut names: Vec<_> = unknown.iter().take(MAX_LISTED).map(described).collect();
        if unknown.len() > MAX_LISTED {
            names.push(format!("and {} more", unknown.len() - MAX_LISTED));
        }
        let names = names.join(", ");
        if set.is_strict {
            let problem = format!(
                "`strict` rules must each have a function, got {names}: write the names of functions, \
                 make the layer before the limiter, or declare them by `key` in the rule or by `Builder::declare`"
            );
            return Err(config_error(problem, first));
        }
        let file = set.file.as_ref().map(|file| file.display().to_string());
        log_apart(move || {
            tracing::warn!(
                target: TARGET,
                rules = names,
                file,
                "there are settings of rules that no annotated function has: correct the name, or declare it by `key` \
                 in the rule or by `Builder::declare`"
            );
        });
        Ok(())
    }

    /// Returns the error of a rule's overrides. The cause is the name, if no function has it.
    pub(crate) fn explain(&self, name: &str, rule: &Rule, error: Error) -> Error {
        let known = self.names();
        if self.sites.is_empty() || rule.key.is_some() || known.contains(name) {
            return error;
        }
        config_error(unknown_rule_problem(name, &self.hint(name, &known), &error), rule)
    }

    /// Checks that the program has a rule with this name, if all of its rules are known: its functions', or a call with these
    /// rules that is none of a function.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for another name.
    pub(crate) fn check_name(&self, name: &str, of_call: &BTreeSet<&str>) -> Result<(), Error> {
        let known: BTreeSet<_> = self.names().union(of_call).copied().collect();
        let may_be_of_function = self.sites.is_empty() && !of_call.iter().all(|rule| is_interned(rule));
        if may_be_of_function || known.contains(name) {
            return Ok(());
        }
        let hint = self.hint(name, &known);
        let problem = format!(
            "`rule` must be the name of a rule, got `{name}`{hint}: write one that the decision or the program has"
        );
        Err(Error::new(ErrorKind::Config, problem))
    }

    /// Returns the known names that are probably meant by an unknown one, in parentheses: those of functions with this
    /// name, or else the nearest, or else those that begin with the same words. Empty without one.
    fn hint(&self, name: &str, known: &BTreeSet<&str>) -> String {
        const MAX_RULES: usize = 3;
        let of_function = self.sites.iter().filter(|site| site.function().rsplit("::").next() == Some(name));
        let rules: BTreeSet<_> = of_function.map(Site::rule).collect();
        match (rules.into_iter().take(MAX_RULES).collect::<Vec<_>>().as_slice(), nearest(name, known.iter().copied())) {
            ([], None) => {
                let similar = with_same_start(name, known.iter().copied());
                match similar.get(..similar.len().min(MAX_RULES)).unwrap_or_default() {
                    [] => String::new(),
                    [similar] => format!(" (is it `{similar}`?)"),
                    several => format!(" (is it one of {}?)", list(several)),
                }
            }
            ([], Some(nearest)) => format!(" (is it `{nearest}`?)"),
            ([rule], _) => format!(" (is it `{rule}`, the rule of that function?)"),
            (rules, _) => format!(" (is it one of {}, the rules of such functions?)", list(rules)),
        }
    }

    /// Logs that functions under a name have different limits: settings apply to all of them.
    fn warn_of_two_limits(&self, name: &str) {
        let mut sites = self.sites_of(name);
        let Some(first) = sites.next().copied() else { return };
        let Some(other) = sites.find(|site| site.limits() != first.limits()).copied() else { return };
        let place = |site: Site| format!("{}:{} ({})", site.file(), site.line(), site.limits().join(", "));
        log_apart(move || {
            tracing::warn!(
                target: TARGET,
                rule = first.rule(),
                one = place(first),
                other = place(other),
                "settings apply to two functions with different limits under one name"
            );
        });
    }

    /// Returns the first function of each rule whose cost the rule's limits can never grant, in the set or in one of its
    /// overrides. All calls of the function would be denied.
    pub(crate) fn impossible_costs(&self, set: &RuleSet) -> Vec<ImpossibleCost> {
        let of_rule = |(name, rule): (&String, &Rule)| {
            let site = self.sites_of(name).max_by_key(|site| site.cost()).copied()?;
            let cost = site.cost()?;
            let of_overrides = rule.overrides.iter().map(|(_, settings)| (settings, "override"));
            let mut settings = [(rule, "rule")].into_iter().chain(of_overrides);
            let is_decided = |settings: &Rule| matches!(settings.mode.or(rule.mode), Some(Mode::Off | Mode::Deny));
            settings.find_map(|(settings, part)| {
                let permits = settings.most_permits(rule).filter(|permits| *permits < cost && !is_decided(settings));
                let line = Some(settings.place.line()).filter(|line| *line > 0);
                Some(ImpossibleCost { site, cost, permits: permits?, part, line })
            })
        };
        set.rules.iter().filter_map(of_rule).collect()
    }

    /// The rules of `configured` limits that none of these names has limits for, each with its function.
    pub(crate) fn without_limit(&self, has_limits: impl Fn(&str) -> bool) -> BTreeMap<&str, &Site> {
        let is_configured = |site: &&Site| site.limits() == ["configured"] && !has_limits(site.rule());
        self.sites.iter().filter(is_configured).map(|site| (site.rule(), site)).collect()
    }
}

/// Returns the message for overrides of a rule that no function has. `error` is that of the overrides.
fn unknown_rule_problem(name: &str, hint: &str, error: &Error) -> String {
    format!(
        "the rule `{name}` must be that of a function, got a name that none has{hint}: write the attribute's `name`, or its \
         key as written there, or declare the name of a layer by `key` in the rule or by `Builder::declare`; {error}"
    )
}

/// Returns the error of a rule, with its place in the text.
fn config_error(problem: impl Into<String>, rule: &Rule) -> Error {
    Error::new(ErrorKind::Config, rule.place.locate(&problem.into()))
}
