//! The file of rules of a new limiter.

use std::mem;
use std::path::{Path, PathBuf};

use crate::builder::Builder;
use crate::builder::connection::Store;
use crate::rule::{OpenedFile, RuleTable, file_error};
use crate::{Error, ErrorKind, Limiter, Origin, RuleSet, metrics};

impl Builder {
    /// Sets a file of rules, in TOML, that operators change while the program runs. Default: none. Needs the feature
    /// `rules`.
    ///
    /// [`build`](Builder::build) and [`connect`](Builder::connect) read the file once, and fail if it cannot be used.
    /// `build` waits for the file system meanwhile. Later a thread of its own checks the file each second, by its
    /// length, time and inode, and every 30 s by its bytes. A new content is used when two readings 200 ms apart agree,
    /// for all calls that begin from then on.
    ///
    /// A file that cannot be used changes nothing: the last good rules stay in force. This holds for a mistake in one
    /// rule, a file that is written slowly, deleted or replaced by a directory, and for more than 16 MB. The log gets
    /// one error for each distinct mistake, with line and column. Alert on
    /// [`rules_file_errors`](Limiter::rules_file_errors).
    ///
    /// The rules are a level of their own, after [`set_rules`](Limiter::set_rules) and before this builder.
    /// The thread ends when the last clone of the limiter is dropped. A child of `fork` has no such thread and keeps
    /// the rules of the fork: build a limiter there.
    ///
    /// ```no_run
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// let limiter = Limiter::builder().rules_file("/etc/shop/rules.toml").build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    #[cfg(feature = "rules")]
    pub fn rules_file(mut self, path: impl AsRef<Path>) -> Self {
        self.rules_file.path = Some(path.as_ref().to_owned());
        self
    }

    /// Reads the file of rules, if there is one.
    pub(super) fn open_rules_file(&self) -> Result<RulesFile, Error> {
        Ok(RulesFile(self.rules_file.path.as_deref().map(OpenedFile::read).transpose()?))
    }

    /// Reads the file of rules, if there is one, on another thread.
    pub(super) async fn open_rules_file_async(&self) -> Result<RulesFile, Error> {
        let Some(path) = self.rules_file.path.clone() else { return Ok(RulesFile(None)) };
        Ok(RulesFile(Some(OpenedFile::read_on_a_thread(path).await?)))
    }
}

/// The file of a builder.
#[derive(Debug, Default)]
pub(super) struct FileOptions {
    path: Option<PathBuf>,
    /// The rules of the file with its path, once it was read.
    rules: Option<(PathBuf, RuleSet)>,
}

impl FileOptions {
    /// Returns whether the file makes the limiter follow the shared rules.
    pub(super) fn is_shared(&self) -> bool {
        self.rules.as_ref().is_some_and(|(_, rules)| rules.is_shared)
    }

    /// Adds the rules of the file to a table, which checks all sets together. Returns false if there is no file.
    pub(super) fn add_to(&self, table: &RuleTable) -> Result<bool, Error> {
        let Some((path, rules)) = &self.rules else { return Ok(false) };
        let set = table.set(Origin::File, rules.clone());
        metrics::rules_loaded(Origin::File.as_str(), set.is_ok());
        set.map_err(|error| file_error(path, &error))?;
        Ok(true)
    }
}

/// The file of rules of a limiter that is being built.
pub(super) struct RulesFile(Option<OpenedFile>);

impl RulesFile {
    /// Builds the limiter that follows the file.
    pub(super) fn build(mut self, mut builder: Builder) -> Result<Limiter, Error> {
        builder.rules_file.rules = self.take_rules();
        self.follow_from(builder.build_without_file()?)
    }

    /// Builds the limiter that follows the file, once it is connected.
    pub(super) async fn connect(mut self, mut builder: Builder) -> Result<Limiter, Error> {
        builder.rules_file.rules = self.take_rules();
        self.follow_from(builder.connect_without_file().await?)
    }

    fn take_rules(&mut self) -> Option<(PathBuf, RuleSet)> {
        self.0.as_mut().map(|file| (file.path.clone(), mem::take(&mut file.rules)))
    }

    /// Follows the changes of the file.
    fn follow_from(self, limiter: Limiter) -> Result<Limiter, Error> {
        if let Some(file) = self.0 {
            limiter.follow_rules(file)?;
        }
        Ok(limiter)
    }
}

// The option to follow the shared rules.

impl Builder {
    /// Returns whether the limiter is to follow the shared rules.
    pub(super) fn follows_shared_rules(&self) -> bool {
        #[cfg(feature = "redis")]
        if self.redis.follows_shared_rules() {
            return true;
        }
        self.rules.is_shared || self.rules_file.is_shared()
    }

    /// Checks that the store can have shared rules.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a store in this process, and for a cache without a path or without shared rules.
    pub(super) fn check_shared_rules(&self, store: &Store) -> Result<(), Error> {
        #[cfg(feature = "redis")]
        self.redis.check_cache(self.follows_shared_rules())?;
        if self.follows_shared_rules() && matches!(store, Store::Memory) {
            return Err(Error::new(
                ErrorKind::Config,
                "`shared_rules` must be used with a store that processes share, got one in this process: write the `url` of \
                 a Redis, or leave it out",
            ));
        }
        Ok(())
    }
}
