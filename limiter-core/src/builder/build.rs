//! The construction of a limiter from its options.

use std::num::NonZeroU32;
use std::sync::Arc;
#[cfg(feature = "rules")]
use std::sync::OnceLock;
#[cfg(feature = "test-util")]
use std::time::Duration;
use std::time::SystemTime;

use crate::builder::Builder;
use crate::builder::connection::{InProcessStore, Store};
use crate::decision::receipt::LimiterId;
use crate::guard::{Guard, RemoteStore};
use crate::limiter::wait_queue::WaitQueues;
use crate::limiter::{Backend, LimiterInner};
use crate::local::LocalOptions;
use crate::local::standby::StandbyConfig;
use crate::metrics::{self, RulesRefused};
use crate::overflow::Overflows;
use crate::rule::{CallDefaults, Mode, RuleTable};
use crate::store::memory::MemoryStore;
use crate::sync::process::{DroppedAtHome, PerProcess};
use crate::{Error, Limiter, Origin, Source};

#[cfg(all(feature = "metrics", feature = "redis"))]
use crate::health::HealthState;
#[cfg(all(feature = "metrics", feature = "redis"))]
use crate::metrics::StoreUp;

#[cfg(feature = "test-util")]
use crate::ErrorKind;
#[cfg(feature = "test-util")]
use crate::store::SlowStore;
#[cfg(feature = "redis")]
use crate::store::redis::{Endpoint, Naming, Options, ReadySignal, RedisStore};

impl Builder {
    /// Builds a limiter whose file of rules is read already.
    pub(super) fn build_without_file(self) -> Result<Limiter, Error> {
        match self.prepare()? {
            (Store::InProcess(store), rules) => Ok(self.in_process(&store, rules)),
            #[cfg(feature = "redis")]
            (Store::Redis(endpoint), rules) => {
                #[cfg(feature = "rules")]
                let (follows_shared_rules, cache) = (self.follows_shared_rules(), self.shared_rules_cache.clone());
                let limiter = self.redis(endpoint, rules, None)?;
                #[cfg(feature = "rules")]
                if follows_shared_rules {
                    drop(limiter.follow_shared_rules(cache.as_deref())?);
                }
                Ok(limiter)
            }
        }
    }

    /// Builds a limiter whose file of rules is read already, and waits until it is connected.
    pub(super) async fn connect_without_file(self) -> Result<Limiter, Error> {
        match self.prepare()? {
            (Store::InProcess(store), rules) => Ok(self.in_process(&store, rules)),
            #[cfg(feature = "redis")]
            (Store::Redis(endpoint), rules) => {
                let (ready, is_ready) = ReadySignal::channel();
                #[cfg(feature = "rules")]
                let (follows_shared_rules, cache) = (self.follows_shared_rules(), self.shared_rules_cache.clone());
                let limiter = self.redis(endpoint, rules, Some(ready))?;
                is_ready.await?;
                #[cfg(feature = "rules")]
                if follows_shared_rules {
                    limiter.follow_shared_rules(cache.as_deref())?.await?;
                }
                Ok(limiter)
            }
        }
    }

    /// Checks the options and the rules, and parses the URL.
    fn prepare(&self) -> Result<(Store, RuleTable), Error> {
        let store = self.store()?;
        #[cfg(feature = "rules")]
        self.check_shared_rules(&store)?;
        Ok((store, self.rule_table()?))
    }

    fn in_process(self, store: &InProcessStore, rules: RuleTable) -> Limiter {
        match store {
            InProcessStore::Memory => self.memory(rules),
            #[cfg(feature = "test-util")]
            InProcessStore::Failing(kind) => self.failing_with(*kind, rules),
            #[cfg(feature = "test-util")]
            InProcessStore::Slow(delay) => self.slow_by(*delay, rules),
        }
    }

    #[cfg(feature = "redis")]
    fn redis(self, endpoint: Endpoint, rules: RuleTable, ready: Option<ReadySignal>) -> Result<Limiter, Error> {
        let naming = Arc::new(Naming::new(&self.prefix, self.secret.clone().transpose()?, endpoint.is_cluster()));
        let local = self.local_options(endpoint.slots());
        let overflows = Arc::clone(&local.overflows);
        let (deadline, busy_poll) = (self.deadline, self.busy_poll);
        let (max_in_flight, clock) = (self.max_in_flight, self.clock.clone());
        #[cfg_attr(not(feature = "metrics"), expect(unused_mut, reason = "the feature adds an observer"))]
        let mut health_observers = self.health_observers.clone();
        #[cfg(feature = "metrics")]
        let store_up = StoreUp::new(HealthState::Connecting);
        #[cfg(feature = "metrics")]
        health_observers.add({
            let state = store_up.state();
            move |health| state.set(health.state)
        });
        let health_observers = Arc::new(health_observers);
        let options = Options { naming, deadline, busy_poll, max_in_flight, clock, local, health_observers };
        let guard = Guard::new(RemoteStore::Redis(RedisStore::start(endpoint, options, ready)?));
        #[cfg(feature = "metrics")]
        let guard = guard.with_store_up(store_up);
        Ok(self.guarded(guard, overflows, rules))
    }

    pub(crate) fn memory(self, rules: RuleTable) -> Limiter {
        let store = MemoryStore::new(self.max_keys, self.clock.clone(), Source::Store);
        self.with_overflows(store.overflows()).with_backend(Backend::Memory(store), rules)
    }

    /// Creates a limiter without a usable store. Each call fails with `error`.
    pub(crate) fn misconfigured(self, error: Error) -> Limiter {
        self.failing_by(error, RuleTable::of_environment())
    }

    fn failing_by(self, error: Error, rules: RuleTable) -> Limiter {
        let options = self.local_options(1);
        let local = options.new_local();
        self.guarded(Guard::new(RemoteStore::Failing(error, local)), options.overflows, rules)
    }

    #[cfg(feature = "test-util")]
    pub(super) fn failing_with(self, kind: ErrorKind, rules: RuleTable) -> Limiter {
        let error = Error::new(kind, format!("the store of this test fails with `{kind}`"));
        self.failing_by(error, rules)
    }

    #[cfg(feature = "test-util")]
    pub(super) fn slow_by(self, delay: Duration, rules: RuleTable) -> Limiter {
        let memory = MemoryStore::new(self.max_keys, self.clock.clone(), Source::Store);
        let (overflows, local) = (memory.overflows(), self.local_options(1).new_local());
        let store = SlowStore { delay, deadline: self.deadline, clock: self.clock.clone(), memory };
        self.guarded(Guard::new(RemoteStore::Slow(Box::new(store), local)), overflows, rules)
    }

    /// The options of the local state beside a store with this number of slots.
    fn local_options(&self, slots: u16) -> LocalOptions {
        let instances = NonZeroU32::new(self.instances).unwrap_or(NonZeroU32::MIN);
        let (max_keys, clock) = (self.max_keys, self.clock.clone());
        let standby = StandbyConfig { max_keys, instances, slots };
        let overflows = Overflows::new(Source::Standby, max_keys, clock.clone());
        LocalOptions { standby, remember_denials: self.remember_denials, clock, overflows }
    }

    fn guarded(self, guard: Guard, overflows: Arc<Overflows>, rules: RuleTable) -> Limiter {
        self.with_overflows(overflows).with_backend(Backend::Guarded(guard), rules)
    }

    fn with_overflows(mut self, overflows: Arc<Overflows>) -> Self {
        self.observers.attach_overflow(overflows);
        self
    }

    fn with_backend(self, backend: Backend, rules: RuleTable) -> Limiter {
        let Self { options, mut observers, exposes_keys, clock, .. } = self;
        let rules = rules.with_defaults(CallDefaults { options, is_guarded: matches!(backend, Backend::Guarded(_)) });
        observers.attach_rules(rules.logged_limits());
        let queues = WaitQueues::new(clock.clone(), backend.is_shared());
        Limiter::from_parts(LimiterInner {
            backend,
            rules,
            runtime_refused: RulesRefused::new(Origin::Runtime.as_str()),
            #[cfg(feature = "rules")]
            rules_file: OnceLock::new(),
            #[cfg(all(feature = "rules", feature = "redis"))]
            shared_rules: OnceLock::new(),
            observers,
            exposes_keys,
            clock,
            queues: PerProcess::with_value(DroppedAtHome::new(queues)),
            limiter_id: LimiterId::next(),
            built_at: SystemTime::now(),
        })
    }

    /// Checks the rules, and reads `RATE_LIMITED_MODE`.
    fn rule_table(&self) -> Result<RuleTable, Error> {
        #[cfg(feature = "redis")]
        let hashes_keys = self.secret.clone().transpose()?.is_some();
        #[cfg(not(feature = "redis"))]
        let hashes_keys = false;
        let (rules, declared) = (self.rules.clone(), self.declared.clone());
        let table = RuleTable::new(rules, declared, hashes_keys, Mode::from_environment()?);
        let table = table.inspect_err(|_| self.rules_loaded(false))?;
        #[cfg(feature = "rules")]
        if self.follows_shared_rules() {
            table.expect_shared();
        }
        #[cfg(feature = "rules")]
        if self.rules_file.add_to(&table)? {
            // All sets were checked with those of the file.
            self.rules_loaded(true);
            return Ok(table);
        }
        table.check().inspect_err(|_| self.rules_loaded(false))?;
        self.rules_loaded(true);
        Ok(table)
    }

    /// Records that the builder's own rules are in force, or were refused.
    fn rules_loaded(&self, is_in_force: bool) {
        if self.rules.is_in_use() {
            metrics::rules_loaded(Origin::Builder.as_str(), is_in_force);
        }
    }
}
