//! The limiter: a store with its failure policy, rules and observers.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use crate::clock::Clock;
use crate::concurrency::{SlotOptions, SlotTable};
use crate::decision::receipt::LimiterId;
use crate::guard::Guard;
use crate::instances::Instances;
use crate::limiter::wait_queue::WaitQueues;
use crate::metrics::RulesRefused;
use crate::observer::Observers;
use crate::receipt::book::ReceiptBook;
#[cfg(feature = "rules")]
use crate::rule::FileWatch;
use crate::rule::RuleTable;
#[cfg(feature = "redis")]
use crate::store::RedisStore;
use crate::store::memory::MemoryStore;
use crate::sync::process::ProcessValue;
use crate::{Error, Origin, RuleSet};

#[cfg(all(test, not(limiter_loom)))]
pub(crate) mod tests;
mod api;
mod decide;
mod wait;
mod planned;
mod charge;
mod usage;
mod settle;
mod open_calls;
mod receipts;
mod slots;
mod enter;
mod named;
mod rules;
#[cfg(all(feature = "rules", feature = "redis"))]
mod shared_rules;
#[cfg(feature = "redis")]
mod activity;
#[cfg(feature = "redis")]
mod presence;
#[cfg(feature = "redis")]
mod examiner;
pub(crate) mod wait_queue;

pub use enter::{Entered, Entry};
pub use named::Named;
pub use open_calls::OpenCall;
use open_calls::OpenCalls;
pub(crate) use planned::{FastDecision, RuleDecision, decision_of};
#[cfg(all(feature = "rules", feature = "redis"))]
use shared_rules::SharedRulesStatus;
#[cfg(all(feature = "rules", feature = "redis"))]
pub use shared_rules::{Change, Published, SharedRules};

/// A rate limiter that counts in this process or in a store that several processes share.
///
/// Cheap to clone: clones are the same limiter. All methods take `&self`, and any number of tasks may call them at
/// once.
///
/// ```
/// # use limiter_core as rate_limited;
/// use rate_limited::{Decision, Key, Limit, Limiter};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rate_limited::Error> {
/// let limiter = Limiter::memory();
/// let limit: Limit = "5/10s".parse()?;
/// match limiter.check(&Key::new("user:").part(42), &limit).await? {
///     Decision::Allowed(allowed) => println!("{} permits left", allowed.remaining()),
///     Decision::Denied(denied) => println!("retry after {:?}", denied.retry_after()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    insides: Arc<ProcessValue<Inside>>,
}

/// The store, the rules and the waiting calls of a limiter in one process. A child of `fork` makes its own.
pub(crate) struct Inside {
    pub(crate) backend: Backend,
    pub(crate) rules: RuleTable,
    /// The last set of rules that was set at run time.
    pub(crate) runtime_refused: RulesRefused,
    #[cfg(feature = "rules")]
    pub(crate) rules_file: OnceLock<FileWatch>,
    /// Set if the limiter follows the shared rules.
    #[cfg(all(feature = "rules", feature = "redis"))]
    pub(crate) shared_rules: OnceLock<Arc<SharedRulesStatus>>,
    pub(crate) observers: Observers,
    /// Decisions have their key.
    pub(crate) exposes_keys: bool,
    pub(crate) clock: Clock,
    pub(crate) queues: Arc<WaitQueues>,
    /// Made by the first call that is charged at its end.
    pub(crate) open_calls: OnceLock<Arc<OpenCalls>>,
    /// Made by the first call that needs a slot.
    pub(crate) slots: OnceLock<Arc<SlotTable>>,
    pub(crate) slot_options: SlotOptions,
    /// The instances that share each limit.
    pub(crate) instances: Instances,
    pub(crate) limiter_id: LimiterId,
    /// The ids of the limiter in the parents of this process.
    pub(crate) parents: Vec<LimiterId>,
    pub(crate) built_at: SystemTime,
    /// Present if the program has set a secret for them.
    pub(crate) receipts: Option<Box<ReceiptBook>>,
    /// Makes the inside of a child of `fork` with these rules, and these ids of its parents.
    pub(crate) remake: Box<dyn Fn(RuleTable, Vec<LimiterId>) -> Self + Send + Sync>,
    /// Makes that of an [examiner](Limiter::examiner) with these rules, which others neither see nor hear.
    pub(crate) make_examiner: Box<dyn Fn(RuleTable) -> Self + Send + Sync>,
}

/// The store of a limiter: one in this process, which has no failure policy to apply, or a guarded one.
///
/// `repr(u8)` gives it a tag of its own. A tag in the niche of another field takes each decision more instructions to
/// read.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum Backend {
    Memory(MemoryStore),
    Guarded(Guard),
}

impl Backend {
    /// Returns whether other processes use the store.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Guarded(guard) if guard.is_shared())
    }
}

impl Inside {
    /// Returns the inside of a child of `fork`: the same limiter with the rules of the fork, an empty store in memory, or
    /// connections of its own. It takes no lock of this one.
    #[cold]
    fn in_child(&self) -> Self {
        let parents = self.parents.iter().copied().chain([self.limiter_id]).collect();
        let child = (self.remake)(self.rules.in_child(), parents);
        #[cfg(all(feature = "rules", feature = "redis"))]
        if let (Some(status), Some(store), Some(own)) = (self.shared_rules.get(), self.redis(), child.redis()) {
            let _ = child.shared_rules.set(Arc::clone(status));
            own.follow_rules_as(store);
        }
        child
    }

    /// The store on Redis, if the limiter has one.
    #[cfg(feature = "redis")]
    pub(crate) fn redis(&self) -> Option<&RedisStore> {
        match &self.backend {
            Backend::Guarded(guard) => guard.redis(),
            Backend::Memory(_) => None,
        }
    }

    /// Replaces the rules of an origin, and wakes the calls that wait under rules.
    ///
    /// # Errors
    /// Those of [`RuleTable::set`].
    pub(crate) fn set_rules(&self, origin: Origin, rules: RuleSet) -> Result<(), Error> {
        self.rules.set(origin, rules)?;
        self.queues.rules_changed();
        Ok(())
    }
}

impl Limiter {
    pub(crate) fn from_inside(inside: Inside) -> Self {
        Self { insides: Arc::new(ProcessValue::new(inside)) }
    }

    /// The inside of this process. Each call of the limiter begins here.
    #[inline(always)]
    pub(crate) fn inside(&self) -> &Inside {
        self.insides.get(Inside::in_child)
    }

    /// Returns a function that returns the limiter, while it exists.
    #[cfg(feature = "rules")]
    fn downgrade(&self) -> impl Fn() -> Option<Self> + Clone + Send + Sync + use<> {
        let insides = Arc::downgrade(&self.insides);
        move || insides.upgrade().map(|insides| Self { insides })
    }
}

#[cfg(all(feature = "rules", feature = "redis"))]
impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(status) = self.shared_rules.get() {
            status.withdraw();
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inside { backend, rules, observers, .. } = self.inside();
        let store = match backend {
            Backend::Memory(_) => "memory",
            Backend::Guarded(_) => "shared",
        };
        f.debug_struct("Limiter")
            .field("store", &store)
            .field("on_error", &rules.defaults().options.on_error)
            .field("observers", observers)
            .finish_non_exhaustive()
    }
}
