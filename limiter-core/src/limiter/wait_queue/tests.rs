use std::future::pending;
use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::{Key, Limit, ManualClock};

const GRACE: Duration = Duration::from_millis(10);

#[derive(Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Queue {
    time: ManualClock,
    queues: Arc<WaitQueues>,
    key: Key,
}

impl Queue {
    fn new() -> Self {
        let time = ManualClock::new();
        Self { queues: WaitQueues::new(Clock::Manual(time.clone()), false), time, key: Key::new("a") }
    }

    fn requests(&self) -> [Request<'_>; 1] {
        [Request::new(&self.key, Limit::WIDEST, 1)]
    }

    /// The ticket of a call that may check as soon as it is the first, and has no deadline.
    fn ticket(&self) -> Ticket<'_> {
        self.ticket_for(&self.requests())
    }

    fn ticket_for(&self, requests: &[Request<'_>]) -> Ticket<'_> {
        let demands = Demands::new(requests);
        let schedule = Schedule {
            retry_at: self.queues.clock.now(),
            deadline: Moment::NEVER,
            version: self.queues.version(&demands),
        };
        self.queues.ticket(requests, demands, next_number(), schedule)
    }

    fn poll(&self, ticket: &mut Ticket<'_>, waker: &Arc<WakeFlag>) -> Poll<Turn> {
        waker.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(waker));
        let turn = pin!(ticket.turn(|| false)).poll(&mut Context::from_waker(&waker));
        turn.map(|turn| turn.expect("a timer thread"))
    }

    /// Polls a ticket. If its call may check, it then sleeps until permits come back.
    fn checks(&self, ticket: &mut Ticket<'_>, waker: &Arc<WakeFlag>) -> bool {
        let is_checked = self.poll(ticket, waker) == Poll::Ready(Turn::Check);
        if is_checked {
            ticket.retry_at(Moment::NEVER);
            assert!(self.poll(ticket, waker).is_pending(), "checks twice without a change");
        }
        is_checked
    }

    fn is_empty(&self) -> bool {
        let state = self.queues.lock();
        state.table.len() == (0, 0) && state.alarm.is_none()
    }
}

#[test]
fn waiters_that_are_dropped_in_any_order_leave_no_queue() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let (queue, waker) = (Queue::new(), Arc::default());
        let mut tickets: [_; 3] = std::array::from_fn(|_| Some(queue.ticket()));
        assert!(queue.is_empty(), "a queue before the first poll");
        for (number, ticket) in tickets.iter_mut().flatten().enumerate() {
            assert_eq!(queue.poll(ticket, &waker).is_ready(), number == 0);
        }
        assert!(queue.queues.has_queue_for(&queue.requests()));
        order.into_iter().for_each(|index| drop(tickets[index].take()));
        assert!(!queue.queues.has_queue_for(&queue.requests()) && queue.is_empty());
    }
}

#[test]
fn two_waiters_that_are_dropped_concurrently_leave_no_queue() {
    let (queue, waker) = (Queue::new(), Arc::default());
    for _ in 0..5_000 {
        let (mut first, mut second) = (queue.ticket(), queue.ticket());
        assert!(queue.poll(&mut first, &waker).is_ready() && queue.poll(&mut second, &waker).is_pending());
        std::thread::scope(|scope| {
            scope.spawn(|| drop(first));
            drop(second);
        });
        assert!(queue.is_empty());
    }
}

#[test]
fn a_waiter_that_was_passed_over_is_in_no_queue_until_it_is_polled() {
    let (queue, waker) = (Queue::new(), Arc::default());
    let (mut checks, mut idle) = (queue.ticket(), queue.ticket());
    assert!(queue.poll(&mut checks, &waker).is_ready());
    assert!(queue.poll(&mut idle, &waker).is_pending());
    drop(checks);
    assert!(waker.0.load(Ordering::SeqCst));
    queue.time.advance(GRACE);
    assert!(queue.is_empty());
    let mut later = queue.ticket();
    let mut other = queue.ticket();
    assert!(queue.poll(&mut later, &waker).is_ready());
    assert!(queue.poll(&mut idle, &waker).is_ready(), "the earlier of the two");
    assert!(queue.poll(&mut other, &waker).is_pending());
}

/// A waiter is not passed over because its reply is late. The store's deadline ends the check.
#[test]
fn a_checking_waiter_is_not_passed_over_before_its_reply() {
    let (queue, waker) = (Queue::new(), Arc::default());
    let (mut first, mut second) = (queue.ticket(), queue.ticket());
    assert_eq!(queue.poll(&mut first, &waker), Poll::Ready(Turn::Check));
    let mut stored = None;
    {
        // The waker that a store would call.
        let reply = poll_fn(|context| {
            stored = Some(context.waker().clone());
            Poll::<()>::Pending
        });
        let mut check = pin!(first.check(Box::pin(reply)));
        assert!(check.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(queue.poll(&mut second, &waker).is_pending());
        queue.time.advance(10 * GRACE);
        assert!(!waker.0.load(Ordering::SeqCst) && queue.poll(&mut second, &waker).is_pending());
    }
    let stored = stored.expect("polled");
    stored.wake();
    queue.time.advance(GRACE);
    assert!(waker.0.load(Ordering::SeqCst));
    assert_eq!(queue.poll(&mut second, &waker), Poll::Ready(Turn::Check));
}

#[test]
fn a_dropped_check_lets_the_next_waiter_go_on() {
    let (queue, waker) = (Queue::new(), Arc::default());
    let (mut first, mut second) = (queue.ticket(), queue.ticket());
    assert_eq!(queue.poll(&mut first, &waker), Poll::Ready(Turn::Check));
    assert!(queue.poll(&mut second, &waker).is_pending());
    let check = async move { first.check(Box::pin(pending::<()>())).await };
    {
        let mut check = pin!(check);
        assert!(check.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(!waker.0.load(Ordering::SeqCst));
    }
    assert!(waker.0.load(Ordering::SeqCst));
    assert_eq!(queue.poll(&mut second, &waker), Poll::Ready(Turn::Check));
}

/// The first probe wakes the next waiter. It is polled, so the others sleep on.
#[test]
fn a_waiter_that_is_not_polled_wakes_only_the_next_one_that_is() {
    let queue = Queue::new();
    let wakers: [Arc<WakeFlag>; 8] = Default::default();
    let mut tickets: Vec<_> = wakers.iter().map(|_| queue.ticket()).collect();
    for (ticket, waker) in tickets.iter_mut().zip(&wakers) {
        assert_eq!(queue.poll(ticket, waker).is_ready(), std::ptr::eq(waker, &wakers[0]));
    }
    drop(tickets.remove(0));
    for _ in 0..9 {
        queue.time.advance(Duration::from_millis(1));
        if wakers[2].0.load(Ordering::SeqCst) {
            assert!(queue.poll(&mut tickets[1], &wakers[2]).is_pending());
        }
    }
    let woken = wakers.each_ref().map(|waker| waker.0.load(Ordering::SeqCst));
    assert_eq!(woken, [false, true, false, false, false, false, false, false]);
    queue.time.advance(Duration::from_millis(1));
    assert_eq!(queue.poll(&mut tickets[1], &wakers[2]), Poll::Ready(Turn::Check));
}

/// Permits of one counter come back each millisecond, but none that a call needs. All queues check at once after the first
/// change, and then about a thousand times a second in all.
#[test]
fn queues_of_one_counter_are_paced_after_its_changes() {
    const CHANGES: usize = 2_000;
    for number in [1, 10, 64, 65, 1_000] {
        let queue = Queue::new();
        let [shared] = queue.requests();
        let keys: Vec<_> = (0..number).map(|user| Key::new("user:").part(user)).collect();
        let wait = |key| (queue.ticket_for(&[Request::new(key, Limit::WIDEST, 1), shared]), Arc::default());
        let mut waiters: Vec<_> = keys.iter().map(wait).collect();
        assert!(waiters.iter_mut().all(|(ticket, waker)| queue.checks(ticket, waker)));
        let mut checks = 0;
        for change in 0..CHANGES {
            queue.queues.permits_returned(std::iter::once(shared.counter_hash()));
            let woken = waiters.iter_mut().filter(|(_, waker)| waker.0.load(Ordering::SeqCst));
            checks += woken.map(|(ticket, waker)| queue.checks(ticket, waker)).filter(|is_checked| *is_checked).count();
            assert!(change > 0 || checks == number, "{checks} of {number} queues check at once");
            queue.time.advance(Duration::from_millis(1));
        }
        let expected = CHANGES * 9 / 10..=CHANGES * 5 / 4 + 2 * number;
        assert!(expected.contains(&checks), "{checks} checks of {number} queues");
    }
}

/// The interval between checks is for those that were denied.
#[test]
fn a_served_call_lets_the_next_one_of_its_queue_check_at_once() {
    let queue = Queue::new();
    let [shared] = queue.requests();
    let keys: Vec<_> = (0..10).map(|user| Key::new("user:").part(user)).collect();
    let wait = |key| queue.ticket_for(&[Request::new(key, Limit::WIDEST, 1), shared]);
    let (waker, next_waker) = (Arc::default(), Arc::default());
    let mut others: Vec<_> = keys[1..].iter().map(wait).collect();
    assert!(others.iter_mut().all(|ticket| queue.checks(ticket, &waker)));
    let (mut first, mut next) = (wait(&keys[0]), wait(&keys[0]));
    assert!(queue.checks(&mut first, &waker) && !queue.checks(&mut next, &next_waker));
    next.retry_at(Moment::NEVER);
    assert!(queue.poll(&mut next, &next_waker).is_pending());
    queue.queues.permits_returned(std::iter::once(shared.counter_hash()));
    assert_eq!(queue.poll(&mut first, &waker), Poll::Ready(Turn::Check));
    drop(first);
    assert!(next_waker.0.load(Ordering::SeqCst));
    assert_eq!(queue.poll(&mut next, &next_waker), Poll::Ready(Turn::Check));
}
