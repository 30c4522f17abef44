//! The polls by which a process follows the shared rules.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::SharedTextObserver;
use super::entry::{StoredText, StoredVersion};
use super::server::RulesServer;
use crate::contain::run_contained;
use crate::store::redis::connection::managed::random_between;
use crate::{Error, ErrorKind};

/// The shortest pause between two polls.
const MIN_PAUSE: Duration = Duration::from_millis(450);
/// The longest pause. The processes of a fleet do not poll at once.
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// The polls after which a text that was rejected is tried again. Other rules of the process may have contradicted it.
const POLLS_PER_RETRY: u32 = 20;

/// Follows the text. `first` gets the result of the first poll.
pub(super) async fn follow(
    server: &RulesServer,
    observer: Arc<dyn SharedTextObserver>,
    mut first: Option<oneshot::Sender<Result<(), Error>>>,
) {
    let mut follower = Follower { observer, last: None, was_unreadable: false, polls_since_try: 0 };
    loop {
        let polled = follower.poll(server).await;
        if let Some(first) = first.take() {
            let _ = first.send(polled);
        }
        sleep(random_between(MIN_PAUSE, MAX_PAUSE)).await;
    }
}

/// The state between two polls.
struct Follower {
    observer: Arc<dyn SharedTextObserver>,
    /// The version that was read last, with its text if that was rejected.
    last: Option<(StoredVersion, Option<Arc<StoredText>>)>,
    was_unreadable: bool,
    polls_since_try: u32,
}

impl Follower {
    /// Polls once. A text that is missing or rejected is no error of the poll.
    ///
    /// # Errors
    /// The failure of the store.
    async fn poll(&mut self, server: &RulesServer) -> Result<(), Error> {
        self.polls_since_try = self.polls_since_try.saturating_add(1);
        match self.text_to_try(server).await {
            Ok(Some((version, text))) => {
                self.polls_since_try = 0;
                let tried = Arc::clone(&text);
                let is_in_force = self.observe(move |observer| observer.text_read(&tried)).await.unwrap_or(false);
                self.last = Some((version, (!is_in_force).then_some(text)));
                self.was_unreadable = false;
                Ok(())
            }
            Ok(None) => {
                if self.was_unreadable {
                    self.observe(|observer| observer.readable_again()).await;
                    self.was_unreadable = false;
                }
                Ok(())
            }
            Err(PollError::Missing) if self.last.is_none() => {
                self.was_unreadable = true;
                self.observe(|observer| observer.nothing_published()).await;
                Ok(())
            }
            Err(PollError::Missing) => {
                self.report_unreadable(nothing_published()).await;
                Ok(())
            }
            Err(PollError::Foreign(error)) => {
                self.report_unreadable(error).await;
                Ok(())
            }
            Err(PollError::Store(error)) => {
                self.report_unreadable(error.clone()).await;
                Err(error)
            }
        }
    }

    /// Returns the text if it is another one than before, or if it was rejected a while ago. `None` for one that need not
    /// be tried now.
    async fn text_to_try(&self, server: &RulesServer) -> Result<Option<(StoredVersion, Arc<StoredText>)>, PollError> {
        let version = server.version().await?.ok_or(PollError::Missing)?;
        match &self.last {
            Some((last, rejected)) if *last == version => {
                let is_due = self.was_unreadable || self.polls_since_try >= POLLS_PER_RETRY;
                Ok(rejected.clone().filter(|_| is_due).map(|text| (version, text)))
            }
            _ => {
                let (version, text) = server.text().await?.ok_or(PollError::Missing)?;
                Ok(Some((version, Arc::new(text))))
            }
        }
    }

    async fn report_unreadable(&mut self, error: Error) {
        self.was_unreadable = true;
        self.observe(move |observer| observer.unreadable(&error)).await;
    }

    /// Calls the observer on a thread where it may block. `None` if it panics, or if the system has no thread.
    async fn observe<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn SharedTextObserver) -> T + Send + 'static,
    ) -> Option<T> {
        let observer = Arc::clone(&self.observer);
        let mut task = None;
        // It panics without a thread, and the polls must go on.
        run_contained(|| task = Some(spawn_blocking(move || call(&*observer))));
        task?.await.ok()
    }
}

/// The error of a store without a text.
pub(crate) fn nothing_published() -> Error {
    Error::new(ErrorKind::Config, "the store has no shared rules: publish a text")
}

/// The reason why a poll has read no text.
enum PollError {
    Missing,
    /// The keys hold something else.
    Foreign(Error),
    Store(Error),
}

impl From<Error> for PollError {
    fn from(error: Error) -> Self {
        if error.kind() == ErrorKind::Protocol { Self::Foreign(error) } else { Self::Store(error) }
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[derive(Debug)]
    struct Ignores;

    impl SharedTextObserver for Ignores {
        fn text_read(&self, _: &StoredText) -> bool {
            true
        }

        fn nothing_published(&self) {}

        fn unreadable(&self, _: &Error) {}

        fn readable_again(&self) {}
    }

    #[test]
    fn a_system_without_threads_ends_no_polls() {
        let follower = Follower { observer: Arc::new(Ignores), last: None, was_unreadable: false, polls_since_try: 0 };
        // No thread can have so large a stack.
        let runtime = Builder::new_current_thread().thread_stack_size(1 << 60).build().expect("a runtime");
        assert_eq!(runtime.block_on(follower.observe(|_| true)), None);
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        assert_eq!(runtime.block_on(follower.observe(|_| true)), Some(true));
    }
}
