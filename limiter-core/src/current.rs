//! Which limiter a function uses that names none.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::sync::OnceCell;

use crate::builder::Builder;
use crate::{Error, Limiter, TARGET};

static INSTALLED: OnceCell<Limiter> = OnceCell::new();
static DEFAULT: OnceCell<Default> = OnceCell::new();
static TOLD: AtomicBool = AtomicBool::new(false);

tokio::task_local! {
    static SCOPED: Limiter;
}

/// Names the store of the default limiter.
const URL_VARIABLE: &str = "RATE_LIMITED_URL";

/// A default limiter was installed before.
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
        tracing::warn!(target: TARGET, "a limiter was installed after functions had run without it: what they took is not counted");
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
    scoped().unwrap_or_else(|| of_process().clone())
}

/// The one of this task's scope.
pub(crate) fn scoped() -> Option<Limiter> {
    SCOPED.try_with(Limiter::clone).ok()
}

/// The one of those who are in no scope.
pub(crate) fn of_process() -> &'static Limiter {
    INSTALLED.get().unwrap_or_else(default)
}

fn default() -> &'static Limiter {
    let Default { limiter, note } = DEFAULT.get_or_init(from_environment);
    // Logged outside of the initialisation, and once: what listens may be rate limited itself.
    match note {
        Note::Nothing => {}
        _ if TOLD.swap(true, Ordering::Relaxed) => {}
        Note::InMemory => tracing::warn!(
            target: TARGET,
            "no limiter is installed and {URL_VARIABLE} is not set: rate limits count in this process"
        ),
        Note::Unusable(error) => tracing::error!(
            target: TARGET,
            %error,
            "{URL_VARIABLE} cannot be used: rate limits fail until it is mended"
        ),
    }
    limiter
}

/// The limiter of a program that installs none, and what its log should say of it.
struct Default {
    limiter: Limiter,
    note: Note,
}

enum Note {
    Nothing,
    InMemory,
    Unusable(Error),
}

fn from_environment() -> Default {
    let Some(url) = std::env::var_os(URL_VARIABLE) else {
        return Default { limiter: Limiter::memory(), note: Note::InMemory };
    };
    // What is no text is set all the same: with its strange bytes replaced it names no store, and fails as such.
    match Builder::default().url(&url.to_string_lossy()).build() {
        Ok(limiter) => Default { limiter, note: Note::Nothing },
        Err(error) => Default { limiter: Builder::default().broken(error.clone()), note: Note::Unusable(error) },
    }
}
