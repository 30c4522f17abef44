//! The shared rules of a limiter, as its process has read them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;
use std::{fmt, str};

use crate::limiter::shared_rules::cache::{Saved, SharedRulesCache};
use crate::rule::{RulesStatus, log_apart};
use crate::run::run_contained;
use crate::store::redis::{CachedText, SharedTextObserver, StoredText, StoredVersion};
use crate::sync::process::ProcessValue;
use crate::{Error, ErrorKind, Origin, RuleSet, TARGET, metrics};

#[cfg(all(test, not(limiter_loom)))]
mod tests;

/// The version of the shared rules in force, and their present error.
#[derive(Debug)]
pub(crate) struct SharedRulesStatus {
    version: AtomicU64,
    /// A child of `fork` begins without an error.
    problems: ProcessValue<RulesStatus>,
}

impl SharedRulesStatus {
    pub(crate) fn new() -> Self {
        Self { version: AtomicU64::new(0), problems: ProcessValue::new(RulesStatus::new(Origin::Shared)) }
    }

    fn problems(&self) -> &RulesStatus {
        self.problems.get(|_| RulesStatus::new(Origin::Shared))
    }

    /// Takes the limiter off the gauge of refused rules.
    pub(crate) fn withdraw(&self) {
        self.problems().refused().withdraw();
    }

    /// Registers the series of shared rules.
    pub(crate) fn register(&self) {
        self.problems().refused().register();
    }

    /// The version in force. 0 before the first one.
    pub(crate) fn version(&self) -> u64 {
        // The rules of a version are in force for a thread that reads it.
        self.version.load(Ordering::Acquire)
    }

    /// The present error. `None` if the rules in force are the published ones.
    pub(crate) fn error(&self) -> Option<Error> {
        self.problems().error()
    }
}

/// Applies the texts that the store of a limiter reads.
pub(crate) struct SharedRulesUpdater<A> {
    pub(crate) status: Arc<SharedRulesStatus>,
    /// Sets the rules of the limiter.
    pub(crate) apply: A,
    pub(crate) cache: Option<RulesCache>,
}

/// The cache of a limiter, with the text that it had at the start.
#[derive(Debug)]
pub(crate) struct RulesCache {
    file: SharedRulesCache,
    /// Taken by the first follower.
    cached: Mutex<Option<CachedText>>,
    /// True while the file cannot be written.
    is_failing: AtomicBool,
}

impl RulesCache {
    /// Reads a cache file, and puts its rules in force by `apply` until the store answers.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a path that is no file of this kind.
    pub(crate) fn open(
        file: SharedRulesCache,
        status: &SharedRulesStatus,
        apply: impl Fn(RuleSet) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let used = match file.read()? {
            Saved::Nothing => Ok(None),
            Saved::Unusable(reason) => Err(reason),
            Saved::Text(saved) => {
                parse(&saved.text.toml).and_then(apply).map_err(|error| error.to_string()).map(|()| {
                    status.version.store(saved.text.version.number, Ordering::Release);
                    Some(saved)
                })
            }
        };
        let path = file.path().display().to_string();
        let cached = used.unwrap_or_else(|reason| {
            log_apart(move || {
                tracing::warn!(
                    target: TARGET,
                    file = path,
                    reason,
                    "the cache of the shared rules is not used: it is replaced when the store answers"
                );
            });
            None
        });
        let cached = cached.inspect(|cached| report_cached(&file, cached));
        Ok(Self { file, cached: Mutex::new(cached), is_failing: AtomicBool::new(false) })
    }

    fn save(&self, text: &StoredText) {
        let saved = self.file.save(text, SystemTime::now());
        let was_failing = self.is_failing.swap(saved.is_err(), Ordering::Relaxed);
        if let Err(error) = saved
            && !was_failing
        {
            let path = self.file.path().display();
            tracing::warn!(
                target: TARGET,
                file = %path,
                %error,
                "the cache of the shared rules cannot be written: a restart without the store has older rules, or none"
            );
        }
    }
}

fn report_cached(file: &SharedRulesCache, CachedText { text, confirmed }: &CachedText) {
    metrics::shared_rules_version(text.version.number);
    let (path, version) = (file.path().display().to_string(), text.version.number);
    let age = SystemTime::now().duration_since(*confirmed).unwrap_or_default();
    log_apart(move || {
        tracing::info!(
            target: TARGET,
            file = path,
            version,
            confirmed_seconds_ago = age.as_secs(),
            "the shared rules of the cache are in force until the store answers"
        );
    });
}

impl<A: Fn(RuleSet) -> Result<(), Error> + Send + Sync> SharedTextObserver for SharedRulesUpdater<A> {
    fn version(&self) -> u64 {
        self.status.version()
    }

    fn text_read(&self, text: &StoredText) -> bool {
        let result = parse(&text.toml).and_then(|rules| {
            let count = rules.rules.len();
            (self.apply)(rules).map(|()| count)
        });
        let is_in_force = result.is_ok();
        // A panic of the log's subscriber must not leave the rules unread.
        run_contained(|| match result {
            Ok(rules) => self.report_in_force(text.version.number, rules),
            Err(error) => {
                let problem = format!("the shared rules, version {}: {error}", text.version.number);
                self.report_problem(&Error::new(error.kind(), problem));
            }
        });
        is_in_force
    }

    fn take_cached(&self) -> Option<CachedText> {
        // A lock that a thread of the parent held at a fork has no text for the child.
        self.cache.as_ref()?.cached.try_lock().ok()?.take()
    }

    fn confirmed(&self, text: &StoredText) {
        if let Some(cache) = &self.cache {
            run_contained(|| cache.save(text));
        }
    }

    fn put_back(&self, version: &StoredVersion) {
        let version = version.number;
        run_contained(|| {
            tracing::warn!(target: TARGET, version, "the store had lost the shared rules: this process has put them back");
        });
    }

    fn put_back_refused(&self, error: &Error) {
        let version = self.status.version();
        run_contained(|| {
            let problem = match error.kind() {
                ErrorKind::Refused => "the store has lost the shared rules, and this process may not put them back",
                _ => "the store has lost the shared rules, and does not take them back yet",
            };
            tracing::warn!(target: TARGET, %error, version, "{problem}");
        });
    }

    fn nothing_published(&self, error: &Error) {
        run_contained(|| {
            if self.status.problems().fail(error) {
                tracing::warn!(target: TARGET, %error, "the process runs without shared rules");
            }
        });
    }

    fn unreadable(&self, error: &Error) {
        run_contained(|| self.report_problem(error));
    }

    fn readable_again(&self) {
        run_contained(|| {
            self.status.problems().succeed();
            self.status.problems().refused().set(false);
            let version = self.status.version();
            tracing::info!(target: TARGET, version, "the shared rules can be read again");
        });
    }
}

impl<A> SharedRulesUpdater<A> {
    fn report_in_force(&self, version: u64, rules: usize) {
        let before = self.status.version.swap(version, Ordering::Release);
        self.status.problems().succeed();
        self.status.problems().refused().set(false);
        metrics::rules_loaded(Origin::Shared.as_str(), true);
        metrics::shared_rules_version(version);
        if before == version {
            // A child of `fork` begins with the rules of its parent.
            return;
        }
        if before < version {
            tracing::info!(target: TARGET, version, rules, "the shared rules have changed and are in force");
        } else {
            tracing::warn!(
                target: TARGET,
                version,
                before,
                rules,
                "the shared rules went back to an earlier version, as after a failover: it is in force"
            );
        }
    }

    fn report_problem(&self, error: &Error) {
        // One outage has several errors in turn, such as a timeout and a refused connection.
        let is_outage = error.is_transient();
        if !is_outage {
            self.status.problems().refused().set(true);
        }
        let is_same_outage = is_outage && self.status.error().is_some_and(|present| present.is_transient());
        if is_same_outage || !self.status.problems().fail(error) {
            return;
        }
        metrics::rules_loaded(Origin::Shared.as_str(), false);
        let version = self.status.version();
        if is_outage {
            tracing::warn!(
                target: TARGET,
                %error,
                version,
                "the shared rules cannot be read: those in force stay"
            );
        } else {
            tracing::error!(
                target: TARGET,
                %error,
                version,
                "the shared rules cannot be used: those in force stay"
            );
        }
    }
}

impl<A> fmt::Debug for SharedRulesUpdater<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRulesUpdater").field("status", &self.status).finish_non_exhaustive()
    }
}

fn parse(toml: &[u8]) -> Result<RuleSet, Error> {
    match str::from_utf8(toml) {
        Ok(text) => RuleSet::from_shared_text(text),
        Err(_) => Err(Error::new(ErrorKind::Config, "the text must be UTF-8, got other bytes: publish it again")),
    }
}
