//! Tasks of a thread that begin at once.

use std::task::{Context, Poll, Waker};

use tokio::task::spawn_local;

use crate::run::run_contained;

/// Runs a task up to its first wait, and the rest of it as another task of this thread.
///
/// A task that is only spawned begins after all tasks that are ready. A panic ends the task alone, as in any other.
/// It must be called inside of a `LocalSet`. Returns true if the task has ended.
pub(crate) fn spawn_started(task: impl Future<Output = ()> + 'static) -> bool {
    let mut task = Box::pin(task);
    // The second poll, by the `LocalSet`, always comes, and registers the right waker.
    let mut context = Context::from_waker(Waker::noop());
    let mut progress = Poll::Pending;
    if !run_contained(|| progress = task.as_mut().poll(&mut context)) {
        run_contained(|| drop(task));
        return true;
    }
    if progress.is_pending() {
        drop(spawn_local(task));
    }
    progress.is_ready()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::task::{LocalSet, yield_now};

    use super::*;

    #[tokio::test]
    async fn a_task_begins_at_once_and_goes_on_later() {
        let steps: Rc<RefCell<Vec<&str>>> = Rc::default();
        let task = |first, second| {
            let steps = Rc::clone(&steps);
            async move {
                steps.borrow_mut().push(first);
                yield_now().await;
                steps.borrow_mut().push(second);
            }
        };
        let expected = ["started", "caller", "spawned", "continued", "ended"];
        LocalSet::new()
            .run_until(async {
                spawn_local(task("spawned", "ended"));
                assert!(!spawn_started(task("started", "continued")));
                steps.borrow_mut().push("caller");
                while steps.borrow().len() < expected.len() {
                    yield_now().await;
                }
            })
            .await;
        assert_eq!(*steps.borrow(), expected);
    }

    #[tokio::test]
    async fn a_panic_before_the_first_wait_ends_the_task_alone() {
        let has_ended =
            LocalSet::new().run_until(async { spawn_started(async { panic!("the task's own fault") }) }).await;
        assert!(has_ended);
    }

    #[tokio::test]
    async fn a_task_without_a_wait_ends_at_once() {
        assert!(LocalSet::new().run_until(async { spawn_started(async {}) }).await);
    }
}
