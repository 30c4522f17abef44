//! The receipt of an allowed call, which a refund needs.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::local::GrantToken;
#[cfg(feature = "metrics")]
use crate::metrics;
use crate::request::{OwnedRequest, RefundInfo, Request};
use crate::store::memory::EntryId;
use crate::sync::{AtomicU32, Ordering, next_id};

/// The right to refunds of the permits by the limiter that granted them: once each. All clones share it.
///
/// Most receipts are dropped unused. So a receipt for an entry of the memory store or for a local grant allocates nothing and
/// is cheap to drop. If no code reads the decision, the compiler can leave the receipt out.
#[derive(Clone)]
pub(crate) struct Receipt {
    limiter_id: LimiterId,
    target: RefundTarget,
}

/// The permits that were granted.
#[derive(Clone)]
enum RefundTarget {
    /// Permits of one limit, from the entry of its key in the memory store. Their limit and their stamp are those of the
    /// decision, which is moved a few times before it is returned.
    MemoryEntry { entry: EntryId, held: u32, refunded: SharedCount },
    /// Permits that this process had taken ahead.
    Granted { token: GrantToken, held: u32, refunded: SharedCount },
    /// Permits of any requests, from any store.
    Any(Arc<FullReceipt>),
}

/// A receipt with copies of the requests.
struct FullReceipt {
    requests: Arc<[OwnedRequest]>,
    refund_info: RefundInfo,
    refunded: AtomicU32,
    #[cfg(feature = "metrics")]
    rules: GrantedRules,
}

/// The rules of granted permits, which the metric of refunds needs.
#[cfg(feature = "metrics")]
#[derive(Clone)]
pub(crate) enum GrantedRules {
    /// All requests are of one rule.
    One(&'static str),
    /// The rule of each request.
    Each(Box<[&'static str]>),
}

#[cfg(feature = "metrics")]
impl GrantedRules {
    pub(crate) fn new(names: &[&'static str]) -> Self {
        match names {
            [] => Self::One(""),
            [name] => Self::One(name),
            names => Self::Each(names.into()),
        }
    }
}

/// The permits that a refund returns: at most `permits` of each request.
pub(crate) struct Refund<'a> {
    pub(crate) permits: u32,
    pub(crate) granted: GrantedPermits<'a>,
}

/// The permits that a call holds before a refund.
pub(crate) enum GrantedPermits<'a> {
    /// Permits of an entry, with the limit and the time of the decision.
    MemoryEntry { entry: EntryId, held: u32 },
    /// The cost of a request is what the call holds of it.
    Any { requests: Vec<Request<'a>>, refund_info: RefundInfo },
}

impl Receipt {
    /// Returns a receipt for these requests; `None` if all of them cost nothing.
    pub(crate) fn new(
        limiter_id: LimiterId,
        requests: Arc<[OwnedRequest]>,
        refund_info: RefundInfo,
        #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "the feature uses it"))]
        names: &[&'static str],
    ) -> Option<Self> {
        let has_cost = requests.iter().any(|request| request.as_request().cost > 0);
        let full_receipt = || FullReceipt {
            requests,
            refund_info,
            refunded: AtomicU32::new(0),
            #[cfg(feature = "metrics")]
            rules: GrantedRules::new(names),
        };
        has_cost.then(|| Self { limiter_id, target: RefundTarget::Any(Arc::new(full_receipt())) })
    }

    /// Records a refund of this receipt, of a decision that describes the rule `name`.
    #[cfg(feature = "metrics")]
    pub(crate) fn record_refund(&self, name: &'static str, Refund { permits, granted }: &Refund<'_>) {
        match (&self.target, granted) {
            (RefundTarget::Any(receipt), GrantedPermits::Any { requests, .. }) => match &receipt.rules {
                GrantedRules::One(name) => metrics::refunded(name, *permits),
                GrantedRules::Each(rules) => {
                    let returned = |index: usize| requests.get(index).map_or(0, |request| request.cost.min(*permits));
                    for (first, rule) in
                        rules.iter().enumerate().filter(|(index, rule)| !rules[..*index].contains(rule))
                    {
                        let own = (first..rules.len()).filter(|index| rules[*index] == *rule);
                        metrics::refunded(rule, own.map(returned).max().unwrap_or(0));
                    }
                }
            },
            _ => metrics::refunded(name, *permits),
        }
    }

    /// Returns a receipt for permits from an entry of the memory store; `None` for a cost of 0.
    #[inline]
    pub(crate) fn for_memory_entry(limiter_id: LimiterId, entry: EntryId, held: u32) -> Option<Self> {
        (held > 0).then(|| Self {
            limiter_id,
            target: RefundTarget::MemoryEntry { entry, held, refunded: SharedCount::default() },
        })
    }

    /// Returns a receipt for permits that this process had taken ahead.
    #[inline]
    pub(crate) fn for_grant(limiter_id: LimiterId, token: GrantToken, held: u32) -> Self {
        Self { limiter_id, target: RefundTarget::Granted { token, held, refunded: SharedCount::default() } }
    }

    pub(crate) fn belongs_to(&self, limiter_id: LimiterId) -> bool {
        self.limiter_id == limiter_id
    }

    /// Uses up to `permits` of each request, which no other refund then returns. Returns what to refund; `None` if this
    /// receipt and its clones have refunded the whole cost before.
    pub(crate) fn use_up(&self, permits: u32) -> Option<Refund<'_>> {
        let (refunded, cost) = match &self.target {
            RefundTarget::MemoryEntry { held, refunded, .. } | RefundTarget::Granted { held, refunded, .. } => {
                (&**refunded.shared(), *held)
            }
            RefundTarget::Any(receipt) => (&receipt.refunded, receipt.largest_cost()),
        };
        let total = |before: u32| before.saturating_add(permits).min(cost);
        let add = |before| (before < total(before)).then(|| total(before));
        let before = refunded.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok()?;
        let granted = match &self.target {
            RefundTarget::MemoryEntry { entry, held, .. } => {
                GrantedPermits::MemoryEntry { entry: *entry, held: held - before }
            }
            RefundTarget::Granted { token, held, .. } => {
                GrantedPermits::Any { requests: vec![token.request(held - before)], refund_info: token.refund_info() }
            }
            RefundTarget::Any(receipt) => {
                let requests = receipt.requests.iter().map(OwnedRequest::as_request);
                let held = |request: Request<'_>| request.cost.saturating_sub(before);
                let requests = requests.map(|request| Request { cost: held(request), ..request }).collect();
                GrantedPermits::Any { requests, refund_info: receipt.refund_info.clone() }
            }
        };
        Some(Refund { permits: total(before) - before, granted })
    }
}

impl FullReceipt {
    /// The largest cost of a request. Each refund of `n` permits returns `n` of each request, while it has as many.
    fn largest_cost(&self) -> u32 {
        self.requests.iter().map(|request| request.as_request().cost).max().unwrap_or(0)
    }
}

/// A count that the clones of a receipt share. It is allocated by the first clone or the first use.
#[derive(Default)]
struct SharedCount(OnceLock<Arc<AtomicU32>>);

impl SharedCount {
    fn shared(&self) -> &Arc<AtomicU32> {
        self.0.get_or_init(|| Arc::new(AtomicU32::new(0)))
    }
}

impl Clone for SharedCount {
    fn clone(&self) -> Self {
        Self(Arc::clone(self.shared()).into())
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("limiter_id", &self.limiter_id).finish_non_exhaustive()
    }
}

// The identity of a limiter, by which it recognises its own receipts.

/// A number that no other limiter of this process ever has.
///
/// A receipt does not point to its limiter. Each decision would then increment a reference count, in a cache line that
/// all threads write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimiterId(u64);

impl LimiterId {
    /// Returns a new id.
    pub(crate) fn next() -> Self {
        Self(next_id())
    }
}
