//! References to rules: by name, or by a position in the caches of threads.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::{io, ptr, thread};

use crate::run::run_contained;
use crate::sync::process::PerProcess;
use crate::sync::{RwLock, read, write};

/// A rule of a call. Most calls need its position alone.
pub(crate) trait RuleRef {
    /// The position in the caches of threads.
    fn position(&self) -> u32;

    /// The name in the sets of rules, and the key as written.
    fn name_and_key(&self) -> (&str, KeyText);
}

/// A position in the caches of all threads: of a rule of an annotated function, or of a name.
#[derive(Debug)]
pub(crate) struct RuleId(AtomicU32);

impl RuleId {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(UNASSIGNED))
    }

    /// The position, assigned at the first call together with those of the `count - 1` rules after it.
    pub(crate) fn position(&self, count: u32) -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        match self.0.load(Ordering::Relaxed) {
            UNASSIGNED => {
                let new = NEXT.fetch_add(count, Ordering::Relaxed);
                let assigned = self.0.compare_exchange(UNASSIGNED, new, Ordering::Relaxed, Ordering::Relaxed);
                // Another thread may have assigned one. The new positions then stay unused.
                assigned.map_or_else(|theirs| theirs, |_| new)
            }
            position => position,
        }
    }
}

const UNASSIGNED: u32 = u32::MAX;

/// The position of a rule that no thread caches.
pub(crate) const UNCACHED: u32 = u32::MAX;

// The key of a rule, as written in the source.

/// The key of a rule as its function has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyText {
    /// A text or a template, as written.
    Template(&'static str),
    /// The template of some of its keys. Overrides may match others.
    Form(&'static str),
    Expression,
    /// A direct call, whose key may be any.
    Unknown,
}

// Names of rules that the program chooses at run time.

/// The most names of a process. They are kept until the process ends.
const MAX_NAMES: usize = 10_000;

/// The names so far, with their positions.
static NAMES: PerProcess<RwLock<HashMap<&'static str, u32>>> = PerProcess::new();

thread_local! {
    /// The last name of this thread with its position, and the address of the names of its process. Threads that call one
    /// rule share no lock by it.
    static LAST_NAME: Cell<Option<(usize, &'static str, u32)>> = const { Cell::new(None) };
}

/// Returns the name as a static text, and its position in the caches of threads. `None` if there are too many names.
pub(crate) fn intern(name: &str) -> Option<(&'static str, u32)> {
    let positions = NAMES.here();
    let process = ptr::from_ref(positions).addr();
    let last = LAST_NAME.try_with(Cell::get).ok().flatten();
    if let Some((_, last, position)) = last.filter(|(of, last, _)| (*of, *last) == (process, name)) {
        return Some((last, position));
    }
    let interned = intern_in(positions, name);
    if let Some((name, position)) = interned {
        // A thread that ends interns without it.
        let _ = LAST_NAME.try_with(|last| last.set(Some((process, name, position))));
    }
    interned
}

fn intern_in(positions: &RwLock<HashMap<&'static str, u32>>, name: &str) -> Option<(&'static str, u32)> {
    let known = read(positions).get_key_value(name).map(|(name, position)| (*name, *position));
    if known.is_some() {
        return known;
    }
    let mut positions = write(positions);
    if let Some((name, position)) = positions.get_key_value(name) {
        return Some((name, *position));
    }
    if positions.len() == MAX_NAMES {
        return None;
    }
    let (name, position): (&'static str, _) = (Box::leak(name.into()), RuleId::new().position(1));
    positions.insert(name, position);
    Some((name, position))
}

/// Returns whether a direct call of this process has had the name.
pub(crate) fn is_interned(name: &str) -> bool {
    read(NAMES.here()).contains_key(name)
}

// LogCall events about rules.

/// Logs on the thread of a call. A panic of the subscriber must not end the call.
pub(crate) fn log_in_call(log: impl FnOnce()) {
    run_contained(log);
}

/// An event to be logged.
type LogCall = Box<dyn FnOnce() + Send>;

/// The way to the thread that logs, if the system could start it.
static LOGGER: PerProcess<Option<SyncSender<LogCall>>> = PerProcess::new();

/// The most events that wait for the subscriber.
const MAX_LOGS: usize = 1024;

/// Logs on a thread that all limiters of the process share. The default limiter of the process may be under
/// construction, and a subscriber that calls a rate-limited function would wait for it for ever.
///
/// The thread never ends: a thread that begins or ends during a `fork` holds a lock of the standard library, and the
/// child could start no thread.
pub(crate) fn log_apart(log: impl FnOnce() + Send + 'static) {
    let logger = LOGGER.get(|_| start_logger().ok());
    // Without the thread, or with too many events, the event is lost: nothing depends on it.
    drop(logger.as_ref().map(|logger| logger.try_send(Box::new(log))));
}

fn start_logger() -> io::Result<SyncSender<LogCall>> {
    let (sender, logs) = sync_channel::<LogCall>(MAX_LOGS);
    let run = move || {
        for log in logs {
            run_contained(log);
        }
    };
    thread::Builder::new().name("rate-limited-log".to_owned()).spawn(run)?;
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_interned_once() {
        let [one, again, other] = ["a name", "a name", "another"].map(|name| intern(name).expect("few names"));
        assert_eq!(one, again);
        assert_ne!(one.1, other.1);
        assert!(ptr::eq(one.0, again.0));
    }
}
