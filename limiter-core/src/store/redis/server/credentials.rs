//! Users and passwords that change while the program runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::ConnectionInfo;
use tokio::time::timeout;

use crate::store::redis::server::single_flight::{JobError, SingleFlight};
use crate::store::redis::server::unusable;
use crate::{Error, ErrorKind};

/// A user and a password of Redis, as [`Builder::credentials`](crate::Builder::credentials) gives them.
///
/// Its `Debug` form contains neither.
#[derive(Clone)]
pub struct Credentials {
    user: Option<String>,
    password: String,
}

impl Credentials {
    /// Of a user that Redis knows by name (ACL).
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: password.into() }
    }

    /// Of the user that the URL names; without one there, of the default user, whose password `requirepass` sets.
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

/// The longest time for which credentials are kept that came between two attempts to connect.
const KEPT: Duration = Duration::from_secs(5);

/// The program's own function. One call of it is under way at a time, whose result all attempts to connect share that wait
/// for it, those of clones too.
#[derive(Clone)]
pub(crate) struct Provider {
    function: Arc<dyn Fn() -> Credentials + Send + Sync>,
    calls: Arc<SingleFlight<(), Credentials>>,
}

impl Provider {
    pub(crate) fn new(function: impl Fn() -> Credentials + Send + Sync + 'static) -> Self {
        Self { function: Arc::new(function), calls: Arc::new(SingleFlight::new("rate-limited-credentials", KEPT)) }
    }

    /// Calls the function on a thread where it may block and panic.
    pub(super) async fn credentials(&self, longest: Duration) -> Result<Credentials, Error> {
        let function = Arc::clone(&self.function);
        match timeout(longest, self.calls.run((), move || function())).await {
            Ok(Ok(credentials)) => Ok(credentials),
            Ok(Err(JobError::Ended)) => {
                Err(unusable("the program's provider of credentials panicked, or its thread did not start"))
            }
            Ok(Err(JobError::NotStarted(error))) => {
                let problem = "the thread for the program's provider of credentials cannot be started";
                Err(Error::with_source(ErrorKind::Unavailable, problem, error))
            }
            Err(_) => {
                let late = format!("the program's provider of credentials gave none within {longest:?}");
                Err(Error::new(ErrorKind::Unavailable, late))
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
    fn debug_forms_tell_nothing() {
        for credentials in [Credentials::new("us3r", "s3cret"), Credentials::password("s3cret")] {
            let shown = format!("{credentials:?}");
            assert!(!shown.contains("s3cret") && !shown.contains("us3r"), "{shown}");
        }
    }

    /// Else each attempt to connect would leave one more thread behind.
    #[tokio::test]
    async fn a_slow_provider_is_asked_once_at_a_time() {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        let (answer, answers) = mpsc::channel();
        let answers = Mutex::new(answers);
        let provider = Provider::new(move || {
            answers.lock().expect("no panic").recv().expect("the test is not over");
            Credentials::password(counted.fetch_add(1, Ordering::SeqCst).to_string())
        });
        for _ in 0..4 {
            let error = provider.credentials(Duration::from_millis(5)).await.expect_err("too slow");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        for expected in ["0", "1"] {
            answer.send(()).expect("the provider is there");
            let credentials = provider.credentials(Duration::from_secs(60)).await.expect("an answer");
            assert_eq!(credentials.password, expected);
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_next_attempt_asks_again() {
        let asked = AtomicU32::new(0);
        let provider = Provider::new(move || {
            assert!(asked.fetch_add(1, Ordering::SeqCst) > 0, "the first time");
            Credentials::password("s3cret")
        });
        let error = provider.credentials(Duration::from_secs(5)).await.expect_err("a panic");
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains("panicked"), "{error}");
        assert!(provider.credentials(Duration::from_secs(5)).await.is_ok());
    }
}
