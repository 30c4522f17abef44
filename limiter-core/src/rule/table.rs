//! The rules of a limiter, which can change at any time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::rule::layers::Layers;
use crate::rule::site_cache::{self, Entry};
use crate::rule::{Mode, Origin, ResolvedRule, RuleSet};
use crate::sync::process::{LOCK_TIMEOUT, forked, id, lock_contended};
use crate::sync::{Mutex, MutexGuard};
use crate::{Error, RuleInForce};

/// The layers of settings with their composition for each rule.
pub(crate) struct RuleTable {
    /// 0 while there are no settings, as in most limiters. Otherwise a number that no other state of any limiter has.
    generation: AtomicU64,
    /// The value of `RATE_LIMITED_MODE`.
    switch: Option<Mode>,
    home: u32,
    state: Mutex<State>,
}

struct State {
    generation: u64,
    layers: Layers,
    /// The rules with settings that were used in this generation.
    resolved: HashMap<String, Arc<ResolvedRule>>,
    /// Every rule without settings of its own.
    unset: Arc<ResolvedRule>,
}

impl RuleTable {
    /// Creates the table of a new limiter. `rules` have been checked.
    pub(crate) fn new(rules: RuleSet, switch: Option<Mode>) -> Self {
        let layers = Layers { builder: Arc::new(rules), ..Layers::default() };
        let state = Mutex::new(State { generation: 0, layers, resolved: HashMap::new(), unset: Arc::default() });
        let table = Self { generation: AtomicU64::new(0), switch, home: id(), state };
        if let Some(mut state) = table.lock() {
            table.start_generation(&mut state);
        }
        table
    }

    /// Returns whether any rule may have settings.
    #[inline]
    pub(crate) fn has_settings(&self) -> bool {
        self.generation.load(Ordering::Acquire) != 0
    }

    /// The number of the present state of the rules.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The value of `RATE_LIMITED_MODE` when the limiter was built.
    #[inline]
    pub(crate) fn switch(&self) -> Option<Mode> {
        self.switch
    }

    /// Replaces the layer of an origin. Every call that begins afterwards uses it.
    ///
    /// # Errors
    /// Those of [`RuleSet::check`]. The rules then stay as they were. [`ErrorKind::Forked`](crate::ErrorKind::Forked) if
    /// another thread of the parent was changing the rules when this process was forked.
    pub(crate) fn set(&self, origin: Origin, rules: RuleSet) -> Result<(), Error> {
        rules.check()?;
        let mut state = self.lock().ok_or_else(forked)?;
        state.layers.set(origin, rules);
        self.start_generation(&mut state);
        Ok(())
    }

    /// Passes the settings of a rule to `read`: its settings now, or at a time during this call.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked), as for [`set`](Self::set).
    #[inline]
    pub(crate) fn with_rule<R>(
        &self,
        position: u32,
        name: &str,
        mut read: impl FnMut(&ResolvedRule) -> R,
    ) -> Result<R, Error> {
        match site_cache::get(position, self.generation.load(Ordering::Acquire), &mut read) {
            Some(result) => Ok(result),
            None => self.resolve(position, name).map(|rule| read(&rule)),
        }
    }

    #[cold]
    fn resolve(&self, position: u32, name: &str) -> Result<Arc<ResolvedRule>, Error> {
        let mut state = self.lock().ok_or_else(forked)?;
        let rule = match state.resolved.get(name) {
            Some(rule) => Arc::clone(rule),
            // Names may come from callers, so others than those of the layers are not kept.
            None if !state.layers.have(name) => Arc::clone(&state.unset),
            None => {
                let rule = Arc::new(state.layers.resolve(name, self.switch));
                state.resolved.insert(name.to_owned(), Arc::clone(&rule));
                rule
            }
        };
        let entry = Entry { generation: state.generation, rule: Arc::clone(&rule) };
        drop(state);
        site_cache::put(position, entry);
        Ok(rule)
    }

    /// Lists the rules that have settings, by name.
    pub(crate) fn in_force(&self) -> Vec<RuleInForce> {
        let Some(state) = self.lock() else { return Vec::new() };
        let in_force = |name: &str| RuleInForce::new(name, state.layers.resolve(name, self.switch).settings());
        state.layers.names().into_iter().map(in_force).collect()
    }

    /// Begins a generation for changed layers. The calls that begin afterwards read them.
    fn start_generation(&self, state: &mut State) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let is_unset = state.layers.is_empty() && self.switch.is_none();
        state.generation = if is_unset { 0 } else { NEXT.fetch_add(1, Ordering::Relaxed) };
        state.resolved.clear();
        state.unset = Arc::new(state.layers.resolve("", self.switch));
        self.generation.store(state.generation, Ordering::Release);
    }

    /// Locks the state. `None` in a child of `fork` whose parent was changing the rules.
    fn lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(_) => lock_contended(&self.state, self.home, LOCK_TIMEOUT),
        }
    }
}
