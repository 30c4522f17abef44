//! Users and passwords that change while the program runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::ConnectionInfo;
use tokio::time::timeout;

use crate::store::redis::server::config_error;
use crate::store::redis::server::lookups::{JobError, SingleFlight};
use crate::{Error, ErrorKind};

/// A user and a password of Redis, for [`Builder::credentials`](crate::Builder::credentials).
///
/// Its `Debug` form contains neither.
#[derive(Clone)]
pub struct Credentials {
    user: Option<String>,
    password: String,
}

impl Credentials {
    /// Creates the credentials of a named user (ACL).
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: password.into() }
    }

    /// Creates the credentials of the user in the URL. If the URL names none, that is the default user, whose password
    /// `requirepass` sets.
    pub fn password(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into() }
    }

    pub(super) fn apply(self, info: &ConnectionInfo) -> ConnectionInfo {
        let settings = info.redis_settings().clone().set_password(self.password);
        let settings = match self.user {
            Some(user) => settings.set_username(user),
            None => settings,
        };
        info.clone().set_redis_settings(settings)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// The longest time for which credentials are kept if no attempt to connect waits for them any more.
const RESULT_TTL: Duration = Duration::from_secs(5);

/// The program's function that returns the credentials.
///
/// At most one call runs at a time. All attempts to connect that wait for it share its result, also those of clones.
#[derive(Clone)]
pub(crate) struct Provider {
    function: Arc<dyn Fn() -> Credentials + Send + Sync>,
    calls: Arc<SingleFlight<(), Credentials>>,
}

impl Provider {
    pub(crate) fn new(function: impl Fn() -> Credentials + Send + Sync + 'static) -> Self {
        Self {
            function: Arc::new(function),
            calls: Arc::new(SingleFlight::new("rate-limited-credentials", RESULT_TTL)),
        }
    }

    /// Calls the function on a thread where it may block and panic.
    pub(super) async fn credentials(&self, time_limit: Duration) -> Result<Credentials, Error> {
        let function = Arc::clone(&self.function);
        match timeout(time_limit, self.calls.run((), move || function())).await {
            Ok(Ok(credentials)) => Ok(credentials),
            Ok(Err(JobError::NoResult)) => Err(config_error(
                "`credentials` must be a function that does not panic, but it panicked or got no thread: check the function",
            )),
            Ok(Err(JobError::NotStarted(error))) => {
                let problem = "cannot start a thread for `credentials`";
                Err(Error::with_source(ErrorKind::Unavailable, problem, error))
            }
            Err(_) => {
                let problem = format!("`credentials` did not return within {time_limit:?}");
                Err(Error::new(ErrorKind::Unavailable, problem))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Mutex, mpsc};

    use super::*;

    #[test]
    fn debug_prints_neither_user_nor_password() {
        for credentials in [Credentials::new("us3r", "s3cret"), Credentials::password("s3cret")] {
            let shown = format!("{credentials:?}");
            assert!(!shown.contains("s3cret") && !shown.contains("us3r"), "{shown}");
        }
    }

    /// Each attempt to connect would leave one more blocked thread if several calls ran at a time.
    #[tokio::test]
    async fn a_slow_provider_has_one_call_at_a_time() {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let (release, released) = mpsc::channel();
        let released = Mutex::new(released);
        let provider = Provider::new(move || {
            released.lock().expect("no panic").recv().expect("the test is not over");
            Credentials::password(counted.fetch_add(1, Ordering::SeqCst).to_string())
        });
        for _ in 0..4 {
            let error = provider.credentials(Duration::from_millis(5)).await.expect_err("too slow");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        for expected in ["0", "1"] {
            release.send(()).expect("the provider waits");
            let credentials = provider.credentials(Duration::from_secs(60)).await.expect("credentials");
            assert_eq!(credentials.password, expected);
        }
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_next_attempt_calls_again() {
        let calls = AtomicU32::new(0);
        let provider = Provider::new(move || {
            assert!(calls.fetch_add(1, Ordering::SeqCst) > 0, "the first time");
            Credentials::password("s3cret")
        });
        let error = provider.credentials(Duration::from_secs(5)).await.expect_err("a panic");
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains("panicked"), "{error}");
        assert!(provider.credentials(Duration::from_secs(5)).await.is_ok());
    }
}
