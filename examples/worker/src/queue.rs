//! The jobs that are not done yet. A job that is dropped before it is done goes back into the queue.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

pub(crate) struct Queue {
    state: Mutex<QueueState>,
    /// Notified when a job comes back, or the last one is done.
    changed: Notify,
    started: Instant,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<u32>,
    under_way: u32,
    done: u32,
    denied: u32,
}

/// A job that a task has taken.
pub(crate) struct Job<'q> {
    queue: &'q Queue,
    number: u32,
    is_done: bool,
}

impl Queue {
    pub(crate) fn new(jobs: u32) -> Self {
        let state = QueueState { waiting: (1..=jobs).collect(), ..QueueState::default() };
        Self { state: Mutex::new(state), changed: Notify::new(), started: Instant::now() }
    }

    /// Takes a job. Waits while the last jobs are under way, since they may come back. `None` when all are done.
    pub(crate) async fn take(&self) -> Option<Job<'_>> {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.lock();
                if let Some(number) = state.waiting.pop_front() {
                    state.under_way += 1;
                    return Some(Job { queue: self, number, is_done: false });
                }
                if state.under_way == 0 {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Counts a call that was not sent.
    pub(crate) fn count_denied(&self) {
        self.lock().denied += 1;
    }

    /// Describes the work in one line.
    pub(crate) fn summary(&self) -> String {
        let QueueState { waiting, done, denied, .. } = &*self.lock();
        let (left, seconds) = (waiting.len(), self.started.elapsed().as_secs_f64());
        format!("{done} jobs done, {left} left, {denied} denials, in {seconds:.1} s")
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job<'_> {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.under_way -= 1;
        if self.is_done {
            state.done += 1;
        } else {
            state.waiting.push_back(self.number);
        }
        drop(state);
        self.queue.changed.notify_waiters();
    }
}
