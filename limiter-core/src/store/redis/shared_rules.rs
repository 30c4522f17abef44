//! The shared rules in Redis: one text with its version and its history.
//!
//! Each process sends GET for the version about twice a second, and reads the text when the version has changed. A push
//! would need more permissions, is missing behind proxies, and could be lost, so that the poll would be needed anyway.
//! One script publishes a text. Another one puts back the text that a process has read, if the store has lost it.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;

mod command;
mod entry;
mod poll;
mod server;

#[cfg(all(test, not(limiter_loom)))]
mod tests;

pub(crate) use entry::{PublishedText, StoredText, StoredVersion};
pub(crate) use poll::nothing_published;
pub(crate) use server::RulesServer;

use crate::Error;

/// The user of the texts that a process reads. Its methods run on a thread where they may block.
pub(crate) trait SharedTextObserver: fmt::Debug + Send + Sync {
    /// Receives the present text, when it is another one than before or when the last one was rejected. Returns true if
    /// its rules are in force.
    fn text_read(&self, text: &StoredText) -> bool;

    /// Returns the text that an earlier process has read from this store, if its rules are in force. `None` at the second
    /// time: a child of a fork begins with the rules of its parent.
    fn take_cached(&self) -> Option<CachedText>;

    /// Reports that the text whose rules are in force is still the present one: at first, and then each hour.
    fn confirmed(&self, text: &StoredText);

    /// Reports that this process has put a text back, which the store had lost.
    fn put_back(&self, version: &StoredVersion);

    /// Reports that this process cannot put a text back, and tries again.
    fn put_back_refused(&self, error: &Error);

    /// Reports that the store has no text, and this process has read none.
    fn nothing_published(&self);

    /// Receives the reason why no text can be read. The next poll follows.
    fn unreadable(&self, error: &Error);

    /// Reports that the text whose rules are in force can be read again.
    fn readable_again(&self);
}

/// A text that an earlier process has read.
#[derive(Clone, Debug)]
pub(crate) struct CachedText {
    pub(crate) text: Arc<StoredText>,
    /// The time at which the store had this text.
    pub(crate) confirmed: SystemTime,
}

/// The longest time after which a text may be put back into a store that has lost it.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

impl CachedText {
    /// Returns whether the text was confirmed so lately that it may be put back.
    pub(crate) fn is_recent(&self, now: SystemTime) -> bool {
        // A time in the future is that of another clock.
        now.duration_since(self.confirmed).is_ok_and(|age| age <= MAX_AGE)
    }
}

/// A new text of the shared rules.
#[derive(Clone, Debug)]
pub(crate) struct NewText {
    /// The version that the change is based on.
    pub(crate) based_on: u64,
    pub(crate) toml: String,
    pub(crate) who: String,
    pub(crate) why: String,
}

type ReplyTo<T> = oneshot::Sender<Result<T, Error>>;

/// An operation on the shared rules, for the thread of the worker.
pub(crate) enum RulesCall {
    /// Follows the text until the store is dropped. `first` gets the result of the first poll.
    Follow { observer: Arc<dyn SharedTextObserver>, first: Option<ReplyTo<()>> },
    /// Reads the present text. Its version is 0 if there is none.
    Read { reply_to: ReplyTo<PublishedText> },
    /// Reads the newest entries of the history, from the newest.
    History { max_entries: usize, reply_to: ReplyTo<Vec<PublishedText>> },
    /// Publishes a text and returns its version.
    Publish { text: Box<NewText>, reply_to: ReplyTo<u64> },
}

/// Serves operations until the store is dropped.
pub(crate) async fn serve(server: RulesServer, mut calls: mpsc::UnboundedReceiver<RulesCall>) {
    let server = Rc::new(server);
    while let Some(call) = calls.recv().await {
        let server = Rc::clone(&server);
        spawn_local(async move {
            // A caller that was dropped needs no reply.
            match call {
                RulesCall::Follow { observer, first } => poll::follow(&server, observer, first).await,
                RulesCall::Read { reply_to } => drop(reply_to.send(server.read().await)),
                RulesCall::History { max_entries, reply_to } => drop(reply_to.send(server.history(max_entries).await)),
                RulesCall::Publish { text, reply_to } => drop(reply_to.send(server.publish(&text).await)),
            }
        });
    }
}
