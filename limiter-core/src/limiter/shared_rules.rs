//! The shared rules: how a limiter follows them, and how an operator changes them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::limiter::Limiter;
use crate::rule::check_shared_text;
use crate::store::redis::{NewText, PublishedText, RedisStore};
use crate::{Error, ErrorKind, Origin};

mod cache;
mod updater;

use cache::SharedRulesCache;
pub(super) use updater::SharedRulesStatus;
use updater::{RulesCache, SharedRulesUpdater};

impl Limiter {
    /// Returns the version of the [shared rules](crate::Builder::shared_rules) in force in this process, 1 or more. 0
    /// before the first one, or if the limiter does not follow them. Needs the features `rules` and `redis`.
    #[must_use]
    pub fn shared_rules_version(&self) -> u64 {
        self.inside().shared_rules.get().map_or(0, |status| status.version())
    }

    /// Returns the reason why the published [shared rules](crate::Builder::shared_rules) are not in force in this process.
    /// `None` if they are, or if the limiter does not follow them. Needs the features `rules` and `redis`.
    ///
    /// The last good rules stay in force meanwhile. The error of a text has its version, and the line and the column of
    /// the mistake.
    #[must_use]
    pub fn shared_rules_error(&self) -> Option<Error> {
        self.inside().shared_rules.get()?.error()
    }

    /// Follows the shared rules until the limiter is dropped, and keeps the last good text in a file. The future returns
    /// when they were read once.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a file of another kind. Those of the future: the failure of the store.
    pub(crate) fn follow_shared_rules(
        &self,
        cache: Option<&Path>,
    ) -> Result<impl Future<Output = Result<(), Error>> + use<>, Error> {
        let status = Arc::new(SharedRulesStatus::new());
        status.register();
        let _ = self.inside().shared_rules.set(Arc::clone(&status));
        // The store must not keep the limiter alive.
        let limiter = self.downgrade();
        let apply = move |rules| limiter().map_or(Ok(()), |limiter| limiter.inside().set_rules(Origin::Shared, rules));
        let store = self.redis()?;
        let open = |path| RulesCache::open(SharedRulesCache::new(path, store.rules_place()), &status, &apply);
        let cache = cache.map(open).transpose()?;
        Ok(store.follow_rules(Arc::new(SharedRulesUpdater { status, apply, cache })))
    }

    fn redis(&self) -> Result<&RedisStore, Error> {
        self.inside().redis().ok_or_else(|| {
            Error::new(
                ErrorKind::Config,
                "the shared rules must be in a store that processes share, got one in this process: write the `url` of a Redis",
            )
        })
    }
}

/// The shared rules of all limiters with one store and one [`prefix`](crate::Builder::prefix), for operators. Needs the
/// features `rules` and `redis`.
///
/// They are one TOML text of at most 1 MB, as a [file of rules](crate::Builder::rules_file) has it, without `strict` and
/// `shared`. Limiters that [follow them](crate::Builder::shared_rules) use a published text within a second. The limiter
/// that changes them need not follow them. The command `limiter rules` does the same from a shell.
///
/// ```no_run
/// # use limiter_core as rate_limited;
/// use rate_limited::{Change, Limiter, SharedRules};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rate_limited::Error> {
/// let rules = SharedRules::new(&Limiter::connect("redis://127.0.0.1:6379").await?);
/// let present = rules.read().await?;
/// let toml = format!("{}\n[rules.getId]\nlimit = \"50/10s\"\n", present.toml);
/// let change = Change { based_on: present.version, who: "ann".to_owned(), why: "incident 7".to_owned() };
/// let version = rules.publish(&toml, change).await?;
/// assert_eq!(rules.history(1).await?[0].version, version);
/// # Ok(())
/// # }
/// ```
///
/// The text, names and reasons are readable in the store. The keys `<prefix>-rules:{rules}:version`, `:toml` and
/// `:history` never expire. The history has the last 100 texts, in at most 8 MB. An operator's user needs
/// `~rl-rules:* +script|load +evalsha +get +mget +set +lpush +ltrim +lrange +time`.
///
/// # Errors
/// All methods return the failure of the store, within 5 s. Also [`ErrorKind::Config`] for a limiter without a store that
/// processes share.
#[derive(Clone, Debug)]
pub struct SharedRules {
    limiter: Limiter,
}

/// A text of the shared rules that was published.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq)]
pub struct Published {
    /// The number of the text, 1 or more. 0 if nothing was published yet.
    pub version: u64,
    /// The text.
    pub toml: String,
    /// The person or program that published it.
    pub who: String,
    /// The time of the change, by the clock of the server. The Unix epoch if nothing was published yet.
    pub when: SystemTime,
    /// The reason for the change.
    pub why: String,
}

/// The details of a change of the shared rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The version that the change is based on. If it is not the present one any more, nothing is changed.
    pub based_on: u64,
    /// The person or program that makes the change: at most 1000 bytes, without line breaks.
    pub who: String,
    /// The reason for the change: at most 1000 bytes, without line breaks.
    pub why: String,
}

impl SharedRules {
    /// Creates a handle to the shared rules in the store of this limiter.
    #[must_use]
    pub fn new(limiter: &Limiter) -> Self {
        Self { limiter: limiter.clone() }
    }

    /// Reads the present text. Its version is 0, and it is empty, if nothing was published.
    ///
    /// # Errors
    /// Those of [all methods](SharedRules#errors).
    ///
    /// # Cancel safety
    /// Nothing changes.
    pub async fn read(&self) -> Result<Published, Error> {
        self.limiter.redis()?.read_rules().await.map(Published::from)
    }

    /// Publishes a text and returns its version.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the change is based on another version than the present one. [`ErrorKind::Config`] for a
    /// mistake in the text, with line and column. In both cases nothing was changed. After
    /// [`Timeout`](ErrorKind::Timeout) or [`Unavailable`](ErrorKind::Unavailable) the text may be published or not: read
    /// it. Otherwise those of [all methods](SharedRules#errors).
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have published the text.
    pub async fn publish(&self, toml: &str, change: Change) -> Result<u64, Error> {
        check_shared_text(toml)?;
        let Change { based_on, who, why } = change;
        check_detail("who", &who)?;
        check_detail("why", &why)?;
        self.limiter.redis()?.publish_rules(NewText { based_on, toml: toml.to_owned(), who, why }).await
    }

    /// Reads the last texts, from the newest: at most `max_entries`, 100 and 8 MB.
    ///
    /// # Errors
    /// Those of [all methods](SharedRules#errors).
    ///
    /// # Cancel safety
    /// Nothing changes.
    pub async fn history(&self, max_entries: usize) -> Result<Vec<Published>, Error> {
        let entries = self.limiter.redis()?.rules_history(max_entries).await?;
        Ok(entries.into_iter().map(Published::from).collect())
    }

    /// Publishes the text of an earlier version again, and returns the new version.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the history does not have that version. Otherwise as for [`publish`](SharedRules::publish).
    ///
    /// # Cancel safety
    /// As for [`publish`](SharedRules::publish).
    pub async fn rollback(&self, version: u64, change: Change) -> Result<u64, Error> {
        let history = self.history(usize::MAX).await?;
        let Some(earlier) = history.iter().find(|entry| entry.version == version) else {
            let problem = match (history.last(), history.first()) {
                (Some(oldest), Some(newest)) => format!(
                    "`version` must be one of the history, {} to {}, got {version}: read the history",
                    oldest.version, newest.version
                ),
                _ => {
                    format!("`version` must be one of the history, got {version}, and no shared rules: publish a text")
                }
            };
            return Err(Error::new(ErrorKind::Config, problem));
        };
        self.publish(&earlier.toml, change).await
    }
}

/// The most bytes of a name or a reason.
const MAX_DETAIL_BYTES: usize = 1000;

fn check_detail(name: &str, text: &str) -> Result<(), Error> {
    let problem = if text.len() > MAX_DETAIL_BYTES {
        format!("`{name}` must have at most {MAX_DETAIL_BYTES} bytes, got {}: shorten it", text.len())
    } else if text.contains(char::is_control) {
        format!("`{name}` must be one line of plain text, got {text:?}: remove line breaks and control characters")
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Config, problem))
}

impl fmt::Debug for Published {
    /// Formats all but the text, whose overrides may have keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, who, when, why, .. } = self;
        let mut debug = f.debug_struct("Published");
        debug.field("version", version).field("who", who).field("when", when).field("why", why).finish_non_exhaustive()
    }
}

impl From<PublishedText> for Published {
    fn from(PublishedText { version, toml, who, why, micros }: PublishedText) -> Self {
        let when = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(micros)).unwrap_or(SystemTime::UNIX_EPOCH);
        Self { version, toml, who, when, why }
    }
}
