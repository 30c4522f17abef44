//! The receipt of an allowed call, which a refund or a settlement needs.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::local::GrantToken;
use crate::request::sharing::in_memory;
use crate::request::{CallOptions, OwnedRequest, RefundInfo, Request};
use crate::store::memory::EntryId;
use crate::sync::{Mutex, lock, next_id};
use crate::{Error, ErrorKind, Key, Limit, OnError};

use super::{Allowed, Details};

/// The right to refunds and one settlement of the permits by the limiter that granted them. All clones share it.
///
/// Most receipts are dropped unused. So a receipt for an entry of the memory store or for a local grant allocates nothing and
/// is cheap to drop. If no code reads the decision, the compiler can leave the receipt out.
#[derive(Clone)]
pub(crate) struct Claim {
    limiter_id: LimiterId,
    target: GrantTarget,
}

/// The permits that were granted.
#[derive(Clone)]
enum GrantTarget {
    /// Permits of one limit, from the entry of its key in the memory store. Their limit and their stamp are those of the
    /// decision, which is moved a few times before it is returned.
    MemoryEntry { entry: EntryId, held: u32, used: SharedUse },
    /// Permits that this process had taken ahead.
    Granted { token: GrantToken, held: u32, on_error: OnError, used: SharedUse },
    /// Permits of any requests, from any store.
    Any(Arc<FullReceipt>),
}

/// A receipt with copies of the requests.
struct FullReceipt {
    requests: Arc<[OwnedRequest]>,
    refund_info: RefundInfo,
    terms: ReceiptTerms,
    used: Mutex<ReceiptUse>,
    rules: GrantedRules,
}

/// The rules of granted permits.
#[derive(Clone)]
pub(crate) enum GrantedRules {
    /// All requests are of one rule.
    One(&'static str),
    /// The rule of each request.
    Each(Box<[&'static str]>),
}

impl GrantedRules {
    pub(crate) fn new(names: &[&'static str]) -> Self {
        match names {
            [] => Self::One(""),
            [name] => Self::One(name),
            names => Self::Each(names.into()),
        }
    }

    /// The rule of a request.
    fn rule_of(&self, index: usize) -> &'static str {
        match self {
            Self::One(name) => name,
            Self::Each(names) => names.get(index).copied().unwrap_or_default(),
        }
    }
}

/// The permits that a call counted before a use of its receipt.
pub(crate) enum GrantedPermits<'a> {
    /// Permits of an entry, with the limit and the time of the decision.
    MemoryEntry { entry: EntryId, held: u32 },
    /// The cost of a request is what the call counts of it.
    Any { requests: Vec<Request<'a>>, refund_info: RefundInfo },
}

/// A use of a receipt: what the call counted before, and what each request counts from now on.
pub(crate) struct UsedReceipt<'a> {
    pub(crate) granted: GrantedPermits<'a>,
    pub(crate) after: Vec<u32>,
    /// The most permits that each request returns, if a refund returns as many of each.
    pub(crate) refunded: Option<u32>,
    /// The positions of the requests in the decision, and whether the use is about each. Others are on the same counters.
    pub(crate) requests: Vec<(usize, bool)>,
}

impl UsedReceipt<'_> {
    /// The permits that each request counted before.
    pub(crate) fn before(&self) -> impl Iterator<Item = u32> {
        let (of_entry, of_requests) = match &self.granted {
            GrantedPermits::MemoryEntry { held, .. } => (Some(*held), None),
            GrantedPermits::Any { requests, .. } => (None, Some(requests.iter().map(|request| request.cost))),
        };
        of_entry.into_iter().chain(of_requests.into_iter().flatten())
    }
}

/// Returns the error of a settlement that changes nothing.
#[cold]
fn settled_before() -> Error {
    let problem = "a call must be settled at most once, got a second settlement or receipt of it: drop it, since it counts \
                   nothing";
    Error::new(ErrorKind::Settled, problem)
}

// The receipts of a decision.

/// A receipt of a decision.
pub(crate) struct DecisionReceipt<'a> {
    pub(crate) receipt: &'a Claim,
    /// The rule that its part of the decision describes.
    pub(crate) name: &'static str,
    /// Its rules are in shadow mode.
    pub(crate) is_shadow: bool,
}

impl Allowed {
    /// The receipts of all permits that the call took. That of the enforced rules is the first.
    pub(crate) fn receipts(&self) -> impl Iterator<Item = DecisionReceipt<'_>> {
        let Details { name, is_shadow, .. } = self.details;
        let own = self.receipt.iter().map(move |receipt| DecisionReceipt { receipt, name, is_shadow });
        let shadow = self.extras.get().into_iter().flat_map(|extras| &extras.shadow_receipts);
        own.chain(shadow.map(|(receipt, name)| DecisionReceipt { receipt, name, is_shadow: true }))
    }
}

impl<'a> DecisionReceipt<'a> {
    /// The rules of its requests.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> + use<'a> {
        (0..self.receipt.requests()).map(move |index| self.rule_of(index))
    }

    /// The rule of a request.
    pub(crate) fn rule_of(&self, index: usize) -> &'static str {
        match &self.receipt.target {
            GrantTarget::MemoryEntry { .. } | GrantTarget::Granted { .. } => self.name,
            GrantTarget::Any(receipt) => receipt.rules.rule_of(index),
        }
    }
}

impl Claim {
    /// Returns a receipt for these requests.
    pub(crate) fn new(
        terms: ReceiptTerms,
        requests: Arc<[OwnedRequest]>,
        refund_info: RefundInfo,
        names: &[&'static str],
    ) -> Self {
        let rules = GrantedRules::new(names);
        let receipt = FullReceipt { requests, refund_info, terms, used: Mutex::default(), rules };
        Self { limiter_id: terms.limiter_id, target: GrantTarget::Any(Arc::new(receipt)) }
    }

    /// Returns a receipt for permits from an entry of the memory store.
    #[inline]
    pub(crate) fn for_memory_entry(limiter_id: LimiterId, entry: EntryId, held: u32) -> Self {
        Self { limiter_id, target: GrantTarget::MemoryEntry { entry, held, used: SharedUse::default() } }
    }

    /// Returns a receipt for permits that this process had taken ahead.
    #[inline]
    pub(crate) fn for_grant(terms: ReceiptTerms, token: GrantToken, held: u32) -> Self {
        let ReceiptTerms { limiter_id, on_error, .. } = terms;
        Self { limiter_id, target: GrantTarget::Granted { token, held, on_error, used: SharedUse::default() } }
    }

    pub(crate) fn belongs_to(&self, limiter_id: LimiterId) -> bool {
        self.limiter_id == limiter_id
    }

    /// The number of its requests.
    pub(crate) fn requests(&self) -> usize {
        match &self.target {
            GrantTarget::MemoryEntry { .. } | GrantTarget::Granted { .. } => 1,
            GrantTarget::Any(receipt) => receipt.requests.len(),
        }
    }

    /// Returns whether it has requests of several rules.
    pub(crate) fn is_of_several_rules(&self) -> bool {
        matches!(&self.target, GrantTarget::Any(receipt) if matches!(&receipt.rules, GrantedRules::Each(names)
            if names.iter().any(|name| *name != names[0])))
    }

    /// The options of a settlement: the failure policy and the deadline of the decision, and else those of the limiter.
    pub(crate) fn options(&self, limiter: &CallOptions) -> CallOptions {
        match &self.target {
            GrantTarget::MemoryEntry { .. } => *limiter,
            GrantTarget::Granted { on_error, .. } => CallOptions { on_error: *on_error, ..*limiter },
            GrantTarget::Any(receipt) => {
                let ReceiptTerms { on_error, deadline, .. } = receipt.terms;
                CallOptions { on_error, deadline: deadline.or(limiter.deadline), ..*limiter }
            }
        }
    }

    /// Uses up to `permits` of each request, which no other refund then returns. `None` if all of it was refunded or settled
    /// before.
    pub(crate) fn refund(&self, permits: u32) -> Option<UsedReceipt<'_>> {
        let mut used = lock(self.used());
        let before = self.counts(&used);
        let after: Vec<_> = (0..before.len())
            .map(|index| if used.is_settled(index) { before[index] } else { before[index].saturating_sub(permits) })
            .collect();
        if before == after {
            return None;
        }
        let refunded = used.settled.is_empty().then_some(permits);
        used.refunded = used.refunded.saturating_add(permits);
        drop(used);
        Some(self.used_receipt(&before, &after, refunded, |_| true))
    }

    /// Settles the requests for which `actual` returns a number, to that number. No use of the receipt changes them again.
    /// `None` if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::Settled`] if there are some, and all of them were settled before.
    pub(crate) fn settle(&self, actual: impl Fn(usize) -> Option<u32>) -> Result<Option<UsedReceipt<'_>>, Error> {
        let actual: Vec<_> = (0..self.requests()).map(actual).collect();
        if actual.iter().all(Option::is_none) {
            return Ok(None);
        }
        let mut used = lock(self.used());
        let settled: Vec<_> =
            (0..actual.len()).map(|index| actual[index].filter(|_| !used.is_settled(index))).collect();
        if settled.iter().all(Option::is_none) {
            return Err(settled_before());
        }
        let before = self.counts(&used);
        let after: Vec<_> = settled.iter().zip(&before).map(|(settled, before)| settled.unwrap_or(*before)).collect();
        used.settled.resize(actual.len(), None);
        for (known, settled) in used.settled.iter_mut().zip(&settled) {
            *known = known.or(*settled);
        }
        drop(used);
        Ok(Some(self.used_receipt(&before, &after, None, |index| settled[index].is_some())))
    }

    /// Hands the requests of a key over to a receipt that travels: no use of this claim changes them again. What each counts
    /// afterwards is 0. `limit` is that of the decision. `None` if none is of the key.
    ///
    /// # Errors
    /// As for [`settle`](Self::settle).
    pub(crate) fn hand_over(&self, key: &Key, limit: Limit) -> Result<Option<UsedReceipt<'_>>, Error> {
        let is_of_key: Vec<_> = match &self.target {
            GrantTarget::MemoryEntry { entry, .. } => {
                vec![entry.counter_hash() == Request::new(key, limit, 0).counter_hash()]
            }
            GrantTarget::Granted { token, .. } => vec![token.request(0).key == key],
            GrantTarget::Any(receipt) => {
                receipt.requests.iter().map(|request| request.as_request().key == key).collect()
            }
        };
        self.settle(|index| is_of_key[index].then_some(0))
    }

    /// The limits of its requests of a key. None for an entry of the memory store, which knows no key.
    pub(crate) fn limits_of(&self, key: &Key) -> Vec<Limit> {
        match &self.target {
            GrantTarget::MemoryEntry { .. } => Vec::new(),
            GrantTarget::Granted { token, .. } => vec![token.request(0).limit],
            GrantTarget::Any(receipt) => {
                let requests = receipt.requests.iter().map(OwnedRequest::as_request);
                requests.filter(|request| request.key == key).map(|request| request.limit).collect()
            }
        }
    }

    fn used(&self) -> &Mutex<ReceiptUse> {
        match &self.target {
            GrantTarget::MemoryEntry { used, .. } | GrantTarget::Granted { used, .. } => used.shared(),
            GrantTarget::Any(receipt) => &receipt.used,
        }
    }

    /// The permits that each request counts after these uses.
    fn counts(&self, used: &ReceiptUse) -> Vec<u32> {
        match &self.target {
            GrantTarget::MemoryEntry { held, .. } | GrantTarget::Granted { held, .. } => vec![used.count(0, *held)],
            GrantTarget::Any(receipt) => {
                let costs = receipt.requests.iter().map(|request| request.as_request().cost).enumerate();
                costs.map(|(index, cost)| used.count(index, cost)).collect()
            }
        }
    }

    /// The use that is about some requests. It has the others on their counters as well, which count together.
    fn used_receipt(
        &self,
        before: &[u32],
        after: &[u32],
        refunded: Option<u32>,
        is_about: impl Fn(usize) -> bool,
    ) -> UsedReceipt<'_> {
        let held = before.first().copied().unwrap_or(0);
        let (granted, positions) = match &self.target {
            GrantTarget::MemoryEntry { entry, .. } => (GrantedPermits::MemoryEntry { entry: *entry, held }, vec![0]),
            GrantTarget::Granted { token, .. } => {
                let requests = vec![token.request(held)];
                (GrantedPermits::Any { requests, refund_info: token.refund_info() }, vec![0])
            }
            GrantTarget::Any(receipt) => {
                let of_all = receipt.requests.iter().map(OwnedRequest::as_request).zip(before);
                let of_all: Vec<_> = of_all.map(|(request, before)| Request { cost: *before, ..request }).collect();
                let shares = |index: &usize| {
                    (0..of_all.len()).any(|other| is_about(other) && in_memory(&of_all[*index], &of_all[other]))
                };
                let positions: Vec<_> = (0..of_all.len()).filter(shares).collect();
                let requests = positions.iter().map(|index| of_all[*index]).collect();
                let refund_info = receipt.refund_info.of_requests(&positions);
                (GrantedPermits::Any { requests, refund_info }, positions)
            }
        };
        let after = positions.iter().map(|index| after[*index]).collect();
        let requests = positions.into_iter().map(|index| (index, is_about(index))).collect();
        UsedReceipt { granted, after, refunded, requests }
    }
}

/// The uses of a receipt so far.
#[derive(Default)]
struct ReceiptUse {
    /// The permits of each request that refunds have returned, or its whole cost if that is less.
    refunded: u32,
    /// The permits that each settled request counts. Empty before the first settlement.
    settled: Vec<Option<u32>>,
}

impl ReceiptUse {
    fn is_settled(&self, index: usize) -> bool {
        self.settled.get(index).is_some_and(Option::is_some)
    }

    /// The permits that a request of this cost counts now.
    fn count(&self, index: usize, cost: u32) -> u32 {
        self.settled.get(index).copied().flatten().unwrap_or_else(|| cost.saturating_sub(self.refunded))
    }
}

/// The uses that the clones of a receipt share. They are allocated by the first clone or the first use.
#[derive(Default)]
struct SharedUse(OnceLock<Arc<Mutex<ReceiptUse>>>);

impl SharedUse {
    fn shared(&self) -> &Arc<Mutex<ReceiptUse>> {
        self.0.get_or_init(Arc::default)
    }
}

impl Clone for SharedUse {
    fn clone(&self) -> Self {
        Self(Arc::clone(self.shared()).into())
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("limiter_id", &self.limiter_id).finish_non_exhaustive()
    }
}

// The identity of a limiter, by which it recognises its own receipts.

/// A number that no other limiter of this process ever has.
///
/// A receipt does not point to its limiter. Each decision would then increment a reference count, in a cache line that
/// all threads write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimiterId(u64);

/// The limiter of a receipt, and the options of its call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiptTerms {
    pub(crate) limiter_id: LimiterId,
    pub(crate) on_error: OnError,
    pub(crate) deadline: Option<Duration>,
}

impl LimiterId {
    /// Returns a new id.
    pub(crate) fn next() -> Self {
        Self(next_id())
    }
}
