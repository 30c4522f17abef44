//! The permit of an annotated call in its body, on both stores and under each failure policy.

use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Denied, Error, Limiter, Permit, Source, rate_limited};

use crate::support::builder_for;

#[rate_limited(key = "permit", limit = "2/1h", permit = allowed)]
async fn plain() -> Result<Permit, Denied> {
    Ok(allowed)
}

#[rate_limited(key = "permit sync", limit = "2/1h", permit = allowed, on_error = raise)]
fn plain_sync() -> Result<Permit, Box<dyn std::error::Error + Send + Sync>> {
    Ok(allowed)
}

#[rate_limited(key = "permit {user}", name = "user", limits = ["2/1h", "9/1d"], permit = allowed)]
#[rate_limited(key = "permit of all", name = "all", limit = "9/1h")]
async fn two_rules(user: u64) -> Result<Permit, Denied> {
    Ok(allowed)
}

#[rate_limited(key = "permit wait", limit = "2/1h", wait = "10ms", permit = allowed)]
async fn waits() -> Result<Permit, Denied> {
    Ok(allowed)
}

fn both_stores() -> [Limiter; 2] {
    let redis = builder_for(RedisServer::shared()).build().expect("builds");
    [Limiter::memory(), redis]
}

#[tokio::test]
async fn refund_of_the_permit_gives_the_permits_back() {
    for limiter in both_stores() {
        limiter
            .scope(async {
                for round in 0..3 {
                    let first = [plain().await, two_rules(7).await, waits().await];
                    let second = [plain().await, two_rules(7).await, waits().await];
                    let third = [plain().await, two_rules(7).await, waits().await];
                    for ((first, second), third) in first.into_iter().zip(second).zip(third) {
                        let (first, second) = (first.expect("is allowed"), second.expect("is allowed"));
                        assert_eq!((first.remaining(), second.remaining()), (1, 0), "{round}: {}", first.name());
                        assert_eq!(first.source(), Source::Store);
                        assert!(third.is_err(), "{round}: {}", first.name());
                        for allowed in [&first, &second, &first] {
                            limiter.refund(allowed).await.expect("refunds");
                        }
                    }
                }
            })
            .await;
        let run = limiter.clone();
        let sync = move || run.scope_sync(|| [plain_sync(), plain_sync(), plain_sync()].map(|result| result.ok()));
        let allowed = tokio::task::spawn_blocking(sync).await.expect("runs");
        let remaining = allowed.each_ref().map(|allowed| allowed.as_ref().map(|allowed| allowed.remaining()));
        assert_eq!(remaining, [Some(1), Some(0), None]);
    }
}

/// A call that a policy allows took nothing, so its refund sends nothing.
#[tokio::test]
async fn a_permit_of_the_open_policy_has_nothing_to_refund() {
    #[rate_limited(key = "permit open", limit = "1/1h", permit = allowed, on_error = open)]
    async fn open() -> Result<Permit, Denied> {
        Ok(allowed)
    }
    #[rate_limited(key = "permit closed", limit = "1/1h", permit = _allowed, fallback = "denied", on_error = closed)]
    async fn closed() -> &'static str {
        "ran"
    }
    #[rate_limited(key = "permit raise", limit = "1/1h", permit = allowed, fallback = "denied", on_error = handle)]
    async fn handled() -> &'static str {
        let _: Permit = allowed;
        "ran"
    }
    async fn handle(error: Error) -> &'static str {
        if error.is_transient() { "handled" } else { "not transient" }
    }
    #[rate_limited(key = "permit standby", limit = "1/1h", permit = allowed)]
    async fn standby() -> Result<Source, Denied> {
        Ok(allowed.source())
    }

    let server = RedisServer::start();
    let limiter = builder_for(&server).connect().await.expect("connects");
    drop(server);
    limiter
        .scope(async {
            for _ in 0..2 {
                let allowed = open().await.expect("is allowed");
                assert_eq!(allowed.source(), Source::Policy);
                limiter.refund(&allowed).await.expect("refunds nothing, though the server is down");
                assert_eq!((closed().await, handled().await), ("denied", "handled"));
            }
            assert_eq!(standby().await.ok(), Some(Source::Standby));
            assert!(standby().await.is_err());
        })
        .await;
}

/// An invalid limit is a failure of the limiter. There is no permit for it, under any policy.
#[test]
fn an_invalid_limit_has_no_permit() {
    #[rate_limited(key = "invalid", window = Duration::ZERO, max = 5, permit = _allowed, fallback = 0, on_error = open)]
    fn no_window() -> u8 {
        1
    }
    #[rate_limited(key = "invalid", window = "1s", max = max, permit = _allowed, fallback = 0, on_error = |_| 2)]
    fn no_permits(max: u32) -> u8 {
        1
    }
    Limiter::memory().scope_sync(|| assert_eq!((no_window(), no_permits(0), no_permits(1)), (0, 2, 1)));
}
