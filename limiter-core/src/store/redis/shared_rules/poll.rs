//! The polls by which a process follows the shared rules, and puts them back when the store has lost them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::server::{Restored, RulesServer};
use super::{CachedText, SharedTextObserver, StoredText, StoredVersion};
use crate::run::run_contained;
use crate::store::redis::connection::managed::random_between;
use crate::{Error, ErrorKind};

/// The shortest pause between two polls.
const MIN_PAUSE: Duration = Duration::from_millis(450);
/// The longest pause. The processes of a fleet do not poll at once.
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// The polls after which a text that was rejected is tried again. Other rules of the process may have contradicted it.
const POLLS_PER_RETRY: u32 = 20;
/// The polls after which a process without the permission tries again to put a text back.
const POLLS_PER_REFUSAL: u32 = 60;
/// The polls after which it tries again if the server could not take the text.
const POLLS_PER_RESTORE: u32 = 10;
/// The polls after which a text is confirmed again: an hour.
const POLLS_PER_CONFIRMATION: u32 = 7_600;

/// Follows the text. `first` gets the result of the first poll.
pub(super) async fn follow(
    server: &RulesServer,
    observer: Arc<dyn SharedTextObserver>,
    mut first: Option<oneshot::Sender<Result<(), Error>>>,
) {
    let mut follower = Follower::new(observer);
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
    /// The text that was read last, or at first that of the cache.
    known: Option<KnownText>,
    was_unreadable: bool,
    polls_since_try: u32,
    polls_since_confirmation: u32,
    /// The polls until a text may be put back again, after the server has refused it. The first refusal is reported.
    polls_until_restore: u32,
    is_refusal_reported: bool,
}

/// A text that this process has read.
struct KnownText {
    text: Arc<StoredText>,
    is_in_force: bool,
    read: TextRead,
}

/// The reader of a known text.
enum TextRead {
    /// This process has read it.
    Here,
    /// An earlier process has read it.
    Earlier(CachedText),
    /// The text is not that of its version.
    Damaged,
}

impl KnownText {
    fn may_be_put_back(&self) -> bool {
        match &self.read {
            TextRead::Here => true,
            TextRead::Earlier(cached) => cached.is_recent(SystemTime::now()),
            TextRead::Damaged => false,
        }
    }
}

impl Follower {
    fn new(observer: Arc<dyn SharedTextObserver>) -> Self {
        let cached = |cached: CachedText| KnownText {
            text: Arc::clone(&cached.text),
            is_in_force: true,
            read: TextRead::Earlier(cached),
        };
        let known = observer.take_cached().map(cached);
        Self {
            observer,
            known,
            was_unreadable: false,
            polls_since_try: 0,
            polls_since_confirmation: POLLS_PER_CONFIRMATION,
            polls_until_restore: 0,
            is_refusal_reported: false,
        }
    }

    /// Polls once. A text that is missing or rejected is no error of the poll.
    ///
    /// # Errors
    /// The failure of the store.
    async fn poll(&mut self, server: &RulesServer) -> Result<(), Error> {
        self.polls_since_try = self.polls_since_try.saturating_add(1);
        self.polls_since_confirmation = self.polls_since_confirmation.saturating_add(1);
        self.polls_until_restore = self.polls_until_restore.saturating_sub(1);
        match self.text_to_try(server).await {
            Ok(Some(text)) => {
                self.polls_since_try = 0;
                let tried = Arc::clone(&text);
                let is_in_force = self.observe(move |observer| observer.text_read(&tried)).await.unwrap_or(false);
                self.known = Some(KnownText { text, is_in_force, read: TextRead::Here });
                self.polls_since_confirmation = POLLS_PER_CONFIRMATION;
                self.was_unreadable = false;
                self.confirm().await;
                Ok(())
            }
            Ok(None) => {
                if self.was_unreadable {
                    self.observe(|observer| observer.readable_again()).await;
                    self.was_unreadable = false;
                }
                self.confirm().await;
                Ok(())
            }
            Err(PollError::Missing) if self.known.is_none() => {
                self.was_unreadable = true;
                self.observe(|observer| observer.nothing_published(&nothing_published())).await;
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
    async fn text_to_try(&mut self, server: &RulesServer) -> Result<Option<Arc<StoredText>>, PollError> {
        let mut present = server.version().await?;
        if let Some(text) = self.text_to_put_back(present.as_ref()) {
            let restored = self.put_back(server, &text).await;
            // Another process, or a publication, may have come first.
            present = server.version().await?;
            if present.is_none() && restored == Some(Restored::NotNeeded) {
                // The history has a newer text, which no process may have read.
                self.polls_until_restore = POLLS_PER_RETRY;
            }
        }
        let present = present.ok_or(PollError::Missing)?;
        match &mut self.known {
            Some(known) if known.text.version.is_of_same_text(&present) => {
                // The store has just confirmed it.
                known.read = TextRead::Here;
                if known.text.version != present {
                    Arc::make_mut(&mut known.text).version = present;
                }
                let is_due = self.was_unreadable || self.polls_since_try >= POLLS_PER_RETRY;
                Ok((!known.is_in_force && is_due).then(|| Arc::clone(&known.text)))
            }
            _ => {
                let text = server.text().await?.ok_or(PollError::Missing)?;
                Ok(Some(Arc::new(text)))
            }
        }
    }

    /// Returns the known text if the store has lost it: it has none, or one that was put back and is older.
    fn text_to_put_back(&self, present: Option<&StoredVersion>) -> Option<Arc<StoredText>> {
        let known = self.known.as_ref().filter(|known| self.polls_until_restore == 0 && known.may_be_put_back())?;
        let is_lost = present.is_none_or(|present| known.text.version.replaces(present));
        is_lost.then(|| Arc::clone(&known.text))
    }

    /// Puts a text back. `None` if it cannot: a server that can be read but not written is no failure of the poll.
    async fn put_back(&mut self, server: &RulesServer, text: &Arc<StoredText>) -> Option<Restored> {
        let restored = match server.restore(text).await {
            Ok(restored) => restored,
            // The next command shows whether the connection works again.
            Err(error) if matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable) => return None,
            Err(error) => {
                let is_refused = error.kind() == ErrorKind::Refused;
                self.polls_until_restore = if is_refused { POLLS_PER_REFUSAL } else { POLLS_PER_RESTORE };
                if !self.is_refusal_reported {
                    self.is_refusal_reported = true;
                    self.observe(move |observer| observer.put_back_refused(&error)).await;
                }
                return None;
            }
        };
        match restored {
            Restored::Done => {
                self.is_refusal_reported = false;
                let version = text.version.clone();
                self.observe(move |observer| observer.put_back(&version)).await;
            }
            Restored::NotNeeded => {}
            Restored::WrongDigest => {
                if let Some(known) = &mut self.known {
                    known.read = TextRead::Damaged;
                }
            }
        }
        Some(restored)
    }

    /// Reports that the text in force is still the present one, if that is due.
    async fn confirm(&mut self) {
        let Some(known) = &self.known else { return };
        if known.is_in_force && self.polls_since_confirmation >= POLLS_PER_CONFIRMATION {
            let text = Arc::clone(&known.text);
            self.polls_since_confirmation = 0;
            self.observe(move |observer| observer.confirmed(&text)).await;
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
fn nothing_published() -> Error {
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

    /// An observer with a text of a cache, and the age of its confirmation.
    #[derive(Debug)]
    struct Ignores(Option<Duration>);

    impl SharedTextObserver for Ignores {
        fn text_read(&self, _: &StoredText) -> bool {
            true
        }

        fn version(&self) -> u64 {
            0
        }

        fn take_cached(&self) -> Option<CachedText> {
            let text = Arc::new(StoredText { version: version(5, false), toml: Vec::new() });
            self.0.map(|age| CachedText { text, confirmed: SystemTime::now() - age })
        }

        fn confirmed(&self, _: &StoredText) {}

        fn put_back(&self, _: &StoredVersion) {}

        fn put_back_refused(&self, _: &Error) {}

        fn nothing_published(&self, _: &Error) {}

        fn unreadable(&self, _: &Error) {}

        fn readable_again(&self) {}
    }

    #[test]
    fn a_system_without_threads_ends_no_polls() {
        let follower = Follower::new(Arc::new(Ignores(None)));
        // No thread can have so large a stack.
        let runtime = Builder::new_current_thread().thread_stack_size(1 << 60).build().expect("a runtime");
        assert_eq!(runtime.block_on(follower.observe(|_| true)), None);
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        assert_eq!(runtime.block_on(follower.observe(|_| true)), Some(true));
    }

    fn version(published_micros: u64, is_restored: bool) -> StoredVersion {
        StoredVersion { number: 7, digest: "abc".to_owned(), published_micros, is_restored }
    }

    #[test]
    fn a_text_of_a_cache_is_put_back_if_it_is_recent() {
        let day = Duration::from_secs(24 * 60 * 60);
        for (cached, is_put_back) in [(None, false), (Some(day), false), (Some(day / 2), true)] {
            let mut follower = Follower::new(Arc::new(Ignores(cached)));
            assert_eq!(follower.text_to_put_back(None).is_some(), is_put_back, "{cached:?}");
            assert_eq!(follower.text_to_put_back(Some(&version(4, true))).is_some(), is_put_back, "{cached:?}");
            assert!(follower.text_to_put_back(Some(&version(4, false))).is_none(), "a publication");
            follower.polls_until_restore = 1;
            assert!(follower.text_to_put_back(None).is_none(), "it was refused");
            follower.polls_until_restore = 0;
            if let Some(KnownText { read: TextRead::Earlier(cached), .. }) = &mut follower.known {
                cached.confirmed -= day;
                assert!(follower.text_to_put_back(None).is_none(), "the store was away for long");
            }
        }
    }
}
