//! The default limiter, which annotated functions without a limiter of their own use.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::sync::OnceCell;

use crate::builder::Builder;
use crate::{Error, Limiter, TARGET};

static INSTALLED: OnceCell<Limiter> = OnceCell::new();
static DEFAULT: OnceCell<ProcessDefault> = OnceCell::new();
/// True once the startup log of [`DEFAULT`] is written.
static IS_LOGGED: AtomicBool = AtomicBool::new(false);

tokio::task_local! {
    static SCOPED: Limiter;
}

/// The environment variable that names the store of the default limiter.
const URL_VARIABLE: &str = "RATE_LIMITED_URL";

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
    /// Installs this limiter as the default of the process, which annotated functions use.
    ///
    /// # Errors
    /// [`InstallError`](crate::InstallError) if a default limiter is installed already. The error returns this limiter.
    pub fn install(self) -> Result<(), InstallError> {
        INSTALLED.set(self).map_err(|limiter| InstallError { limiter })?;
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
    /// If `RATE_LIMITED_URL` cannot be used, the log gets one error, and each decision fails with
    /// [`Config`](crate::ErrorKind::Config). By the default policy the standby limiter then decides: limits count in
    /// this process alone, and decisions have [`Source::Standby`](crate::Source::Standby). Only `on_error = raise`, or
    /// a handler, receives the error.
    #[must_use]
    pub fn current() -> Self {
        scoped().unwrap_or_else(|| process_wide().clone())
    }
}

/// The limiter of the current scope.
pub(crate) fn scoped() -> Option<Limiter> {
    SCOPED.try_with(Limiter::clone).ok()
}

/// The limiter outside of any scope: the installed one, or else the one of the environment.
pub(crate) fn process_wide() -> &'static Limiter {
    INSTALLED.get().unwrap_or_else(default_limiter)
}

fn default_limiter() -> &'static Limiter {
    let ProcessDefault { limiter, startup_log } = DEFAULT.get_or_init(limiter_from_environment);
    // The log is written once, and outside of the initialisation: a subscriber may call rate-limited functions itself.
    match startup_log {
        StartupLog::Nothing => {}
        _ if IS_LOGGED.swap(true, Ordering::Relaxed) => {}
        StartupLog::InMemory => tracing::warn!(
            target: TARGET,
            "no limiter is installed and {URL_VARIABLE} is not set: rate limits count in this process"
        ),
        StartupLog::Unusable(error) => tracing::error!(
            target: TARGET,
            %error,
            "{URL_VARIABLE} cannot be used: rate limits fail until it is corrected"
        ),
    }
    limiter
}

/// The default limiter of a program that installs none.
struct ProcessDefault {
    limiter: Limiter,
    startup_log: StartupLog,
}

/// The log event about a default limiter.
enum StartupLog {
    Nothing,
    InMemory,
    Unusable(Error),
}

fn limiter_from_environment() -> ProcessDefault {
    let Some(url) = std::env::var_os(URL_VARIABLE) else {
        return ProcessDefault { limiter: Limiter::memory(), startup_log: StartupLog::InMemory };
    };
    // Invalid UTF-8 is replaced, and the URL then fails as one that names no store.
    match Builder::default().url(&url.to_string_lossy()).build() {
        Ok(limiter) => ProcessDefault { limiter, startup_log: StartupLog::Nothing },
        Err(error) => {
            let limiter = Builder::default().misconfigured(error.clone());
            ProcessDefault { limiter, startup_log: StartupLog::Unusable(error) }
        }
    }
}
