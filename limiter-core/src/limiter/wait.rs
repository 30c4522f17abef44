//! Calls that wait for a permit: until the turn that a leaky bucket gives, or in a queue of this process.

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::task::unconstrained;

use crate::clock::{Clock, Moment};
use crate::decision::{Decision, DecisionContext, Denied, Resolution};
use crate::limiter::wait_queue::{Demands, Place, Schedule, Ticket, Turn, WaitQueues};
use crate::limiter::{Backend, Inside};
use crate::request::{CallOptions, Request};
use crate::{Algorithm, Error, Source, metrics};

/// The shortest time between two checks of a call.
const MIN_RETRY: Duration = Duration::from_millis(1);

/// The result of a call's first step: its decision, or its ticket if it waits.
type FirstCheck<'a> = ControlFlow<Decision, Ticket<'a>>;

/// A check of the store by a first waiter, with the instant of its result.
type TurnCheck<'a> = Pin<Box<dyn Future<Output = (Result<Option<Decision>, Error>, Moment)> + Send + Sync + 'a>>;

/// A call that may wait. It keeps its place and the end of its wait while its rules change.
pub(crate) struct Waiting {
    place: Place,
    started_at: Moment,
    deadline: Moment,
    state: WaitingState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitingState {
    /// It has not been checked.
    New,
    /// It has waited under rules that have changed.
    Moved,
    /// Its wait was over when its rules had changed.
    Over,
    /// It does not wait, and its denial is none of its caller's: no observer gets it.
    Once,
}

impl Waiting {
    /// The end of the wait; `None` for a call that does not wait.
    pub(super) fn deadline(&self) -> Option<Moment> {
        (self.state != WaitingState::Once).then_some(self.deadline)
    }

    pub(crate) fn max_wait(&self) -> Duration {
        self.started_at.until(self.deadline)
    }
}

/// The rules that the requests of a waiting call come from.
pub(crate) struct WatchedRules<'a> {
    /// The state of the rules that the call was read in.
    pub(crate) generation: u64,
    /// Reads the call again. Returns whether it is decided as before.
    pub(crate) still_hold: &'a (dyn Fn() -> bool + Send + Sync),
}

impl Inside {
    /// Begins a call that may wait.
    pub(crate) fn begin_wait(&self, max_wait: Duration) -> Waiting {
        let (place, started_at) = (Place::new(), self.clock.now());
        let (deadline, state) = (started_at.after(max_wait), WaitingState::New);
        Waiting { place, started_at, deadline, state }
    }

    /// Begins an attempt of a call that waits elsewhere. It takes permits that are free now, or has no decision.
    pub(super) fn begin_attempt(&self) -> Waiting {
        Waiting { state: WaitingState::Once, ..self.begin_wait(Duration::ZERO) }
    }

    /// Decides about a call that may wait, and calls the observers. `None` if its rules have changed meanwhile, so that
    /// it has to be read again, and for an attempt that is denied.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would keep its arguments twice")]
    pub(crate) fn decide_waiting<'a>(
        &'a self,
        context: DecisionContext<'a>,
        options: &'a CallOptions,
        waiting: &'a mut Waiting,
        rules: Option<&'a WatchedRules<'a>>,
    ) -> impl Future<Output = Result<Option<Decision>, Error>> + Send + 'a {
        async move {
            let decision = match context.requests {
                _ if waiting.state == WaitingState::Once => {
                    let decision = Box::pin(self.decide_once(context, *options)).await?;
                    Some(decision).filter(Decision::is_allowed)
                }
                // A decision about several buckets would have a turn in each of them, so it waits in a queue instead.
                [request] if request.limit.algorithm() == Algorithm::LeakyBucket => {
                    let max_wait = self.clock.now().until(waiting.deadline);
                    Some(Box::pin(self.wait_for_turn(context, *options, max_wait)).await?)
                }
                _ => self.wait_in_queue(context, options, waiting, rules).await?,
            };
            let Some(mut decision) = decision else { return Ok(None) };
            if waiting.state != WaitingState::Once {
                metrics::waited(waiting.started_at, &self.clock, context.names);
            }
            self.expose_key(&mut decision, context.requests);
            self.report(context, &mut decision);
            Ok(Some(decision))
        }
    }

    /// Takes a turn of a leaky bucket and sleeps until it.
    async fn wait_for_turn(
        &self,
        context: DecisionContext<'_>,
        options: CallOptions,
        max_wait: Duration,
    ) -> Result<Decision, Error> {
        let resolution = self.resolve(context, CallOptions { max_wait, ..options }, None).await?;
        let delay = if let Resolution::Counted(counted) = &resolution { counted.reply.delay } else { Duration::ZERO };
        let decision = context.decision(resolution, Some(self.receipt_terms(&options)));
        // The sleep starts when the reply has arrived. So the call is never early, and late by at most the time that the
        // reply took.
        if decision.is_allowed()
            && !delay.is_zero()
            && let Err(error) = self.clock.sleep(delay).await
        {
            return self.decide_by_policy(context, options.on_error, error);
        }
        Ok(decision)
    }

    /// Checks the store until the call is allowed or its wait is over. A denied call waits in a queue, in the order of
    /// the calls' numbers.
    ///
    /// Not an `async fn`, which would keep its arguments twice. The futures of checks are on the heap and dropped
    /// before the call sleeps, because many calls may wait at a time.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would keep its arguments twice")]
    fn wait_in_queue<'a>(
        &'a self,
        context: DecisionContext<'a>,
        options: &'a CallOptions,
        waiting: &'a mut Waiting,
        rules: Option<&'a WatchedRules<'a>>,
    ) -> impl Future<Output = Result<Option<Decision>, Error>> + Send + 'a {
        async move {
            if waiting.state == WaitingState::Over {
                return Box::pin(self.decide_after_timeout(context, *options)).await.map(Some);
            }
            let mut ticket = match Box::pin(self.first_step(context, *options, waiting)).await? {
                ControlFlow::Break(decision) => return Ok(Some(decision)),
                ControlFlow::Continue(ticket) => ticket,
            };
            let table = &self.rules;
            let mut generation = rules.map_or(0, |rules| rules.generation);
            loop {
                let turn = match ticket.turn(|| rules.is_some() && table.generation() != generation).await {
                    Ok(Turn::TimedOut) => break,
                    Ok(Turn::RulesChanged) => {
                        generation = table.generation();
                        if rules.is_none_or(|rules| (rules.still_hold)()) {
                            continue;
                        }
                        let is_over = waiting.deadline <= self.clock.now();
                        waiting.state = if is_over { WaitingState::Over } else { WaitingState::Moved };
                        return Ok(None);
                    }
                    Ok(turn) => turn,
                    Err(error) => return self.decide_by_policy(context, options.on_error, error).map(Some),
                };
                let (decision, decided_at) = match ticket.check(self.check_at(turn, context, *options)).await {
                    Ok(checked) => checked,
                    Err(error) => return self.decide_by_policy(context, options.on_error, error).map(Some),
                };
                match decision? {
                    Some(Decision::Denied(denied)) => match next_retry(&denied, decided_at, ticket.deadline()) {
                        Some(retry_at) => ticket.retry_at(retry_at),
                        None => return Ok(Some(Decision::Denied(denied))),
                    },
                    Some(allowed) => return Ok(Some(allowed)),
                    None => {}
                }
            }
            Box::pin(self.decide_after_timeout(context, *options)).await.map(Some)
        }
    }

    /// Takes a call to its queue: one that begins now is checked first.
    async fn first_step<'a>(
        &'a self,
        context: DecisionContext<'a>,
        options: CallOptions,
        waiting: &mut Waiting,
    ) -> Result<FirstCheck<'a>, Error> {
        if waiting.state == WaitingState::New {
            return self.check_first(context, options, waiting).await;
        }
        // Only the first of its new queue checks, once all earlier calls have moved. So they stay in their order.
        let (queues, demands) = (&self.queues, Demands::new(context.enforced()));
        let (retry_at, version) = (self.clock.now(), queues.version(&demands));
        let schedule = Schedule { retry_at, deadline: waiting.deadline, version };
        waiting.place.enter(queues);
        Ok(ControlFlow::Continue(queues.ticket(context.enforced(), demands, waiting.place.number(), schedule)))
    }

    /// Checks the store about a call that begins now.
    async fn check_first<'a>(
        &'a self,
        context: DecisionContext<'a>,
        options: CallOptions,
        waiting: &mut Waiting,
    ) -> Result<FirstCheck<'a>, Error> {
        let clock = &self.clock;
        let &mut Waiting { started_at, deadline, .. } = waiting;
        let (queues, demands) = (&self.queues, Demands::new(context.enforced()));
        let version = queues.version(&demands);
        // Only denied calls are in a queue, so without a queue there may be permits. A call that finds a queue takes
        // none: it only checks whether it could be served in time.
        let is_behind = self.may_have_waiters(context.enforced(), deadline);
        let check = pin!(async {
            if is_behind { self.peek_once(context, options).await } else { self.decide_once(context, options).await }
        });
        let (decision, decided_at) = timed(clock, check).await;
        let decision = decision?;
        if queues.check_process().is_err() {
            // A call of a parent of this process, which the policy has decided.
            return Ok(ControlFlow::Break(decision));
        }
        let retry_at = match &decision {
            Decision::Allowed(_) if is_behind => started_at,
            Decision::Allowed(_) => return Ok(ControlFlow::Break(decision)),
            Decision::Denied(denied) => match next_retry(denied, decided_at, deadline) {
                Some(retry_at) => retry_at,
                None => return Ok(ControlFlow::Break(decision)),
            },
        };
        let is_counted = decision.source() != Source::Policy;
        // After a refund or a failure the number of free permits may be another one. A bucket holds its burst at most.
        let has_free = decision.source() == Source::Store && queues.version(&demands) == version;
        let described = context.enforced().get(decision.request_index()).filter(|_| has_free);
        let free = |request: &Request<'_>| match described {
            Some(described) if ptr::eq(described, request) => decision.remaining(),
            _ => request.limit.burst(),
        };
        let number = waiting.place.number();
        if is_counted && queues.is_too_long(context.enforced(), number, waiting.max_wait(), free) {
            return Ok(ControlFlow::Break(Decision::Denied(self.timed_out(context, decision, queues))));
        }
        let schedule = Schedule { retry_at, deadline, version };
        waiting.place.enter(queues);
        Ok(ControlFlow::Continue(queues.ticket(context.enforced(), demands, number, schedule)))
    }

    /// The check of a first waiter whose turn has come. It has no result if it was an extra check that failed.
    fn check_at<'a>(&'a self, turn: Turn, context: DecisionContext<'a>, options: CallOptions) -> TurnCheck<'a> {
        Box::pin(async move {
            let check = pin!(async {
                match turn {
                    Turn::ExtraCheck => Ok(self.check_again(context, options).await),
                    Turn::Check | Turn::TimedOut | Turn::RulesChanged => {
                        self.decide_once(context, options).await.map(Some)
                    }
                }
            });
            timed(&self.clock, check).await
        })
    }

    /// Decides without calling the observers.
    async fn decide_once(&self, context: DecisionContext<'_>, options: CallOptions) -> Result<Decision, Error> {
        let wants_limits = self.wants_limits(context, &options);
        let resolution = self.resolve(context, options, None).await?;
        Ok(self.decision(context, resolution, wants_limits, &options))
    }

    /// Decides about a first waiter whose retry time has not come: another process may have given permits back. `None`
    /// after a failure of the store, which changes nothing for the call.
    async fn check_again(&self, context: DecisionContext<'_>, options: CallOptions) -> Option<Decision> {
        let Backend::Guarded(guard) = &self.backend else { return None };
        let (wants_limits, wants_reports) =
            (self.wants_limits(context, &options), self.wants_reports(context, &options));
        let resolution = guard.check_again(context.requests, CallOptions { wants_reports, ..options }).await?;
        Some(self.decision(context, resolution, wants_limits, &options))
    }

    /// Wakes the first calls that wait for permits of these counters, some of which came back.
    pub(super) fn wake_waiters(&self, counters: impl Iterator<Item = u64> + Clone) {
        self.queues.permits_returned(counters);
    }

    /// Returns whether a call may be waiting for these counters, or on its way to their queue, before one that waits until
    /// this instant.
    fn may_have_waiters(&self, requests: &[Request<'_>], deadline: Moment) -> bool {
        !self.queues.is_idle() && self.queues.has_calls_ahead(requests, deadline)
    }

    /// Decides about a call whose wait is over. The call has left its queue, so no other call waits for this decision.
    async fn decide_after_timeout(
        &self,
        context: DecisionContext<'_>,
        options: CallOptions,
    ) -> Result<Decision, Error> {
        let decision = self.peek_once(context, options).await?;
        let queues = &self.queues;
        if queues.check_process().is_err() {
            // A call of a parent of this process, which the policy has decided.
            return Ok(decision);
        }
        if decision.is_allowed() && !queues.has_queue_for(context.enforced()) {
            return self.decide_once(context, options).await;
        }
        Ok(Decision::Denied(self.timed_out(context, decision, queues)))
    }

    /// The denial of a call that cannot be served before its deadline, or was not.
    fn timed_out(&self, context: DecisionContext<'_>, decision: Decision, queues: &WaitQueues) -> Denied {
        let now = self.clock.now();
        decision.into_timed_out(now.until(queues.first_turn(context.enforced()).unwrap_or(now.after(MIN_RETRY))))
    }
}

/// Returns the instant of a denied call's next check; `None` if no check before the deadline could allow it.
fn next_retry(denied: &Denied, decided_at: Moment, deadline: Moment) -> Option<Moment> {
    if denied.source() == Source::Policy || denied.is_final() {
        return None;
    }
    Some(decided_at.after(denied.retry_after().max(MIN_RETRY))).filter(|retry_at| *retry_at <= deadline)
}

// The instant at which a future became ready, even if its task is polled late.

/// Runs a future. Returns its output and the instant of the wake-up that led to it.
///
/// Without a wake-up the instant is that of the poll. It may be too early if the future was woken for another reason.
///
/// It gets a reference, since an `async fn` keeps a future that it gets twice.
async fn timed<F: Future>(clock: &Clock, future: Pin<&mut F>) -> (F::Output, Moment) {
    // Tokio's budget does not apply. A task without budget would be woken a second time, after the output was ready.
    let mut future = pin!(unconstrained(future));
    let mut last: Option<Arc<TimedWaker>> = None;
    poll_fn(|context| {
        let woken_at = last.take().and_then(|waker| waker.woken_at.get().copied());
        let waker =
            Arc::new(TimedWaker { clock: clock.clone(), woken_at: OnceLock::new(), waker: context.waker().clone() });
        match future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&waker)))) {
            Poll::Ready(output) => Poll::Ready((output, woken_at.unwrap_or_else(|| clock.now()))),
            Poll::Pending => {
                last = Some(waker);
                Poll::Pending
            }
        }
    })
    .await
}

/// A waker that records its first wake-up after a poll.
struct TimedWaker {
    clock: Clock,
    woken_at: OnceLock<Moment>,
    waker: Waker,
}

impl Wake for TimedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken_at.get_or_init(|| self.clock.now());
        self.waker.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Limit, Limiter};

    #[test]
    fn the_future_of_a_waiting_call_is_small() {
        let (limiter, key) = (Limiter::memory(), Key::new("a"));
        let size = size_of_val(&limiter.wait(&key, &Limit::WIDEST, Duration::ZERO));
        assert!(size <= 500, "{size} bytes");
    }
}

#[cfg(test)]
mod timed_tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::ManualClock;

    #[test]
    fn an_output_has_the_time_of_its_wake_up() {
        let time = ManualClock::new();
        let clock = Clock::Manual(time.clone());
        let state = Mutex::new((false, None::<Waker>));
        let lock = || state.lock().expect("no panic");
        let future = pin!(poll_fn(|context| {
            lock().1 = Some(context.waker().clone());
            if lock().0 { Poll::Ready(()) } else { Poll::Pending }
        }));
        let mut timed = pin!(timed(&clock, future));
        let mut poll = || timed.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let advance = || time.advance(Duration::from_millis(20));
        let wake = || lock().1.take().expect("the waker of the last poll").wake();
        assert!(poll().is_pending());
        wake();
        advance();
        assert!(poll().is_pending(), "a wake-up without an output");
        advance();
        let expected = clock.now();
        lock().0 = true;
        wake();
        advance();
        assert_eq!(poll(), Poll::Ready(((), expected)));
    }

    #[tokio::test]
    async fn an_output_has_the_time_of_its_wake_up_in_a_task_without_budget() {
        let time = ManualClock::new();
        let clock = Clock::Manual(time.clone());
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let receiver = pin!(receiver);
        let mut timed = pin!(timed(&clock, receiver));
        assert!(timed.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let expected = clock.now();
        sender.send(()).expect("a receiver");
        time.advance(Duration::from_millis(20));
        // This loop uses the budget up within one poll.
        while tokio::task::coop::has_budget_remaining() {
            tokio::task::coop::consume_budget().await;
        }
        let polled = timed.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready((Ok(()), expected)));
    }

    #[tokio::test]
    async fn an_output_without_a_wake_up_has_the_time_of_the_poll() {
        let time = ManualClock::new();
        let clock = Clock::Manual(time.clone());
        time.advance(Duration::from_millis(20));
        assert_eq!(timed(&clock, pin!(async { 1 })).await, (1, clock.now()));
    }
}
