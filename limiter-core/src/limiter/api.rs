//! What can be asked of a limiter.

use std::time::Duration;

use crate::decision::receipt::RefundTarget;
use crate::decision::{Allowed, Decision, DecisionContext};
use crate::limiter::check::Checking;
use crate::limiter::{Backend, Limiter};
use crate::request::RefundInfo;
use crate::request::{OwnedRequest, Request};
use crate::{Error, ErrorKind, Key, Limit};

impl Limiter {
    /// Takes one permit, if there is one.
    ///
    /// # Errors
    /// The store's failure, and only if this limiter's [`OnError`](crate::OnError) is [`Raise`](crate::OnError::Raise): every other policy
    /// turns it into a decision.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have taken its permit.
    #[inline]
    pub fn check<'a>(&'a self, key: &'a Key, limit: &'a Limit) -> impl Future<Output = Result<Decision, Error>> + Send {
        self.check_n(key, limit, 1)
    }

    /// Takes `cost` permits, if there are as many: all or none.
    ///
    /// A cost of 0 is allowed and takes nothing; one above the limit's `max` is denied
    /// [for good](crate::Denied::is_final).
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// As for [`check`](Limiter::check).
    #[inline]
    pub fn check_n<'a>(
        &'a self,
        key: &'a Key,
        limit: &'a Limit,
        cost: u32,
    ) -> impl Future<Output = Result<Decision, Error>> + Send {
        Checking { limiter: self, key, limit, cost, asking: None, is_done: false }
    }

    /// Takes permits of several limits at once, `(key, limit, cost)` each: all of them or none.
    ///
    /// The decision is about one of them: a denial about the first that denies, with a `retry_after` that holds for
    /// all; an admission about the one with the least left. Where two are counted together, their costs add up. Of no
    /// limits, nothing is asked and the call is allowed.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limit, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let limiter = Limiter::memory();
    /// let (user, everybody) = (Key::new("user:").part(42), Key::new("everybody"));
    /// let (burst, day, total): (Limit, Limit, Limit) = ("5/s".parse()?, "1000/d".parse()?, "500/s".parse()?);
    /// let decision = limiter.check_all(&[(&user, &burst, 1), (&user, &day, 1), (&everybody, &total, 1)]).await?;
    /// assert_eq!(decision.remaining(), 4);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// As for [`check`](Limiter::check).
    pub async fn check_all(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Decision, Error> {
        let requests: Vec<_> = limits.iter().map(|&(key, limit, cost)| Request { key, limit: *limit, cost }).collect();
        self.decide(direct(&requests), self.terms()).await
    }

    /// Takes one permit, waiting up to `max_wait` for it.
    ///
    /// A call for which there is room is allowed at once, unless others wait. Calls of this process that were denied wait in
    /// the order of their numbers. A call takes its number at the first poll of its future ([`wait_blocking`] when it is
    /// called). No call waits for another call's answer while permits are free: so a later call may be admitted while the
    /// answer of an earlier one is on its way.
    ///
    /// There is one queue for each key, algorithm, window, `max` and burst; for a decision with several limits, one for the
    /// whole set. Within a queue the first call is served first, whatever it costs.
    ///
    /// A call that could not be served in time even by an empty queue is denied at once, not at the end of its wait; so is one
    /// that a policy denies. A call that still waits at the end is denied then. Its `retry_after` is the store's; where there
    /// is room but others are ahead, it is the time until the first of them is expected to go on.
    ///
    /// A future that is not polled delays the others by little more than 10 ms of the limiter's clock. If it is woken and not
    /// polled for so long, as in a branch of `select!` while a body runs, it is passed over. It keeps its entry for the next
    /// permit.
    ///
    /// [`wait_blocking`]: Limiter::wait_blocking
    ///
    /// A [leaky bucket](crate::Algorithm::LeakyBucket) is a queue by itself, in which all processes stand: there a call
    /// is given its turn in one round trip, or denied if that does not come in time or too many wait already.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use std::time::Duration;
    /// use rate_limited::{Key, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let (limiter, key, limit) = (Limiter::memory(), Key::new("mail"), "1/10ms".parse()?);
    /// for _ in 0..3 {
    ///     assert!(limiter.wait(&key, &limit, Duration::from_secs(5)).await?.is_allowed());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// A future that is dropped while it waits takes nothing and lets the next one go on; one that is dropped while
    /// it asks may have taken its permit. Of a leaky bucket it loses the turn that it was given, which passes unused:
    /// those behind have been told theirs.
    pub async fn wait(&self, key: &Key, limit: &Limit, max_wait: Duration) -> Result<Decision, Error> {
        let requests = [Request { key, limit: *limit, cost: 1 }];
        self.decide_within(direct(&requests), self.terms(), max_wait).await
    }

    /// What [`check`](Limiter::check) would say now, taking nothing: `remaining` is what there is before the call.
    ///
    /// Observers of decisions are not told.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// Nothing is taken, whether the future is dropped or not.
    pub async fn peek(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        let requests = [Request { key, limit: *limit, cost: 1 }];
        self.look(direct(&requests), self.terms()).await
    }

    /// Gives back what an allowed call took, because it came to nothing after all.
    ///
    /// Never more than what would be there if the call had not been made, and so sometimes less than it took. A sliding
    /// window gives back the call's own permits while they count, and is then as if the call had not been made; the other
    /// window algorithms what still counts; a token bucket what has not come back by itself meanwhile; a leaky bucket the
    /// turn that it gave last, and no other; a bucket that keys have to share, because
    /// [`max_keys`](crate::Builder::max_keys) are in use, nothing; a server that has failed since and may have lost the
    /// permits, nothing. Nothing is given back where nothing was taken, as by a
    /// policy or for a cost of 0, nor a second time: clones are the same receipt.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Decision, Key, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let (limiter, key, limit) = (Limiter::memory(), Key::new("export"), "1/h".parse()?);
    /// if let Decision::Allowed(allowed) = limiter.check(&key, &limit).await? {
    ///     // There was nothing to export.
    ///     limiter.refund(&allowed).await?;
    /// }
    /// assert!(limiter.check(&key, &limit).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The store's failure, whatever the policy: the permits may or may not be back, and the receipt is used up.
    /// [`ErrorKind::Config`] for a receipt of another limiter.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have given the permits back, and has used the receipt up.
    pub async fn refund(&self, allowed: &Allowed) -> Result<(), Error> {
        let Some(receipt) = allowed.receipt() else { return Ok(()) };
        if !receipt.is_of(self.inner.limiter_id) {
            return Err(Error::new(
                ErrorKind::Config,
                "permits can only be given back to the limiter that granted them",
            ));
        }
        let (asked, granted) = match receipt.spend() {
            None => return Ok(()),
            Some(RefundTarget::MemoryEntry { entry, cost, stamp, .. }) => {
                if let Backend::Memory(store) = &self.inner.backend {
                    return store.refund_entry(*entry, allowed.limit(), *cost, *stamp);
                }
                return Ok(());
            }
            Some(RefundTarget::Any(whole)) => (&whole.asked, &whole.granted),
        };
        let requests: Vec<_> = asked.iter().map(OwnedRequest::as_request).collect();
        match &self.inner.backend {
            Backend::Memory(store) => store.refund(&requests, granted.stamp),
            Backend::Guarded(guard) => guard.refund(&requests, RefundInfo::clone(granted), &self.inner.observers).await,
        }
    }

    /// Forgets what `key` has taken of `limit`, and of any limit with the same algorithm and window. Receipts from
    /// before give nothing back (but for one of the very millisecond in which the key was reset and taken from again).
    ///
    /// While the stand-in has a say, in another process too, that process's own count goes on. A key that has to share
    /// its count, because [`max_keys`](crate::Builder::max_keys) are in use, is not forgotten: others share it.
    ///
    /// # Errors
    /// The store's failure, whatever the policy: the key may not be forgotten there.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have reset the key.
    pub async fn reset(&self, key: &Key, limit: &Limit) -> Result<(), Error> {
        match &self.inner.backend {
            Backend::Memory(store) => store.reset(key, *limit),
            Backend::Guarded(guard) => guard.reset(key, *limit, &self.inner.observers).await,
        }
    }
}

/// The name that decisions of direct calls carry.
pub(super) const DIRECT: &str = "check";

/// The requests of a direct call.
pub(super) fn direct<'a>(requests: &'a [Request<'a>]) -> DecisionContext<'a> {
    DecisionContext { names: &[DIRECT], requests }
}
