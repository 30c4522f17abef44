//! Lines of calls that wait in this process, first come, first served.

use std::collections::{HashMap, hash_map};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::algorithm::Span;
use crate::clock::{Clock, Moment};
use crate::store::Question;

/// One line for each set of counts that somebody waits for. Calls that have but one of several in common do not stand in
/// one line: who waits for a count of their own would hold up all the others.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    lines: Mutex<HashMap<Line, Arc<Semaphore>>>,
}

/// What a decision waits for: its questions' counts. Who waits shares it with the map.
type Line = Arc<[(Box<str>, Span)]>;

/// A place in a line; leaving it lets the others move up.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    queues: &'a Queues,
    line: Line,
    /// There until the place is left.
    turns: Option<Arc<Semaphore>>,
}

impl Queues {
    /// Whether anybody stands in line for these counts.
    pub(crate) fn has(&self, questions: &[Question<'_>]) -> bool {
        let lines = self.lines();
        !lines.is_empty() && lines.contains_key(&line(questions))
    }

    pub(crate) fn join(&self, questions: &[Question<'_>]) -> Place<'_> {
        let line = line(questions);
        let (line, turns) = match self.lines().entry(line) {
            hash_map::Entry::Occupied(entry) => (Arc::clone(entry.key()), Arc::clone(entry.get())),
            hash_map::Entry::Vacant(entry) => {
                (Arc::clone(entry.key()), Arc::clone(entry.insert(Arc::new(Semaphore::new(1)))))
            }
        };
        Place { queues: self, line, turns: Some(turns) }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Line, Arc<Semaphore>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn line(questions: &[Question<'_>]) -> Line {
    questions.iter().map(|question| (question.key.subject().to_string().into(), question.limit.into())).collect()
}

impl Place<'_> {
    /// Whether it is somebody else's turn.
    pub(crate) fn is_busy(&self) -> bool {
        self.turns.as_ref().is_some_and(|turns| turns.available_permits() == 0)
    }

    /// Waits until it is this call's turn, which ends when what is given is dropped; `None` if that takes too long.
    ///
    /// # Cancel safety
    /// The place is lost and nobody else's.
    pub(crate) async fn turn(&self, clock: &Clock, give_up: Moment) -> Option<OwnedSemaphorePermit> {
        let mut turn = pin!(self.turns.clone()?.acquire_owned());
        let mut late = pin!(clock.sleep_until(give_up));
        poll_fn(|context| match turn.as_mut().poll(context) {
            Poll::Ready(turn) => Poll::Ready(turn.ok()),
            Poll::Pending => late.as_mut().poll(context).map(|_| None),
        })
        .await
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.queues.lines();
        // Given up under the lock: of two who leave at once, the second sees that nobody is left.
        self.turns = None;
        if lines.get(&self.line).is_some_and(|turns| Arc::strong_count(turns) == 1) {
            lines.remove(&self.line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    #[tokio::test]
    async fn a_line_is_gone_with_the_last_who_waits() {
        let (queues, key) = (Queues::default(), Key::new("a"));
        let questions = [Question { key: &key, limit: crate::Limit::WIDEST, cost: 1 }];
        let (first, second) = (queues.join(&questions), queues.join(&questions));
        let soon = Clock::System.now().after(std::time::Duration::from_millis(1));
        let turn = first.turn(&Clock::System, soon).await;
        assert!(turn.is_some() && second.is_busy());
        assert!(second.turn(&Clock::System, soon).await.is_none());
        drop(turn);
        assert!(second.turn(&Clock::System, soon).await.is_some());
        drop(first);
        assert_eq!(queues.lines().len(), 1);
        drop(second);
        assert_eq!(queues.lines().len(), 0);
    }

    #[test]
    fn no_line_is_left_by_two_who_leave_at_once() {
        let (queues, key) = (Queues::default(), Key::new("a"));
        let questions = [Question { key: &key, limit: crate::Limit::WIDEST, cost: 1 }];
        for _ in 0..20_000 {
            let (first, second) = (queues.join(&questions), queues.join(&questions));
            std::thread::scope(|scope| {
                scope.spawn(|| drop(first));
                drop(second);
            });
            assert_eq!(queues.lines().len(), 0);
        }
    }
}
