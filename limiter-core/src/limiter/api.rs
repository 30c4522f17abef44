//! The async methods of a limiter.

use std::iter;
use std::time::Duration;

use crate::decision::{DIRECT_CALL, Decision, DecisionContext};
use crate::health::{Health, HealthState};
use crate::limiter::decide::CheckFuture;
use crate::limiter::planned::{check_holds_nothing, decision_of};
use crate::limiter::wait::Waiting;
use crate::limiter::{Backend, Inside, Limiter};
use crate::request::{Request, check_number_of};
use crate::run::block_on;
use crate::{Error, Key, Limit};

impl Limiter {
    /// Takes one permit if there is one.
    ///
    /// # Errors
    /// The store's failure, if this limiter's [`OnError`](crate::OnError) is [`Raise`](crate::OnError::Raise). Every
    /// other policy turns the failure into a decision.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have taken its permit.
    #[inline]
    pub fn check<'a>(&'a self, key: &'a Key, limit: &'a Limit) -> impl Future<Output = Result<Decision, Error>> + Send {
        self.check_n(key, limit, 1)
    }

    /// Takes `cost` permits if there are as many: all of them or none.
    ///
    /// A cost of 0 is allowed and takes nothing. A cost above the limit's `max` is a [final](crate::Denied::is_final)
    /// denial. The bucket algorithms have `burst` as that bound.
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
        CheckFuture { limiter: self, key, limit, cost, inner: None, is_done: false }
    }

    /// Takes permits of several limits at once, all of them or none. Each limit is a `(key, limit, cost)`.
    ///
    /// The decision describes one of the limits. A denial describes the first limit that denies, with a `retry_after`
    /// that holds for all limits. An allowed decision describes the limit with the least permits left. If two limits
    /// have the same counter, their costs add up. A call without limits is allowed, and nothing is sent.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limit, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let limiter = Limiter::memory();
    /// let (user, all_users) = (Key::new("user:").part(42), Key::new("all users"));
    /// let (burst, day, total): (Limit, Limit, Limit) = ("5/s".parse()?, "1000/d".parse()?, "500/s".parse()?);
    /// let decision = limiter.check_all(&[(&user, &burst, 1), (&user, &day, 1), (&all_users, &total, 1)]).await?;
    /// assert_eq!(decision.remaining(), 4);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`check`](Limiter::check). [`ErrorKind::InvalidLimit`](crate::ErrorKind::InvalidLimit) for more than 128 limits, under every policy.
    ///
    /// # Cancel safety
    /// As for [`check`](Limiter::check).
    pub async fn check_all(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Decision, Error> {
        check_number_of(limits.len())?;
        check_holds_nothing(limits.iter().map(|(_, limit, _)| **limit))?;
        let (inside, requests) = (self.inside(), limits.iter());
        let requests: Vec<_> = requests.map(|&(key, limit, cost)| Request::new(key, *limit, cost)).collect();
        if inside.rules.switch().is_some() {
            let plan = inside.rules.plan_direct(DIRECT_CALL, &requests);
            return inside.decide(&plan, None).await.map(decision_of);
        }
        inside.decide_requests(DecisionContext::direct(&requests), *inside.default_options(), None).await
    }

    /// Takes one permit, waiting up to `max_wait` for it.
    ///
    /// A call for which there are permits is allowed at once, unless other calls wait. Denied calls of this process
    /// wait in the order of their numbers. A call takes its number at the first poll of its future, and
    /// [`wait_blocking`] when it is called. No call waits for another call's reply while permits are free. So a later
    /// call may be allowed while the reply to an earlier one is on its way.
    ///
    /// There is one queue for each combination of key, algorithm, window, `max` and burst. A decision about several
    /// limits has one queue for the whole set. A queue serves its calls in order, whatever they cost.
    ///
    /// A call is denied at once if even an empty queue could not serve it within `max_wait`, or if a failure policy
    /// denies it. It is also denied at once if the costs of the calls ahead and its own are more than the limit can give
    /// within `max_wait`. That counts the calls ahead as served: if one of them leaves, or after a refund, a raised limit
    /// or an outage, the call could have passed. So it could where callers with a higher `max` use the same token bucket
    /// and refill it faster. Otherwise it is denied when `max_wait` elapses. Its `retry_after` is then
    /// the store's. If there are permits but other calls are ahead, it is the time until the first of them is expected to
    /// take its permits.
    ///
    /// A [refund](Limiter::refund) or a [reset](Limiter::reset) wakes the first call of every queue that needs its
    /// permits. Those of another process are not seen here, so the first call of a queue checks a shared store again each
    /// second. No observer and no metric counts these checks, and their failures change nothing for the call. Of
    /// several queues that need permits of one counter, each checks at once after the first refund. Those that are denied
    /// then make about a thousand such checks a second in all, or one each if they are more.
    ///
    /// A future that is not polled delays the others by little more than 10 ms of the limiter's clock. If it is woken
    /// and not polled for so long, as in a branch of `select!` while a body runs, it is passed over. It keeps its
    /// number, and with it its place before later calls.
    ///
    /// [`wait_blocking`]: Limiter::wait_blocking
    ///
    /// A [leaky bucket](crate::Algorithm::LeakyBucket) is itself a queue, which all processes share. A call gets its
    /// turn in one round trip. It is denied if the turn is not within `max_wait`, or if the queue is full.
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
    /// A future that is dropped while it waits takes nothing, and the next call in its queue goes on. A future that is
    /// dropped while its request is in flight may have taken its permit. A leaky bucket's turn then passes unused,
    /// because later calls have their turns already.
    pub fn wait(
        &self,
        key: &Key,
        limit: &Limit,
        max_wait: Duration,
    ) -> impl Future<Output = Result<Decision, Error>> + Send {
        self.wait_n(key, limit, 1, max_wait)
    }

    /// Takes `cost` permits, all of them or none, waiting up to `max_wait` for them.
    ///
    /// It waits as [`wait`](Limiter::wait) does, in the same queues, which serve their calls in order whatever they
    /// cost. So a call of a high cost is not passed by calls of lower costs. A cost of 0 takes nothing and waits for
    /// its turn. A cost that [`check_n`](Limiter::check_n) would never allow is denied at once.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use std::time::Duration;
    /// use rate_limited::{Key, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let (limiter, key, limit) = (Limiter::memory(), Key::new("rows"), "500/20ms".parse()?);
    /// for rows in [300, 300, 300] {
    ///     assert!(limiter.wait_n(&key, &limit, rows, Duration::from_secs(5)).await?.is_allowed());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// As for [`wait`](Limiter::wait).
    pub async fn wait_n(&self, key: &Key, limit: &Limit, cost: u32, max_wait: Duration) -> Result<Decision, Error> {
        check_holds_nothing([*limit])?;
        let (inside, requests) = (self.inside(), [Request::new(key, *limit, cost)]);
        let mut waiting = inside.begin_wait(max_wait);
        loop {
            let decision = if inside.rules.switch().is_some() {
                Box::pin(inside.wait_switched(&requests, &mut waiting)).await?
            } else {
                inside
                    .decide_waiting(DecisionContext::direct(&requests), inside.default_options(), &mut waiting, None)
                    .await?
            };
            if let Some(decision) = decision {
                return Ok(decision);
            }
        }
    }

    /// Returns the decision that [`check`](Limiter::check) would make now, without taking a permit. `remaining` is the
    /// number of permits before the call.
    ///
    /// Observers of decisions are not called.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// Nothing is taken, whether the future is dropped or not.
    pub async fn peek(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        let requests = [Request::new(key, *limit, 1)];
        let inside = self.inside();
        inside.peek_planned(&inside.rules.plan_direct(DIRECT_CALL, &requests)).await
    }

    /// Resets the counter of `key` for `limit`, and for any limit with the same algorithm and window.
    ///
    /// Receipts from before give nothing back. The exception is a receipt of the very millisecond in which the key was
    /// reset and permits were taken again.
    ///
    /// While the standby limiter of another process is consulted, that process's own counter goes on. A key that shares
    /// its counter with others, because [`max_keys`](crate::Builder::max_keys) are in use, is not reset.
    ///
    /// The counts of a [packed](crate::Rule::packed) rule are in another place, which a limit of a text does not name:
    /// [`Named::reset`](crate::Named::reset) resets them.
    ///
    /// # Errors
    /// The store's failure, whatever the policy. The key may then not be reset in the store.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have reset the key.
    pub async fn reset(&self, key: &Key, limit: &Limit) -> Result<(), Error> {
        self.inside().reset(&Request::new(key, *limit, 0)).await
    }

    /// Returns the name of a key's counter in Redis, for tools that read or delete it there; `None` for a limiter in
    /// memory.
    ///
    /// The name is that of the limiter's own commands, with its prefix, the limit's layout and, with
    /// [`hash_keys`](crate::Builder), the digest. There is none if `hash_keys` forbids the layout. Nothing is sent.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limiter};
    ///
    /// # #[cfg(feature = "redis")] {
    /// let limiter = Limiter::builder().url("redis://127.0.0.1:6379").build()?;
    /// let name = limiter.store_key(&Key::new("user:").part(42), &"5/10s".parse()?);
    /// assert_eq!(name.as_deref(), Some("rl:{user:@42}10s"));
    /// # }
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    #[must_use]
    pub fn store_key(&self, key: &Key, limit: &Limit) -> Option<String> {
        match &self.inside().backend {
            Backend::Memory(_) => None,
            Backend::Guarded(guard) => guard.key_name(&Request::new(key, *limit, 1)),
        }
    }

    /// Returns the health of the store, without a call to it: for readiness checks and metrics.
    ///
    /// It follows the connection and the server's error replies to calls. While it is not
    /// [`Up`](crate::HealthState::Up), the limiter probes the server each second, by a write to a key of its own under
    /// the prefix. So it recovers in a process without calls, and a replica or a full server is not `Up`, although it
    /// replies to reads. While it is `Up`, nothing is probed: a server that stops replying is noticed by the first call
    /// that times out. [`Builder::on_state_change`](crate::Builder::on_state_change) reports changes.
    ///
    /// Of several servers it is the worst. A node that joins a cluster does not count before the first attempt to
    /// connect to it is over. A limiter in memory is always `Up`, and has no server. A child of `fork` has its own
    /// state, which begins with its first call or its first `health`.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{HealthState, Limiter};
    ///
    /// let health = Limiter::memory().health();
    /// assert_eq!((health.state, health.server), (HealthState::Up, None));
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        let Inside { backend, built_at, .. } = self.inside();
        match backend {
            Backend::Memory(_) => Health::new(HealthState::Up, *built_at, None),
            Backend::Guarded(guard) => guard.health(*built_at),
        }
    }
}

// The steps of these methods in one process.

impl Inside {
    /// Decides about a call that may wait, while `RATE_LIMITED_MODE` is set.
    #[cold]
    async fn wait_switched(&self, requests: &[Request<'_>], waiting: &mut Waiting) -> Result<Option<Decision>, Error> {
        let plan = self.rules.plan_direct(DIRECT_CALL, requests);
        if waiting.max_wait().is_zero() {
            return self.decide(&plan, None).await.map(decision_of).map(Some);
        }
        Ok(self.decide_or_wait(&plan, waiting, None).await?.map(decision_of))
    }

    /// Resets the counter of a request, and ends the block of its key.
    pub(super) async fn reset(&self, request: &Request<'_>) -> Result<(), Error> {
        let reset = match &self.backend {
            _ if request.limit.is_concurrent() => return self.reset_slots(request.key).await,
            Backend::Memory(store) => {
                store.reset(request);
                Ok(())
            }
            Backend::Guarded(guard) => guard.reset(request, &self.observers).await,
        };
        self.wake_waiters(iter::once(request.counter_hash()));
        reset
    }
}

// The blocking methods of a limiter, for code that is not async.

/// Blocking methods, for code that is not async.
///
/// Each blocks its thread until the decision is made. A shared store decides within its deadline. The methods work on
/// any thread, inside and outside of runtimes, because threads of the limiter's own run its connections and timers. In
/// an async function use the async method, which lets other tasks run meanwhile.
impl Limiter {
    /// Takes one permit if there is one: [`check`](Limiter::check) for code that is not async.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limiter};
    ///
    /// let (limiter, key, limit) = (Limiter::memory(), Key::new("report"), "1/h".parse()?);
    /// assert!(limiter.check_blocking(&key, &limit)?.is_allowed());
    /// assert!(limiter.check_blocking(&key, &limit)?.is_denied());
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn check_blocking(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        block_on(self.check(key, limit))
    }

    /// Takes `cost` permits if there are as many: [`check_n`](Limiter::check_n) for code that is not async.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn check_n_blocking(&self, key: &Key, limit: &Limit, cost: u32) -> Result<Decision, Error> {
        block_on(self.check_n(key, limit, cost))
    }

    /// Takes permits of several limits at once: [`check_all`](Limiter::check_all) for code that is not async.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn check_all_blocking(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Decision, Error> {
        block_on(self.check_all(limits))
    }

    /// Takes one permit, waiting up to `max_wait` for it: [`wait`](Limiter::wait) for code that is not async.
    ///
    /// The call waits in the same queues as tasks do. It takes its number when it begins.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn wait_blocking(&self, key: &Key, limit: &Limit, max_wait: Duration) -> Result<Decision, Error> {
        block_on(self.wait(key, limit, max_wait))
    }

    /// Takes `cost` permits, waiting up to `max_wait` for them: [`wait_n`](Limiter::wait_n) for code that is not async.
    ///
    /// The call waits in the same queues as tasks do. It takes its number when it begins.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn wait_n_blocking(&self, key: &Key, limit: &Limit, cost: u32, max_wait: Duration) -> Result<Decision, Error> {
        block_on(self.wait_n(key, limit, cost, max_wait))
    }

    /// Decides without taking a permit: [`peek`](Limiter::peek) for code that is not async.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn peek_blocking(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        block_on(self.peek(key, limit))
    }

    /// Resets the counter of a key: [`reset`](Limiter::reset) for code that is not async.
    ///
    /// # Errors
    /// As for [`reset`](Limiter::reset).
    pub fn reset_blocking(&self, key: &Key, limit: &Limit) -> Result<(), Error> {
        block_on(self.reset(key, limit))
    }
}
