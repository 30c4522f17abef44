//! The in-process stand-in: a mirror of what this process admitted, kept warm while the store is well.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
use crate::Source;
use crate::clock::Clock;
use crate::local::recent_failures::{RecentFailures, Slots};
use crate::overflow::Overflows;
use crate::request::{Request, StoreReply};
use crate::store::memory::MemoryStore;
use crate::store::naming::Naming;
use crate::{Error, Key, Limit};

/// Decides while the store cannot, and for as long as a permit counts after its last failure has a say beside it: a
/// store that comes back empty would hand out every quota a second time.
///
/// The mirror counts `fixed_window` and `sliding_counter` by the sliding window's log, since their edges are those of the
/// server's clock. So its `remaining`, `retry_after` and `reset_after` for them are the log's.
///
/// Of a limit that several instances share it gives its share away and no more, so that all of them together stay
/// within it. Nothing is written back to the store. What the mirror keeps of an admission is stamped when the store's answer
/// arrives, so it is never older than the store's own.
#[derive(Debug)]
pub(crate) struct Standby {
    mirror: MemoryStore,
    clock: Clock,
    recent_failures: RecentFailures,
    /// Instances that share each limit.
    instances: NonZeroU32,
    /// When it was made in a child of `fork`, in microseconds of the clock; 0 if it was not.
    since: u64,
}

/// What a stand-in is made for.
#[derive(Debug)]
pub(crate) struct StandbyConfig {
    /// Keys that it keeps apart.
    pub(crate) max_keys: usize,
    /// Instances that share each limit.
    pub(crate) instances: NonZeroU32,
    /// Slots that the store spreads its keys over, or 1.
    pub(crate) slots: u16,
    /// By which it does.
    pub(crate) naming: Arc<Naming>,
}

/// What the stand-in says before the store is asked.
#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "without it no store answers beside the stand-in"))]
#[derive(Debug)]
pub(crate) enum Precheck {
    /// The store decides alone.
    Skip,
    /// The stand-in holds the permits for the call; the store must agree.
    Reserved(StoreReply),
    /// The stand-in says no, and that is enough.
    Denied(StoreReply),
}

impl Standby {
    #[cfg(test)]
    pub(crate) fn new(role: &StandbyConfig, clock: Clock) -> Self {
        Self::counting(role, clock.clone(), Overflows::new(Source::Standby, role.max_keys, clock))
    }

    /// Counts overflows of the mirror where those of a stand-in before it are counted.
    pub(crate) fn counting(role: &StandbyConfig, clock: Clock, overflows: Arc<Overflows>) -> Self {
        let mirror = MemoryStore::mirror(role.max_keys, clock.clone(), overflows);
        Self {
            mirror,
            clock,
            recent_failures: RecentFailures::new(role.slots, Arc::clone(&role.naming)),
            instances: role.instances,
            since: 0,
        }
    }

    /// The stand-in of a child of `fork`.
    pub(crate) fn for_child(self) -> Self {
        Self { since: self.clock.now().micros(), ..self }
    }

    /// # Errors
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked), in a child of the process that made it.
    pub(crate) fn decide(&self, requests: &[Request<'_>], max_wait: Duration) -> Result<StoreReply, Error> {
        self.shared(requests, |requests| self.mirror.decide_within(requests, max_wait))
    }

    /// # Errors
    /// As for [`decide`](Self::decide).
    pub(crate) fn peek(&self, requests: &[Request<'_>]) -> Result<StoreReply, Error> {
        self.shared(requests, |requests| self.mirror.peek(requests))
    }

    /// Puts the requests to the mirror with this instance's share of their limits.
    fn shared(
        &self,
        requests: &[Request<'_>],
        ask: impl FnOnce(&[Request<'_>]) -> Result<StoreReply, Error>,
    ) -> Result<StoreReply, Error> {
        if self.instances == NonZeroU32::MIN {
            return ask(requests);
        }
        let share = |limit: Limit| limit.share_of(self.instances);
        let shares: Vec<_> =
            requests.iter().map(|request| Request { limit: share(request.limit), ..*request }).collect();
        let answer = ask(&shares)?;
        let fits = |request: &Request<'_>| request.cost <= request.limit.most_at_once();
        Ok(match (answer.allowed, answer.retry_after) {
            // Too much for a share, but not for the limit: the store may allow it once it is back.
            (false, None) if requests.iter().all(fits) => StoreReply { retry_after: Some(SOON), ..answer },
            _ => answer,
        })
    }

    /// Notes permits that the stand-in did not grant; gives their stamp.
    ///
    /// Here and below, nothing is done in a child of the process that made it where a lock was held at the fork: the child
    /// has a stand-in of its own.
    pub(crate) fn record(&self, requests: &[Request<'_>]) -> u64 {
        self.mirror.record(requests).unwrap_or(0)
    }

    /// Gives back permits that were taken, held or noted at `stamp`.
    pub(crate) fn refund(&self, requests: &[Request<'_>], stamp: u64) {
        // Permits from before it was made are those of the process that this one was forked from.
        if stamp >= self.since {
            let _ = self.mirror.refund(requests, stamp);
        }
    }

    pub(crate) fn reset(&self, key: &Key, limit: Limit) {
        let _ = self.mirror.reset(key, limit);
    }

    /// The store failed a call, which the stand-in may have admitted then.
    pub(crate) fn call_failed(&self, requests: &[Request<'_>]) {
        self.recent_failures.call_failed(requests, self.clock.now().ceil_millis());
    }
}

/// When a call may try again that nobody can promise anything.
const SOON: Duration = Duration::from_secs(1);

#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "without it no store answers beside the stand-in"))]
impl Standby {
    /// The store failed several calls at the same moment.
    pub(crate) fn calls_failed<'q>(&self, requests: impl Iterator<Item = Request<'q>>) {
        let now = self.clock.now().ceil_millis();
        requests.for_each(|request| self.recent_failures.call_failed(&[request], now));
    }

    /// A server may have lost what it knew of its slots.
    pub(crate) fn server_failed(&self, slots: &Slots) {
        self.recent_failures.server_failed(slots, self.clock.now().ceil_millis());
    }

    /// Returns whether the store may have lost permits that the mirror recorded at `stamp`.
    pub(crate) fn may_be_lost(&self, requests: &[Request<'_>], stamp: u64) -> bool {
        self.recent_failures.has_server_failed_since(requests, stamp / 1000)
    }

    /// Asks the stand-in first, if the store failed not so long ago that nothing from before counts.
    pub(crate) fn reserve(&self, requests: &[Request<'_>], max_wait: Duration) -> Precheck {
        if !self.is_consulted(requests) {
            return Precheck::Skip;
        }
        match self.decide(requests, max_wait) {
            Ok(answer) if answer.allowed => Precheck::Reserved(answer),
            Ok(answer) => Precheck::Denied(answer),
            // Only the process that made it has a worker that gets here.
            Err(_) => Precheck::Skip,
        }
    }

    /// The same for a look, which holds nothing: the stand-in's denial, if it has a say.
    pub(crate) fn peek_denial(&self, requests: &[Request<'_>]) -> Option<StoreReply> {
        let answer = self.is_consulted(requests).then(|| self.peek(requests))?.ok()?;
        (!answer.allowed).then_some(answer)
    }

    /// Squares the mirror with the store's answer; gives the mirror's stamp of what was taken.
    ///
    /// # Errors
    /// The stand-in's denial, if it has had a say since the call was sent: meanwhile it may have admitted others.
    pub(crate) fn reconcile(
        &self,
        requests: &[Request<'_>],
        max_wait: Duration,
        reservation: Option<&StoreReply>,
        answer: &StoreReply,
    ) -> Result<u64, StoreReply> {
        match reservation {
            // The store's stamp is younger than the hold.
            Some(reservation) if answer.allowed => Ok(self.mirror.restamp(requests, reservation.stamp).unwrap_or(0)),
            Some(reservation) => {
                self.refund(requests, reservation.stamp);
                Ok(0)
            }
            None if answer.allowed => {
                // A child of `fork` has a standby limiter of its own.
                let Ok(own) = self.decide(requests, max_wait) else { return Ok(0) };
                if own.allowed {
                    return Ok(own.stamp);
                }
                self.record_if_store_is_sound(requests).ok_or(own)
            }
            None => Ok(0),
        }
    }

    /// The same for admissions by the store that are of one kind, put in one request, where nothing is held: the stamp of
    /// them all. `None` if the stand-in has had a say since, and would deny one of them.
    pub(crate) fn reconcile_batch(&self, request: &Request<'_>) -> Option<u64> {
        let requests = [*request];
        let own = self.decide(&requests, Duration::ZERO).ok()?;
        if own.allowed { Some(own.stamp) } else { self.record_if_store_is_sound(&requests) }
    }

    /// Records permits beyond the mirror's own limit; `None`, and nothing recorded, if the standby limiter is consulted.
    ///
    /// The record comes first. A failure that is marked after it finds the permits here; one that is marked before it is
    /// found here.
    fn record_if_store_is_sound(&self, requests: &[Request<'_>]) -> Option<u64> {
        let stamp = self.record(requests);
        if self.is_consulted(requests) {
            self.refund(requests, stamp);
            return None;
        }
        Some(stamp)
    }

    fn is_consulted(&self, requests: &[Request<'_>]) -> bool {
        self.recent_failures.any_within_window(requests, self.clock.now().floor_millis())
    }
}

#[cfg(all(test, feature = "redis", feature = "test-util", not(limiter_loom)))]
mod tests;
