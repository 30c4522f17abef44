//! The construction of a limiter from its options.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
#[cfg(feature = "test-util")]
use std::time::Duration;
use std::time::SystemTime;

use crate::activity::Recorder;
use crate::builder::Builder;
use crate::builder::connection::Store;
use crate::decision::receipt::LimiterId;
use crate::guard::{Guard, RemoteStore};
use crate::instances::Instances;
use crate::limiter::wait_queue::WaitQueues;
use crate::limiter::{Backend, Inside};
use crate::local::LocalOptions;
use crate::local::standby::StandbyConfig;
use crate::metrics::{self, RulesRefused};
use crate::observer::Observers;
use crate::overflow::Overflows;
use crate::receipt::book::ReceiptBook;
use crate::rule::{CallDefaults, Mode, RuleTable};
use crate::store::memory::MemoryStore;
use crate::{Error, Limiter, Origin, RuleSet, Source};

#[cfg(feature = "test-util")]
use crate::ErrorKind;
#[cfg(feature = "redis")]
use crate::builder::redis::StoreStart;
#[cfg(feature = "test-util")]
use crate::store::SlowStore;
#[cfg(feature = "redis")]
use crate::store::redis::{Endpoint, Secret};

/// The checked options of a limiter. It is made by them once, and again in each child of `fork`.
struct Recipe {
    options: Builder,
    store: StoreRecipe,
}

/// The store of a recipe.
enum StoreRecipe {
    Memory,
    /// No store: each call fails with this error.
    Failing(Error),
    #[cfg(feature = "test-util")]
    Slow(Duration),
    #[cfg(feature = "redis")]
    /// The servers, and the secret of the names of keys.
    Redis(Endpoint, Option<Secret>),
}

/// For whom a limiter is made.
enum MadeFor {
    Program,
    /// A child of `fork`, with the ids of the limiter in its parents.
    Child(Vec<LimiterId>),
    Examiner,
}

impl Recipe {
    /// Makes the limiter. A store on Redis is not started yet.
    fn limiter(options: Builder, store: StoreRecipe, rules: RuleTable) -> Limiter {
        let is_guarded = !matches!(store, StoreRecipe::Memory);
        let rules =
            rules.with_defaults(CallDefaults { options: options.options, deadline: options.deadline, is_guarded });
        // They are in the table.
        let options = Builder { rules: RuleSet::default(), declared: BTreeSet::new(), ..options };
        let limiter = Limiter::from_inside(Arc::new(Self { options, store }).inside(rules, MadeFor::Program));
        if is_guarded {
            metrics::show_stores();
        }
        limiter
    }

    /// Makes what a limiter has in this process. A store on Redis starts at its first call.
    fn inside(self: Arc<Self>, rules: RuleTable, made_for: MadeFor) -> Inside {
        let Builder { ref observers, exposes_keys, ref clock, .. } = self.options;
        let is_examiner = matches!(made_for, MadeFor::Examiner);
        let activity = if is_examiner { None } else { self.options.activity.clone().map(Recorder::start) };
        let instances = self.options.new_instances(is_examiner);
        let (backend, overflows) = self.backend(&rules, activity.as_ref(), &made_for, &instances);
        let mut observers = if is_examiner { Observers::default() } else { observers.clone() };
        observers.attach_overflow(overflows);
        observers.attach_rules(rules.logged_limits());
        observers.attach_activity(activity);
        let recipe = Arc::clone(&self);
        Inside {
            rules,
            runtime_refused: RulesRefused::new(Origin::Runtime.as_str()),
            #[cfg(feature = "rules")]
            rules_file: OnceLock::new(),
            #[cfg(all(feature = "rules", feature = "redis"))]
            shared_rules: OnceLock::new(),
            observers,
            exposes_keys: exposes_keys || is_examiner,
            clock: clock.clone(),
            queues: WaitQueues::new(clock.clone(), backend.is_shared()),
            open_calls: OnceLock::new(),
            slots: OnceLock::new(),
            slot_options: self.options.slots.clone(),
            instances,
            limiter_id: LimiterId::next(),
            parents: match made_for {
                MadeFor::Child(parents) => parents,
                MadeFor::Program | MadeFor::Examiner => Vec::new(),
            },
            built_at: SystemTime::now(),
            receipts: self.receipt_book(),
            backend,
            remake: Box::new(move |rules, parents| Arc::clone(&self).inside(rules, MadeFor::Child(parents))),
            make_examiner: Box::new(move |rules| Arc::clone(&recipe).inside(rules, MadeFor::Examiner)),
        }
    }

    /// The book of its receipts, if the program has set their secret.
    fn receipt_book(&self) -> Option<Box<ReceiptBook>> {
        let Builder { receipt_secret, prefix, max_keys, .. } = &self.options;
        // A secret that cannot be used was an error before.
        let secret = receipt_secret.as_ref()?.as_ref().ok()?.clone();
        Some(Box::new(match &self.store {
            StoreRecipe::Memory => ReceiptBook::in_memory(secret, *max_keys),
            _ => ReceiptBook::in_store(secret, prefix, *max_keys),
        }))
    }

    /// Makes the store, and the counter of the keys that share a counter there.
    fn backend(
        &self,
        #[cfg_attr(not(feature = "redis"), expect(unused_variables, reason = "of heartbeats"))] rules: &RuleTable,
        #[cfg_attr(not(feature = "redis"), expect(unused_variables, reason = "of the stream"))] activity: Option<
            &Arc<Recorder>,
        >,
        made_for: &MadeFor,
        instances: &Instances,
    ) -> (Backend, Arc<Overflows>) {
        let (options, is_in_child) = (&self.options, matches!(made_for, MadeFor::Child(_)));
        let memory = || MemoryStore::new(options.max_keys, options.clock.clone(), Source::Store);
        match &self.store {
            StoreRecipe::Memory => {
                let store = memory();
                let overflows = store.overflows();
                (Backend::Memory(store), overflows)
            }
            StoreRecipe::Failing(error) => {
                let local = options.local_options(1, is_in_child, instances);
                let guard = Guard::new(RemoteStore::Failing(error.clone()), local.new_local());
                (Backend::Guarded(guard), local.overflows)
            }
            #[cfg(feature = "test-util")]
            StoreRecipe::Slow(delay) => {
                let (memory, local) = (memory(), options.local_options(1, is_in_child, instances).new_local());
                let (overflows, clock) = (memory.overflows(), options.clock.clone());
                let store = SlowStore { delay: *delay, deadline: options.deadline, clock, memory };
                (Backend::Guarded(Guard::new(RemoteStore::Slow(Box::new(store)), local)), overflows)
            }
            #[cfg(feature = "redis")]
            StoreRecipe::Redis(endpoint, secret) => {
                let is_examiner = matches!(made_for, MadeFor::Examiner);
                let presence = options.presence_options(rules, activity, instances.clone(), is_examiner);
                options.redis_backend(endpoint, secret.as_ref(), presence, is_in_child)
            }
        }
    }
}

impl Builder {
    /// Builds a limiter whose file of rules is read already.
    pub(super) fn build_without_file(self) -> Result<Limiter, Error> {
        let (store, rules) = self.prepare()?;
        #[cfg(feature = "redis")]
        let start = StoreStart::of(&self);
        let limiter = Recipe::limiter(self, store, rules);
        #[cfg(feature = "redis")]
        start.begin(&limiter)?;
        Ok(limiter)
    }

    /// Builds a limiter whose file of rules is read already, and waits until it is connected.
    pub(super) async fn connect_without_file(self) -> Result<Limiter, Error> {
        let (store, rules) = self.prepare()?;
        #[cfg(feature = "redis")]
        let start = StoreStart::of(&self);
        let limiter = Recipe::limiter(self, store, rules);
        #[cfg(feature = "redis")]
        start.complete(&limiter).await?;
        Ok(limiter)
    }

    /// Checks the options and the rules, and parses the URL.
    fn prepare(&self) -> Result<(StoreRecipe, RuleTable), Error> {
        let store = self.store()?;
        self.receipt_secret.clone().transpose()?;
        #[cfg(feature = "rules")]
        self.check_shared_rules(&store)?;
        let rules = self.rule_table()?;
        Ok(match store {
            Store::Memory => (StoreRecipe::Memory, rules),
            #[cfg(feature = "test-util")]
            Store::Failing(kind) => (StoreRecipe::Failing(failure_of(kind)), rules),
            #[cfg(feature = "test-util")]
            Store::Slow(delay) => (StoreRecipe::Slow(delay), rules),
            #[cfg(feature = "redis")]
            Store::Redis(endpoint) => (StoreRecipe::Redis(endpoint, self.redis.secret()?), rules),
        })
    }

    pub(crate) fn memory(self, rules: RuleTable) -> Limiter {
        Recipe::limiter(self, StoreRecipe::Memory, rules)
    }

    /// Creates a limiter without a usable store. Each call fails with `error`.
    pub(crate) fn misconfigured(self, error: Error) -> Limiter {
        Recipe::limiter(self, StoreRecipe::Failing(error), RuleTable::of_environment())
    }

    #[cfg(feature = "test-util")]
    pub(super) fn failing_with(self, kind: ErrorKind, rules: RuleTable) -> Limiter {
        Recipe::limiter(self, StoreRecipe::Failing(failure_of(kind)), rules)
    }

    #[cfg(feature = "test-util")]
    pub(super) fn slow_by(self, delay: Duration, rules: RuleTable) -> Limiter {
        Recipe::limiter(self, StoreRecipe::Slow(delay), rules)
    }

    /// The instances that share each limit, of which nothing was heard yet. An examiner, which writes no heartbeats, hears of
    /// none.
    fn new_instances(&self, is_examiner: bool) -> Instances {
        #[cfg(feature = "redis")]
        let interval = self.heartbeat_interval();
        #[cfg(not(feature = "redis"))]
        let interval = crate::instances::HEARTBEAT_INTERVAL;
        Instances::new(self.instances.setting(self.is_silent() || is_examiner), interval)
    }

    /// The options of the local state beside a store with this number of slots.
    pub(super) fn local_options(&self, slots: u16, is_in_child: bool, instances: &Instances) -> LocalOptions {
        let instances = instances.clone();
        let (max_keys, clock) = (self.max_keys, self.clock.clone());
        let standby = StandbyConfig { max_keys, instances, slots, is_in_child };
        let overflows = Overflows::new(Source::Standby, max_keys, clock.clone());
        LocalOptions { standby, remember_denials: self.remember_denials, clock, overflows }
    }

    /// Checks the rules, and reads `RATE_LIMITED_MODE`.
    fn rule_table(&self) -> Result<RuleTable, Error> {
        #[cfg(feature = "redis")]
        let hashes_keys = self.redis.secret()?.is_some();
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

/// The error of a store that fails each call of a test.
#[cfg(feature = "test-util")]
fn failure_of(kind: ErrorKind) -> Error {
    Error::new(kind, format!("the store of this test fails with `{kind}`"))
}
