//! The configuration of Envoy's rate limit service: its YAML as it is, as rules of the limiter.
//!
//! Each descriptor with a limit is a rule, below the rules of the file and the shared rules, which may change it.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use rate_limited::{Limiter, RuleSet};

mod domain;
mod fields;
mod files;
mod follow;
mod mistake;
mod rate_limit;
mod rule;
#[cfg(test)]
mod tests;
mod yaml;

use domain::Domain;
pub(crate) use domain::Match;
use files::{ReadFile, Signature};
pub(crate) use follow::follow_files;
pub(crate) use mistake::Mistake;
pub(crate) use rate_limit::UNITS;
pub(crate) use rule::EnvoyRule;

/// The most rules of all files: as many as decisions have names for.
const MAX_RULES: usize = 10_000;

/// The domains of the configuration's files.
#[derive(Debug, Default)]
pub(crate) struct EnvoyDomains {
    by_name: HashMap<Box<str>, (Domain, Arc<Path>)>,
}

impl EnvoyDomains {
    /// Reads files, and the files of directories.
    ///
    /// # Errors
    /// All mistakes of all files.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Self, Vec<Mistake>> {
        let (files, mistakes) = files::read(paths);
        Self::of_files(files, mistakes)
    }

    fn of_files(files: Vec<ReadFile>, mut mistakes: Vec<Mistake>) -> Result<Self, Vec<Mistake>> {
        let mut domains = Self::default();
        for ReadFile { path, text } in files {
            match Domain::read(Arc::clone(&path), &text) {
                Ok(domain) => {
                    mistakes.extend(without_limits(&domain, &path));
                    mistakes.extend(domains.add(domain, path));
                }
                Err(of_file) => mistakes.extend(of_file),
            }
        }
        mistakes.extend(domains.check());
        if mistakes.is_empty() { Ok(domains) } else { Err(mistakes) }
    }

    fn add(&mut self, domain: Domain, path: Arc<Path>) -> Option<Mistake> {
        if let Some((_, other)) = self.by_name.get(&domain.name) {
            let (name, other) = (&domain.name, other.display());
            let message =
                format!("`domain` must be in one file, got `{name}` of {other} again: write one file of both");
            return Some(Mistake::at(path, domain.place, message));
        }
        self.by_name.insert(domain.name.clone(), (domain, path));
        None
    }

    /// Checks that each rule has a name of its own.
    fn check(&self) -> Vec<Mistake> {
        let rules: usize = self.by_name.values().map(|(domain, _)| domain.rules.len()).sum();
        if rules > MAX_RULES {
            let file = self.by_name.values().next().map_or(Path::new(""), |(_, path)| path);
            return vec![Mistake::of_file(
                file,
                format!("all files must have at most {MAX_RULES} limits, got {rules}"),
            )];
        }
        let (mut names, mut mistakes) = (HashMap::new(), Vec::new());
        for (rule, path) in self.rules() {
            if let Some(place) = names.insert(rule.name(), rule.place) {
                let name = rule.name();
                let message = format!("a limit must have a name of its own, got `{name}` of {place} again: remove one");
                mistakes.push(Mistake::at(Arc::clone(path), rule.place, message));
            }
        }
        mistakes
    }

    /// Sets the rules in a limiter, with those of `retired` that are none of these.
    ///
    /// # Errors
    /// All settings that contradict each other, or those of higher levels.
    fn set_rules(&self, limiter: &Limiter, retired: Option<&Self>) -> Result<(), Vec<Mistake>> {
        let mut set = self.rule_set();
        if let Some(retired) = retired {
            let names: HashSet<_> = self.rules().map(|(rule, _)| rule.name()).collect();
            for (rule, _) in retired.rules().filter(|(rule, _)| !names.contains(rule.name())) {
                set = set.rule(rule.name(), rule.settings.clone());
            }
        }
        limiter.set_builder_rules(set).map_err(|error| self.locate(&error))
    }

    /// Finds the places of the rules that a limiter does not take.
    fn locate(&self, error: &rate_limited::Error) -> Vec<Mistake> {
        let probe = Limiter::memory();
        let of_rule = |(rule, path): (&EnvoyRule, &Arc<Path>)| {
            let set = RuleSet::new().rule(rule.name(), rule.settings.clone());
            let error = probe.set_builder_rules(set).err()?;
            Some(Mistake::at(Arc::clone(path), rule.place, error.to_string()))
        };
        let mistakes: Vec<_> = self.rules().filter_map(of_rule).collect();
        if !mistakes.is_empty() {
            return mistakes;
        }
        // Only with the rules of higher levels.
        let message = error.to_string();
        let named = self.rules().find(|(rule, _)| message.contains(&format!("`{}`", rule.name())));
        match named.or_else(|| self.rules().next()) {
            Some((rule, path)) => vec![Mistake::at(Arc::clone(path), rule.place, message)],
            None => vec![Mistake::of_file(Path::new(""), message)],
        }
    }

    fn rules(&self) -> impl Iterator<Item = (&EnvoyRule, &Arc<Path>)> {
        self.by_name.values().flat_map(|(domain, path)| domain.rules.iter().map(move |rule| (rule, path)))
    }

    fn rule_set(&self) -> RuleSet {
        self.rules().fold(RuleSet::new(), |set, (rule, _)| set.rule(rule.name(), rule.settings.clone()))
    }

    /// Finds the rule of a request's descriptor. `None` if there is none: nothing limits it.
    pub(crate) fn find<'t, 'r>(
        &'t self,
        domain: &str,
        entries: impl Iterator<Item = (&'r str, &'r str)>,
    ) -> Option<Match<'t, 'r>> {
        self.by_name.get(domain)?.0.find(entries)
    }

    /// The number of limits.
    pub(crate) fn len(&self) -> usize {
        self.rules().count()
    }
}

/// The mistake of a domain without a limit: it would admit all, as a file does that is seen while it is written.
fn without_limits(domain: &Domain, path: &Arc<Path>) -> Option<Mistake> {
    let name = &domain.name;
    let message =
        || format!("a domain must have limits, got none in `{name}`: write a `rate_limit`, also `unlimited: true`");
    domain.rules.is_empty().then(|| Mistake::at(Arc::clone(path), domain.place, message()))
}

/// The configuration in force, which changes with its files.
#[derive(Debug, Default)]
pub(crate) struct EnvoyConfig {
    paths: Vec<PathBuf>,
    domains: ArcSwap<EnvoyDomains>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    seen: Signature,
    /// The files of the last look have these mistakes.
    mistakes: Vec<Mistake>,
    /// The rules of the limiter have some that the domains lack, for calls that had begun before the change.
    has_retired: bool,
}

impl EnvoyConfig {
    /// Reads the files and sets their rules.
    ///
    /// # Errors
    /// All mistakes of all files, or rules that contradict those of higher levels.
    pub(crate) fn load(paths: Vec<PathBuf>, limiter: &Limiter) -> Result<Self, Vec<Mistake>> {
        let seen = Signature::of(&paths);
        let domains = EnvoyDomains::read(&paths)?;
        domains.set_rules(limiter, None)?;
        let state = State { seen, mistakes: Vec::new(), has_retired: false };
        Ok(Self { paths, domains: ArcSwap::from_pointee(domains), state: Mutex::new(state) })
    }

    /// Returns whether there are no files.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The domains in force.
    pub(crate) fn domains(&self) -> Arc<EnvoyDomains> {
        self.domains.load_full()
    }

    /// The mistakes of the files as they are now. None while the rules of the files are in force.
    #[cfg(test)]
    pub(crate) fn mistakes(&self) -> Vec<Mistake> {
        self.lock().mistakes.clone()
    }

    /// Reads the files again if they have changed, or have mistakes: those may end without a change. With a mistake the last good rules stay. It reads files, so it may block.
    ///
    /// `read_rules` is called after the limiter has new rules and before requests may find them.
    pub(crate) fn refresh(&self, limiter: &Limiter, read_rules: impl FnOnce()) {
        let mut state = self.lock();
        let seen = Signature::of(&self.paths);
        if seen == state.seen {
            if state.has_retired {
                // The same rules are in force already, with others.
                state.has_retired = self.domains.load().set_rules(limiter, None).is_err();
            }
            if state.mistakes.is_empty() {
                return;
            }
        }
        state.seen = seen;
        let changed = EnvoyDomains::read(&self.paths).and_then(|domains| {
            domains.set_rules(limiter, Some(&self.domains.load()))?;
            Ok(domains)
        });
        match changed {
            Ok(domains) => {
                let limits = domains.len();
                read_rules();
                tracing::info!(limits, "the configuration of Envoy has changed and is in force");
                self.domains.store(Arc::new(domains));
                state.mistakes = Vec::new();
                state.has_retired = true;
            }
            Err(mistakes) => {
                for mistake in mistakes.iter().filter(|mistake| !state.mistakes.contains(mistake)) {
                    tracing::error!(
                        "the configuration of Envoy cannot be used, its last good rules stay in force: {mistake}"
                    );
                }
                state.mistakes = mistakes;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
