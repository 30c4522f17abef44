//! The default limiter, which annotated functions without a limiter of their own use.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Write};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::sync::OnceCell;
use tracing::subscriber::NoSubscriber;

#[cfg(not(feature = "rules"))]
use crate::ErrorKind;
use crate::builder::Builder;
use crate::rule::MODE_VARIABLE;
use crate::{Error, Limiter, Mode, TARGET};

static INSTALLED: OnceCell<Limiter> = OnceCell::new();
static DEFAULT: OnceCell<ProcessDefault> = OnceCell::new();
/// True once the startup log of [`DEFAULT`] is written.
static IS_LOGGED: AtomicBool = AtomicBool::new(false);

tokio::task_local! {
    static SCOPED: Limiter;
}

/// The environment variable that names the store of the default limiter.
const URL_VARIABLE: &str = "RATE_LIMITED_URL";
/// The environment variable that, as `1`, makes a wrong URL a panic.
const STRICT_VARIABLE: &str = "RATE_LIMITED_STRICT";
/// The environment variable that names the file of rules of the default limiter.
const RULES_VARIABLE: &str = "RATE_LIMITED_RULES";

/// The error of [`Limiter::install`]: a default limiter is installed already.
#[derive(Debug)]
pub struct InstallError {
    limiter: Limiter,
}

impl InstallError {
    /// The limiter that was not installed.
    #[must_use]
    pub fn into_limiter(self) -> Limiter {
        self.limiter
    }
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "`Limiter::install` must be called at most once in a process, got a second call: \
             use `Limiter::scope` for another default, or `InstallError::into_limiter` to keep the limiter",
        )
    }
}

impl std::error::Error for InstallError {}

impl Limiter {
    /// Installs this limiter as the default of the process, which annotated functions use. The limiter can be used
    /// beside it: both are one.
    ///
    /// With the feature `metrics`, install the recorder of metrics before: a rule that was used without a recorder stays
    /// silent.
    ///
    /// # Errors
    /// [`InstallError`](crate::InstallError) if a default limiter is installed already. The error returns this limiter.
    pub fn install(&self) -> Result<(), InstallError> {
        INSTALLED.set(self.clone()).map_err(|limiter| InstallError { limiter })?;
        if DEFAULT.get().is_some() {
            tracing::warn!(
                target: TARGET,
                "a limiter was installed after functions had run without it: it does not count their permits"
            );
        }
        Ok(())
    }

    /// Runs a future with this limiter as the default of its task. A task that the future spawns needs a scope of its
    /// own.
    ///
    /// Use it in tests, to give each test a limiter of its own.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// Limiter::memory().scope(async { /* calls of annotated functions */ }).await;
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// The same as that of `future`. The scope is entered and left with each poll.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        SCOPED.scope(self.clone(), future).await
    }

    /// Runs a closure with this limiter as the default: [`scope`](Limiter::scope) for code that is not async.
    pub fn scope_sync<R>(&self, run: impl FnOnce() -> R) -> R {
        SCOPED.sync_scope(self.clone(), run)
    }

    /// The limiter that annotated functions use here.
    ///
    /// It is the first of these that exists:
    ///
    /// 1. the limiter of the current [scope](Limiter::scope),
    /// 2. the [installed](Limiter::install) limiter,
    /// 3. a limiter on the store that the environment variable `RATE_LIMITED_URL` names,
    /// 4. a limiter in memory, with one warning in the log.
    ///
    /// The limiters of 3 and 4 follow the file of rules that the variable `RATE_LIMITED_RULES`
    /// names, if it is set (feature `rules`). A file that cannot be used at the start is handled like a URL that cannot
    /// be used. If one of the two variables is set, so is a wrong value of `RATE_LIMITED_MODE`.
    ///
    /// If `RATE_LIMITED_URL` cannot be used, the log gets one error, or standard error does if no `tracing` subscriber is
    /// set. Each decision fails with [`Config`](crate::ErrorKind::Config). By the default policy the standby limiter then decides: limits count in
    /// this process alone, and decisions have [`Source::Standby`](crate::Source::Standby). Only `on_error = raise`, or
    /// a handler, receives the error.
    ///
    /// # Panics
    /// If one of these variables cannot be used and `RATE_LIMITED_STRICT` is `1`, each use of the limiter on the environment
    /// panics, with the error. Calls of annotated functions do so too. Any other value of that variable has no effect.
    #[must_use]
    pub fn current() -> Self {
        scoped().unwrap_or_else(|| process_wide().clone())
    }
}

/// The limiter of an annotated call.
#[derive(Clone, Debug)]
pub enum LimiterHandle {
    /// The default limiter of the process, by reference. A clone would increment a reference count, in a cache line
    /// that all threads write.
    Process(&'static Limiter),
    /// The limiter of a scope or of an expression.
    Other(Limiter),
}

impl Deref for LimiterHandle {
    type Target = Limiter;

    fn deref(&self) -> &Limiter {
        match self {
            Self::Process(limiter) => limiter,
            Self::Other(limiter) => limiter,
        }
    }
}

/// Returns the limiter of the current scope, or else the default limiter of the process.
#[inline]
#[must_use]
pub fn current() -> LimiterHandle {
    scoped().map_or_else(|| LimiterHandle::Process(process_wide()), LimiterHandle::Other)
}

/// The limiter of the current scope.
fn scoped() -> Option<Limiter> {
    SCOPED.try_with(Limiter::clone).ok()
}

/// The limiter outside of any scope: the installed one, or else the one of the environment.
fn process_wide() -> &'static Limiter {
    INSTALLED.get().unwrap_or_else(default_limiter)
}

#[inline(never)]
fn default_limiter() -> &'static Limiter {
    let ProcessDefault { limiter, startup_log } = DEFAULT.get_or_init(limiter_from_environment);
    // The log is written once, and outside of the initialisation: a subscriber may call rate-limited functions itself.
    match startup_log {
        StartupLog::Nothing => {}
        StartupLog::Strict(variable, error) => panic!("{variable} cannot be used: {error}"),
        _ if IS_LOGGED.swap(true, Ordering::Relaxed) => {}
        StartupLog::InMemory => tracing::warn!(
            target: TARGET,
            "no limiter is installed and {URL_VARIABLE} is not set: rate limits count in this process"
        ),
        StartupLog::Unusable(variable, error) => log_unusable(variable, error),
    }
    limiter
}

/// Logs that a variable cannot be used. Without a subscriber it is written to standard error: the program would not notice
/// otherwise that limits are not shared.
fn log_unusable(variable: &str, error: &Error) {
    if tracing::dispatcher::get_default(|dispatch| dispatch.is::<NoSubscriber>()) {
        // A program may run without standard error.
        let _ = writeln!(
            io::stderr(),
            "rate-limited: {variable} cannot be used: rate limits fail until it is corrected: {error}"
        );
    }
    tracing::error!(target: TARGET, %error, "{variable} cannot be used: rate limits fail until it is corrected");
}

/// The default limiter of a program that installs none.
struct ProcessDefault {
    limiter: Limiter,
    startup_log: StartupLog,
}

/// The event of the first use of a default limiter.
enum StartupLog {
    Nothing,
    InMemory,
    /// An environment variable with an unusable value.
    Unusable(&'static str, Error),
    /// An error with which each use of the limiter panics, in place of a log event.
    Strict(&'static str, Error),
}

fn limiter_from_environment() -> ProcessDefault {
    let (url, rules) = (env::var_os(URL_VARIABLE), env::var_os(RULES_VARIABLE));
    let startup_log = if url.is_some() { StartupLog::Nothing } else { StartupLog::InMemory };
    if url.is_none() && rules.is_none() {
        return ProcessDefault { limiter: Limiter::memory(), startup_log };
    }
    let mut builder = Builder::default();
    if let Some(url) = url {
        // Invalid UTF-8 is replaced, and the URL then fails as one that names no store.
        builder = builder.url(url.to_string_lossy());
    }
    match build(builder, rules) {
        Ok(limiter) => ProcessDefault { limiter, startup_log },
        Err((variable, error)) => {
            let limiter = Builder::default().misconfigured(error.clone());
            let is_strict = env::var_os(STRICT_VARIABLE).is_some_and(|value| value == "1");
            let event = if is_strict { StartupLog::Strict } else { StartupLog::Unusable };
            ProcessDefault { limiter, startup_log: event(variable, error) }
        }
    }
}

/// Builds the limiter with the file of rules that the environment names. An error comes with the variable that causes
/// it.
fn build(builder: Builder, rules: Option<OsString>) -> Result<Limiter, (&'static str, Error)> {
    builder.check_store().map_err(|error| (URL_VARIABLE, error))?;
    Mode::in_environment().map_err(|error| (MODE_VARIABLE, error))?;
    match rules {
        Some(path) => build_with_file(builder, &path).map_err(|error| (RULES_VARIABLE, error)),
        None => builder.build().map_err(|error| (URL_VARIABLE, error)),
    }
}

#[cfg(feature = "rules")]
fn build_with_file(builder: Builder, path: &OsStr) -> Result<Limiter, Error> {
    builder.rules_file(path).build()
}

#[cfg(not(feature = "rules"))]
fn build_with_file(_: Builder, _: &OsStr) -> Result<Limiter, Error> {
    let problem = "`RATE_LIMITED_RULES` must be unset, got a file: turn on the feature `rules` of `rate-limited`";
    Err(Error::new(ErrorKind::Config, problem))
}

#[cfg(all(test, not(limiter_loom), not(feature = "rules")))]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_rules_without_the_feature_is_an_error_that_names_it() {
        let (variable, error) = build(Builder::default(), Some("rules.toml".into())).expect_err("no feature");
        let message = "`RATE_LIMITED_RULES` must be unset, got a file: turn on the feature `rules` of `rate-limited`";
        assert_eq!((variable, error.kind(), &*error.to_string()), (RULES_VARIABLE, ErrorKind::Config, message));
    }
}
