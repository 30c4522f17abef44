//! The rules of a limiter, which can change at any time.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics;
use crate::observer::{LimitPlace, LoggedLimits, LoggedRules};
use crate::rule::level_warnings::ImpossibleCost;
use crate::rule::levels::{RuleLevel, RuleLevels};
use crate::rule::site_cache::{self, CachedSite};
use crate::rule::{
    CallDefaults, Catalog, CustomerPlan, KeyText, Mode, Origin, ResolvedRule, RuleRef, RuleSet, is_interned, log_apart,
    log_in_call,
};
use crate::sync::process::ForChildren;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::{Error, Key, Limit, RuleInForce, TARGET};

/// The levels of settings with their composition for each rule.
pub(crate) struct RuleTable {
    defaults: CallDefaults,
    /// 0 while there are no settings, as in most limiters. Otherwise a number that no other state of any limiter has.
    generation: AtomicU64,
    /// The value of `RATE_LIMITED_MODE`.
    switch: Option<Mode>,
    /// The names that the builder declares.
    declared: BTreeSet<String>,
    /// The limiter hashes keys, which not every layout allows.
    hashes_keys: bool,
    /// The number of calls under rules without a limit, and these rules.
    unlimited: AtomicU64,
    unlimited_rules: LoggedRules,
    /// The rules that demand a setting which their calls or limits cannot use, each with the problem.
    unused_settings: Mutex<BTreeSet<(&'static str, &'static str)>>,
    state: Arc<RuleState>,
}

/// The part of a table that the log of denials uses too.
pub(super) struct RuleState {
    impossible_costs: LoggedRules,
    state: Mutex<State>,
    /// The levels in force.
    for_children: ForChildren<RuleLevels>,
}

impl RuleState {
    /// The number of the present state of the rules.
    #[cfg(feature = "redis")]
    pub(super) fn generation(&self) -> u64 {
        lock(&self.state).generation
    }

    /// The levels in force.
    pub(super) fn levels(&self) -> RuleLevels {
        lock(&self.state).levels.clone()
    }
}

impl LoggedLimits for RuleState {
    fn impossible_costs(&self) -> &LoggedRules {
        &self.impossible_costs
    }

    fn place_of(&self, limit: Limit, rule: &str, key: &Key) -> Option<LimitPlace> {
        let state = lock(&self.state);
        // The calls of one rule may have several forms of keys, with overrides of their own.
        let origin = state
            .resolved
            .iter()
            .filter(|((name, _), _)| name == rule)
            .find_map(|(_, resolved)| resolved.origin_of(limit, key))?;
        let file = state.levels.file_of(origin).map(|file| file.display().to_string());
        (origin != Origin::Attribute).then_some(LimitPlace { origin: origin.as_str(), file })
    }
}

struct State {
    generation: u64,
    /// The number of changes so far.
    changes: u64,
    levels: RuleLevels,
    /// The rules with settings that were used in this generation.
    resolved: HashMap<(String, KeyText), Arc<ResolvedRule>>,
    /// Every rule without settings of its own.
    unset: Arc<ResolvedRule>,
}

impl RuleTable {
    /// Creates the table of a new limiter with the rules of its builder. [`check`](Self::check) is called when all
    /// levels are there.
    ///
    /// # Errors
    /// Those of [`RuleLevel::new`].
    pub(crate) fn new(
        rules: RuleSet,
        declared: BTreeSet<String>,
        hashes_keys: bool,
        switch: Option<Mode>,
    ) -> Result<Self, Error> {
        let mut table = Self::without_rules(declared, switch);
        table.hashes_keys = hashes_keys;
        // Most limiters have no rules, and need no list of the program's.
        if rules.is_in_use() {
            let (level, costs) = table.level(Origin::Builder, rules)?;
            let mut state = table.lock();
            state.levels.set(Origin::Builder, Arc::clone(&level));
            table.start_generation(&mut state);
            let problems = state.levels.problems_of_plans(Origin::Builder);
            drop(state);
            table.warn_of(Origin::Builder, &level, costs);
            level.name(Origin::Builder).warn_of_plans(problems);
        }
        Ok(table)
    }

    /// Checks a set of rules by itself. The second value has the costs that it never grants.
    fn level(&self, origin: Origin, rules: RuleSet) -> Result<(Arc<RuleLevel>, Vec<ImpossibleCost>), Error> {
        if self.hashes_keys {
            rules.check_hashed_layouts()?;
        }
        let catalog = self.catalog();
        let costs = catalog.impossible_costs(&rules);
        let level =
            if origin == Origin::Shared { RuleLevel::of_shared(rules) } else { RuleLevel::new(rules, &catalog) }?;
        Ok((Arc::new(level), costs))
    }

    /// Logs what does not suit the program in a set of rules that holds from now on.
    fn warn_of(&self, origin: Origin, level: &RuleLevel, costs: Vec<ImpossibleCost>) {
        for cost in costs {
            // Its denials have no line besides.
            self.state.impossible_costs.add(cost.site.rule());
            level.name(origin).warn_of_cost(cost);
        }
        level.warn_of_keys(origin, &self.catalog());
    }

    /// Makes rules of `configured` limits fail until shared rules are set, unless another level has their limits.
    pub(crate) fn expect_shared(&self) {
        let mut state = self.lock();
        state.levels.expect_shared();
        self.start_generation(&mut state);
    }

    /// Checks all levels together.
    ///
    /// # Errors
    /// Those of [`RuleLevels::check`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.lock().levels.check(|| self.catalog())
    }

    fn catalog(&self) -> Catalog<'_> {
        Catalog::new(&self.declared)
    }

    fn without_rules(declared: BTreeSet<String>, switch: Option<Mode>) -> Self {
        Self::with_levels(RuleLevels::default(), declared, switch)
    }

    /// Returns the table of a child of `fork`, with the rules that were in force at the fork.
    pub(crate) fn in_child(&self) -> Self {
        let levels = self.state.for_children.get();
        let child = Self::with_levels(levels, self.declared.clone(), self.switch);
        let unlimited = AtomicU64::new(self.unlimited_calls());
        Self { defaults: self.defaults, hashes_keys: self.hashes_keys, unlimited, ..child }
    }

    fn with_levels(levels: RuleLevels, declared: BTreeSet<String>, switch: Option<Mode>) -> Self {
        let for_children = ForChildren::new(levels.clone());
        let (resolved, unset) = (HashMap::new(), Arc::default());
        let state = Mutex::new(State { generation: 0, changes: 0, levels, resolved, unset });
        let table = Self {
            defaults: CallDefaults::default(),
            generation: AtomicU64::new(0),
            switch,
            declared,
            hashes_keys: false,
            unlimited: AtomicU64::new(0),
            unlimited_rules: LoggedRules::default(),
            unused_settings: Mutex::default(),
            state: Arc::new(RuleState { impossible_costs: LoggedRules::default(), state, for_children }),
        };
        table.start_generation(&mut table.lock());
        table
    }

    /// Creates the table of a limiter without rules, whose constructor cannot fail.
    pub(crate) fn of_environment() -> Self {
        // An invalid value must not turn limits off or into shadow mode.
        let switch = Mode::from_environment().unwrap_or_else(|error| {
            log_apart(move || {
                tracing::error!(target: TARGET, %error, "the mode of all rate limits is left as it is");
            });
            None
        });
        Self::without_rules(BTreeSet::new(), switch)
    }

    /// Sets the limiter's own settings of calls.
    pub(crate) fn with_defaults(self, defaults: CallDefaults) -> Self {
        Self { defaults, ..self }
    }

    /// The limiter's own settings of calls.
    #[inline]
    pub(crate) fn defaults(&self) -> &CallDefaults {
        &self.defaults
    }

    /// Returns whether any rule may have settings.
    #[inline]
    pub(crate) fn has_settings(&self) -> bool {
        self.generation() != 0
    }

    /// The part of the table that the log of denials uses too.
    pub(crate) fn logged_limits(&self) -> Arc<dyn LoggedLimits> {
        Arc::<RuleState>::clone(&self.state)
    }

    /// The number of the present state of the rules.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The value of `RATE_LIMITED_MODE` when the limiter was built.
    #[inline]
    pub(crate) fn switch(&self) -> Option<Mode> {
        self.switch
    }

    /// Replaces the level of an origin. Every call that begins afterwards uses it.
    ///
    /// # Errors
    /// Those of [`RuleLevel::new`]. The rules then stay as they were.
    pub(crate) fn set(&self, origin: Origin, rules: RuleSet) -> Result<(), Error> {
        let (level, costs) = self.level(origin, rules)?;
        loop {
            let (changes, mut levels) = {
                let state = self.lock();
                (state.changes, state.levels.clone())
            };
            let replaced = levels.set(origin, Arc::clone(&level));
            // This may take a while. Calls do not wait for it.
            levels.check(|| self.catalog())?;
            let problems = levels.problems_of_plans(origin);
            let mut state = self.lock();
            if state.changes != changes {
                continue;
            }
            state.levels = levels;
            self.start_generation(&mut state);
            drop(state);
            // A large level takes a while to drop.
            drop(replaced);
            self.warn_of(origin, &level, costs);
            level.name(origin).warn_of_plans(problems);
            return Ok(());
        }
    }

    /// Passes the settings of a rule to `read`: its settings now, or at a time during this call.
    #[inline]
    pub(crate) fn with_rule<R>(&self, rule: &impl RuleRef, mut read: impl FnMut(&ResolvedRule) -> R) -> R {
        let position = rule.position();
        match site_cache::get(position, self.generation(), &mut read) {
            Some(result) => result,
            None => read(&self.resolve(rule.name_and_key(), position)),
        }
    }

    #[cold]
    fn resolve(&self, (name, key): (&str, KeyText), position: u32) -> Arc<ResolvedRule> {
        let mut state = self.lock();
        let State { levels, resolved, unset, .. } = &mut *state;
        // Names may come from callers, so others than those of the levels are not kept.
        let rule = if levels.have(name) {
            let new = || Arc::new(levels.resolve_for_calls((name, key), self.switch, || self.catalog()));
            Arc::clone(resolved.entry((name.to_owned(), key)).or_insert_with(new))
        } else {
            Arc::clone(unset)
        };
        let entry = CachedSite { generation: state.generation, rule: Arc::clone(&rule) };
        drop(state);
        site_cache::put(position, entry);
        rule
    }

    /// Checks that the program, a level, or a direct call of this process has had a rule with this name, if the program's rules
    /// are known. `of_call` are rules of the call that the name is given for.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for another name. The message has the nearest one.
    #[cold]
    pub(crate) fn check_name(&self, name: &str, of_call: &BTreeSet<&str>) -> Result<(), Error> {
        if is_interned(name) || self.lock().levels.have(name) {
            Ok(())
        } else {
            self.catalog().check_name(name, of_call)
        }
    }

    /// Returns whether the settings of a rule have limits for a key and a plan, or turn the rule off. The smallest plan's limit
    /// is that of a call whose caller has none.
    pub(crate) fn has_limits_for(&self, rule: &impl RuleRef, key: &Key, plan: CustomerPlan) -> bool {
        let (name, _) = rule.name_and_key();
        let has_limit = !matches!(self.catalog().limits_of(name), [] | ["configured"]);
        self.with_rule(rule, |resolved| {
            let settings = resolved.settings_for(key, plan, || has_limit);
            !settings.limits().is_empty() || matches!(settings.mode(), Mode::Off | Mode::Deny)
        })
    }

    /// Lists the rules that the program or a level has, by name.
    pub(crate) fn in_force(&self) -> Vec<RuleInForce> {
        let catalog = self.catalog();
        let state = self.lock();
        let in_force = |name: &str| {
            let resolved = state.levels.resolve(name, KeyText::Unknown, self.switch);
            RuleInForce::new((name, state.levels.key_of(name)), &resolved, catalog.limits_of(name))
        };
        let names: BTreeSet<_> = state.levels.names().union(&catalog.names()).copied().collect();
        names.into_iter().map(in_force).collect()
    }

    /// The state that outlives the table, and the names that the builder declares.
    pub(super) fn state_and_declared(&self) -> (&Arc<RuleState>, &BTreeSet<String>) {
        (&self.state, &self.declared)
    }

    /// Counts a call under a rule that has no limit, and logs the first one.
    #[cold]
    pub(crate) fn count_unlimited(&self, name: &'static str) {
        self.unlimited.fetch_add(1, Ordering::Relaxed);
        metrics::unconfigured(name);
        if self.unlimited_rules.add(name) {
            log_in_call(|| {
                tracing::warn!(
                    target: TARGET,
                    rule = name,
                    "a rule of `configured` limits has none: its calls are unlimited"
                );
            });
        }
    }

    /// Logs once for a rule that it demands a setting in vain.
    #[cold]
    pub(crate) fn warn_of_unused_setting(&self, name: &'static str, problem: &'static str) {
        if lock(&self.unused_settings).insert((name, problem)) {
            log_in_call(|| {
                tracing::warn!(
                    target: TARGET,
                    rule = name,
                    "rule `{name}` {problem}"
                );
            });
        }
    }

    /// The number of calls under rules that have no limit.
    pub(crate) fn unlimited_calls(&self) -> u64 {
        self.unlimited.load(Ordering::Relaxed)
    }

    /// Begins a generation for changed levels. The calls that begin afterwards read them.
    fn start_generation(&self, state: &mut State) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        state.changes += 1;
        let is_unset = state.levels.is_empty() && self.switch.is_none();
        state.generation = if is_unset { 0 } else { NEXT.fetch_add(1, Ordering::Relaxed) };
        state.resolved.clear();
        state.unset = Arc::new(state.levels.resolve("", KeyText::Unknown, self.switch));
        self.state.for_children.set(&state.levels);
        self.generation.store(state.generation, Ordering::Release);
    }

    /// Returns what the log has about the plans of the rules that were set at run time.
    #[cfg(all(test, not(limiter_loom)))]
    pub(crate) fn problems_of_plans(&self) -> Vec<String> {
        self.lock().levels.problems_of_plans(Origin::Runtime)
    }

    /// Runs a function while the rules are locked.
    #[cfg(all(test, not(limiter_loom)))]
    pub(crate) fn with_state_locked<R>(&self, run: impl FnOnce() -> R) -> R {
        let _state = self.lock();
        run()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state.state)
    }
}
