//! Statuses of tonic 0.14 for denials and failures.

use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::{Denied, Error, Source};

/// The status of a denied call: `RESOURCE_EXHAUSTED`, or `UNAVAILABLE` if a failure policy denied it.
///
/// With the feature `tonic`, of tonic 0.14. Its details have `RetryInfo`, unless the denial
/// [is final](Denied::is_final). So a method may return `Result<Response<T>, Status>`, and needs no `fallback`.
///
/// Its metadata have `grpc-retry-pushback-ms`, by which clients of gRPC with a retry policy delay their next try (gRFC
/// A6): the milliseconds of the retry, rounded up, or -1 for a final denial, which forbids one. A wait above
/// [`i32::MAX`] ms, or 24.8 days, is -1 too: clients read no larger number.
impl From<Denied> for Status {
    fn from(denied: Denied) -> Self {
        let code = if denied.source() == Source::Policy { Code::Unavailable } else { Code::ResourceExhausted };
        let message = denied.to_string();
        let mut status = match denied.is_final() {
            true => Self::new(code, message),
            false => Self::with_error_details(code, message, retry_info(denied.retry_after())),
        };
        status.metadata_mut().insert(RETRY_PUSHBACK, retry_pushback(&denied));
        status
    }
}

const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Clients read a number of 32 bits.
fn retry_pushback(denied: &Denied) -> MetadataValue<Ascii> {
    let millis = denied.retry_after_millis().and_then(|millis| i32::try_from(millis).ok());
    millis.unwrap_or(-1).into()
}

/// The status of a call that the limiter could not decide: `UNAVAILABLE`. It does not contain the error's text, which
/// may name a server.
///
/// With the feature `tonic`, of tonic 0.14.
impl From<Error> for Status {
    fn from(_error: Error) -> Self {
        Self::unavailable("the rate limit cannot be checked")
    }
}

fn retry_info(retry_after: Duration) -> ErrorDetails {
    ErrorDetails::with_retry_info(Some(retry_after))
}

#[cfg(all(test, not(limiter_loom), feature = "redis", feature = "test-util"))]
mod tests {
    use super::*;
    use crate::{ErrorKind, Key, Limit, Limiter, ManualClock, OnError};

    fn denied(limiter: &Limiter, cost: u32) -> Denied {
        let (key, limit): (_, Limit) = (Key::new("secret"), "1/10s".parse().expect("a limit"));
        let _ = limiter.named("api").check_blocking(&key, &limit);
        let decision = limiter.named("api").check_n_blocking(&key, &limit, cost).expect("decides");
        decision.into_result().expect_err("there is one permit")
    }

    #[test]
    fn a_denial_is_a_status_with_the_time_of_a_retry() {
        let limiter = Limiter::builder().clock(ManualClock::new()).build().expect("builds");
        let status = Status::from(denied(&limiter, 1));
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("`api`") && !status.message().contains("secret"), "{status:?}");
        let retry_info = status.get_details_retry_info().expect("details");
        assert_eq!(retry_info.retry_delay, Some(Duration::from_secs(10)));
        assert_eq!(status.metadata().get(RETRY_PUSHBACK).expect("a delay"), "10000");
        let last = Status::from(denied(&limiter, 2));
        assert_eq!(last.metadata().get(RETRY_PUSHBACK).expect("no retry"), "-1");
        assert_eq!((last.code(), last.details()), (Code::ResourceExhausted, &[][..]));
    }

    #[test]
    fn a_denial_of_a_failure_policy_is_unavailable() {
        let down = Limiter::builder().url("redis://127.0.0.1:1").on_error(OnError::Closed).build().expect("builds");
        let status = Status::from(denied(&down, 1));
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.get_details_retry_info().expect("details").retry_delay, Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_failure_is_unavailable_without_its_text() {
        let status = Status::from(Error::new(ErrorKind::Unavailable, "redis.internal:6379 is down"));
        assert_eq!(status.code(), Code::Unavailable);
        assert!(!format!("{status:?}").contains("internal"));
    }
}
