//! Receipts that travel: a call is settled by another process than the one that made it.

use crate::decision::receipt::{GrantedPermits, UsedReceipt};
use crate::limiter::{Backend, Inside, Limiter};
use crate::receipt::book::{ReceiptBook, random_id};
use crate::receipt::{Digest, HeldCounter, ReceiptBody, ReceiptPermits};
use crate::request::once::Once;
use crate::request::settlement::{CounterChange, changes};
use crate::request::sharing::{in_memory, in_redis};
use crate::request::{CountedReply, RefundInfo, Request, Settlement};
use crate::run::block_on;
use crate::{Allowed, Error, ErrorKind, Key, Limit, Receipt, Source, Usage};

/// Receipts that travel, for a call whose cost another process learns.
impl Limiter {
    /// Returns the receipt of what an allowed call holds on a key, as a text for any process: see [`Receipt`].
    ///
    /// The permits are the receipt's from here on: a [`settle`](Limiter::settle) or [`refund`](Limiter::refund) of the decision
    /// does not change them any more. They count until the receipt is used, or for good if it is lost. If the decision has
    /// several keys, each has a receipt of its own, and the requests of the other keys stay as they are.
    ///
    /// It needs [`Builder::receipt_secret`](crate::Builder::receipt_secret). Nothing is sent to the store.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the limiter has no secret for receipts, or the decision is one of another limiter or has no such
    /// key. [`ErrorKind::Settled`] if the call was settled, or has a receipt already.
    pub fn receipt(&self, key: &Key, allowed: &Allowed) -> Result<Receipt, Error> {
        self.inside().receipt(key, allowed)
    }

    /// Settles the call of a receipt: from here on it counts `actual` permits, as by [`settle`](Limiter::settle). Each request of
    /// the call counts as many.
    ///
    /// The process may be another than that of the call, with the same store, [`prefix`](crate::Builder::prefix) and
    /// [secret](crate::Builder::receipt_secret). A receipt can be used once, and until a window of its longest limit has passed
    /// since the decision, or an hour if that is longer.
    ///
    /// What the call did not need is given back only if this limiter was connected to the server before the decision, and
    /// without a failure since: the server may have lost the permits otherwise, and would give back those of other calls. So
    /// connect early. Permits of a [lease](crate::Builder::leases) and of a standby limiter are not given back either. What the
    /// call needed in addition is always charged. The receipt of a call that counted nothing does nothing: the
    /// [source](Usage::source) of the usage is that of the decision.
    ///
    /// # Errors
    /// Nothing is counted after an error of these kinds:
    ///
    /// - [`ErrorKind::Settled`]: the receipt was used before.
    /// - [`ErrorKind::Config`]: it was altered, is of another key, secret or prefix, is too old, or the limiter has no secret.
    ///
    /// Otherwise the store's failure, whatever the policy. The call may be settled or not then. The receipt can be used again:
    /// that settles the call, or says that it is settled.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have settled the call or not. The receipt can be used again.
    pub async fn settle_receipt(&self, key: &Key, receipt: &Receipt, actual: u32) -> Result<Usage, Error> {
        self.inside().settle_receipt(key, receipt, actual).await
    }

    /// Refunds the call of a receipt, for a call that did not happen after all: [`settle_receipt`](Limiter::settle_receipt) to
    /// no permits.
    ///
    /// # Errors
    /// As for [`settle_receipt`](Limiter::settle_receipt).
    ///
    /// # Cancel safety
    /// As for [`settle_receipt`](Limiter::settle_receipt).
    pub async fn refund_receipt(&self, key: &Key, receipt: &Receipt) -> Result<(), Error> {
        self.settle_receipt(key, receipt, 0).await.map(drop)
    }

    /// Settles the call of a receipt: [`settle_receipt`](Limiter::settle_receipt) for code that is not async.
    ///
    /// # Errors
    /// As for [`settle_receipt`](Limiter::settle_receipt).
    pub fn settle_receipt_blocking(&self, key: &Key, receipt: &Receipt, actual: u32) -> Result<Usage, Error> {
        block_on(self.settle_receipt(key, receipt, actual))
    }

    /// Refunds the call of a receipt: [`refund_receipt`](Limiter::refund_receipt) for code that is not async.
    ///
    /// # Errors
    /// As for [`settle_receipt`](Limiter::settle_receipt).
    pub fn refund_receipt_blocking(&self, key: &Key, receipt: &Receipt) -> Result<(), Error> {
        block_on(self.refund_receipt(key, receipt))
    }
}

/// The shortest time for which a receipt can be used, in milliseconds: an hour.
const MIN_LIFE_MILLIS: u64 = 3_600_000;

impl Inside {
    fn receipt_book(&self) -> Result<&ReceiptBook, Error> {
        self.receipts.as_deref().ok_or_else(|| {
            let problem = "`receipt_secret` must be set for receipts, got none: set it on the builder of each process";
            Error::new(ErrorKind::Config, problem)
        })
    }

    fn receipt(&self, key: &Key, allowed: &Allowed) -> Result<Receipt, Error> {
        let book = self.receipt_book()?;
        allowed.receipts().try_for_each(|claim| self.check_owner(claim.receipt))?;
        let (mut handed, mut settled_before) = (Vec::new(), false);
        // A rule in shadow mode beside others takes its permits at a time of its own. It keeps what it took.
        for claim in allowed.receipts().filter(|claim| claim.is_shadow == allowed.is_shadow()) {
            // Once it is handed over, nothing else can settle it.
            let limits = claim.receipt.limits_of(key);
            let requests: Vec<_> = limits.into_iter().map(|limit| Request::new(key, limit, 1)).collect();
            if let Backend::Guarded(guard) = &self.backend {
                guard.check_receipt(&requests)?;
            }
            match claim.receipt.hand_over(key, allowed.limit()) {
                Ok(used) => handed.extend(used),
                Err(_) => settled_before = true,
            }
        }
        let problem = |kind, problem: &str| Err(Error::new(kind, problem));
        if handed.is_empty() && settled_before {
            return problem(
                ErrorKind::Settled,
                "`allowed` must hold permits of `key`, got a decision that was settled or has a receipt",
            );
        }
        if handed.is_empty() && allowed.receipts().next().is_some() {
            return problem(
                ErrorKind::Config,
                "`key` must be one of the decision, got another one: give a key of the call",
            );
        }
        Ok(book.sign(self.body_of(&handed, book.key_digest(key), allowed)))
    }

    /// The content of the receipt of these permits of one key.
    fn body_of(&self, handed: &[UsedReceipt<'_>], key: Digest, allowed: &Allowed) -> ReceiptBody {
        let mut permits = match allowed.source() {
            _ if !handed.is_empty() => ReceiptPermits::Returnable,
            Source::Policy => ReceiptPermits::NoneByPolicy,
            _ => ReceiptPermits::NoneByMode,
        };
        let (mut stamps, mut counters) = (Vec::new(), Vec::new());
        for UsedReceipt { granted, after, requests: positions, .. } in handed {
            match granted {
                GrantedPermits::MemoryEntry { held, .. } => {
                    stamps.push(allowed.decided_at());
                    counters.push(HeldCounter { limit: allowed.limit(), held: *held, requests: 1 });
                }
                GrantedPermits::Any { requests, refund_info } => {
                    if refund_info.source != Source::Store || refund_info.log_mark.is_some() {
                        permits = ReceiptPermits::Kept;
                    }
                    stamps.extend((0..requests.len()).map(|index| refund_info.stamp_of_request(index)));
                    let is_meant: Vec<_> = positions.iter().map(|(_, is_meant)| *is_meant).collect();
                    counters.extend(self.held_counters(requests, after, &is_meant));
                }
            }
        }
        // Permits of several times could not be given back by one stamp.
        if stamps.iter().any(|stamp| *stamp != stamps[0]) {
            permits = ReceiptPermits::Kept;
        }
        let windows = counters.iter().map(|counter| counter.limit.window_millis());
        let life = windows.max().unwrap_or(0).max(MIN_LIFE_MILLIS) * 1000;
        let stamp = stamps.iter().copied().max().unwrap_or(0);
        ReceiptBody { id: random_id(), key, stamp, end: stamp.saturating_add(life), permits, counters }
    }

    /// The permits that requests hold on each of their counters, if they count `after` without the receipt. Others on the
    /// counters are not meant.
    fn held_counters(&self, requests: &[Request<'_>], after: &[u32], is_meant: &[bool]) -> Vec<HeldCounter> {
        let same_counter = match &self.backend {
            Backend::Memory(_) => in_memory,
            Backend::Guarded(_) => in_redis,
        };
        let held = changes(requests, after, same_counter);
        let none: Vec<_> = requests.iter().map(|request| Request { cost: 0, ..*request }).collect();
        let one_each: Vec<_> = is_meant.iter().map(|is_meant| u32::from(*is_meant)).collect();
        let added = changes(&none, &one_each, same_counter);
        let counter = |(held, added): (&CounterChange<'_>, &CounterChange<'_>)| HeldCounter {
            limit: held.charged.limit,
            held: held.returned,
            requests: added.charged.cost,
        };
        let mut counters: Vec<HeldCounter> = Vec::new();
        for (counter, request) in held.iter().zip(&added).map(counter).zip(requests) {
            let is_same = |known: &&mut HeldCounter| known.limit == request.limit;
            match counters.iter_mut().find(is_same) {
                Some(known) => {
                    known.held = known.held.saturating_add(counter.held);
                    known.requests = known.requests.saturating_add(counter.requests);
                }
                None => counters.push(counter),
            }
        }
        counters.retain(|counter| counter.requests > 0);
        counters
    }

    async fn settle_receipt(&self, key: &Key, receipt: &Receipt, actual: u32) -> Result<Usage, Error> {
        let book = self.receipt_book()?;
        let body = book.open(receipt, key)?;
        if body.counters.is_empty() {
            return Ok(Usage::of_uncounted(Limit::WIDEST, body.permits.source(), actual, Limit::WIDEST.max_cost()));
        }
        let (requests, after) = (body.requests(key), body.after(actual));
        let spend = || book.spend(body, self.clock.now().micros());
        let counted = match &self.backend {
            Backend::Memory(store) => {
                spend()?;
                CountedReply::from_charge(store.settle(&requests, &after, body.stamp), 0)
            }
            Backend::Guarded(guard) => {
                if !guard.marks_receipts() {
                    spend()?;
                }
                let once = Some(Once { id: body.id, end: body.end });
                let settlement = Settlement { info: RefundInfo::from_store(body.stamp), after, once };
                guard.settle_receipt(&requests, settlement, self.default_options(), &self.observers).await?
            }
        };
        if let Some(refusal) = counted.per_request.as_ref().and_then(|per_request| per_request.refusal) {
            return Err(refusal.into());
        }
        self.wake_waiters(requests.iter().map(Request::counter_hash));
        Ok(Usage::new(&requests, &counted))
    }
}
