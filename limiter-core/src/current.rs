//! The default limiter, which annotated functions without a limiter of their own use.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::sync::OnceCell;

use crate::builder::Builder;
use crate::{Error, Limiter, TARGET};

static INSTALLED: OnceCell<Limiter> = OnceCell::new();
static DEFAULT: OnceCell<ProcessDefault> = OnceCell::new();
/// The startup log of [`DEFAULT`] was written.
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
        f.write_str("a default limiter is installed already")
    }
}

impl std::error::Error for InstallError {}

pub(crate) fn install(limiter: Limiter) -> Result<(), InstallError> {
    INSTALLED.set(limiter).map_err(|limiter| InstallError { limiter })?;
    if DEFAULT.get().is_some() {
        tracing::warn!(
            target: TARGET,
            "a limiter was installed after functions had run without it: it does not count their permits"
        );
    }
    Ok(())
}

pub(crate) async fn scope<F: Future>(limiter: Limiter, future: F) -> F::Output {
    SCOPED.scope(limiter, future).await
}

pub(crate) fn scope_sync<R>(limiter: Limiter, run: impl FnOnce() -> R) -> R {
    SCOPED.sync_scope(limiter, run)
}

pub(crate) fn current() -> Limiter {
    scoped().unwrap_or_else(|| process_wide().clone())
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
