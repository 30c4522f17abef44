//! Rules whose limits are in the program's configuration alone.

use limiter_testkit::RedisServer;
use rate_limited::{Denied, ErrorKind, Limiter, Permit, Rule, Source, rate_limited};

use crate::support::builder_for;

#[rate_limited("configured")]
async fn text_alone() -> Result<(), Denied> {
    Ok(())
}

#[rate_limited(key = user.to_uppercase(), name = "configured by user", limit = configured, cost = cost, permit = allowed)]
async fn by_user(user: &str, cost: u32) -> Result<Permit, Denied> {
    Ok(allowed)
}

#[rate_limited("configured", fallback = "first")]
#[rate_limited(key = "configured second", limit = "2/1h", fallback = "second")]
async fn two_rules() -> &'static str {
    "ran"
}

#[tokio::test]
async fn a_configured_rule_has_the_limits_of_the_configuration() {
    for builder in [Limiter::builder(), builder_for(RedisServer::shared())] {
        let limiter = builder
            .rule("configured", Rule::new().limit("3/1h".parse().expect("valid")))
            .rule(
                "configured by user",
                Rule::new().limit("9/1m".parse().expect("valid")).limit("5/1h".parse().expect("valid")),
            )
            .build()
            .expect("builds");
        let calls = async {
            assert!(text_alone().await.is_ok());
            assert_eq!([two_rules().await, two_rules().await, two_rules().await], ["ran", "ran", "first"]);
            assert!(text_alone().await.is_err());
            let allowed = by_user("a", 4).await.expect("is allowed");
            assert_eq!((allowed.limit().to_string(), allowed.remaining()), ("5/h".to_owned(), 1));
            assert_eq!(by_user("A", 2).await.map(drop).map_err(|denied| denied.limit().max()), Err(5));
            assert!(by_user("b", 5).await.is_ok());
        };
        limiter.scope(calls).await;
    }
}

#[tokio::test]
async fn a_configured_rule_without_a_limit_is_unlimited() {
    for limiter in [Limiter::memory(), builder_for(RedisServer::shared()).build().expect("builds")] {
        let calls = async {
            for _ in 0..20 {
                assert!(text_alone().await.is_ok());
                assert!(by_user("c", 1000).await.is_ok());
            }
            assert_eq!([two_rules().await, two_rules().await, two_rules().await], ["ran", "ran", "second"]);
        };
        limiter.scope(calls).await;
    }
}

/// The limits may be in settings that could not be read, as behind a wrong URL.
#[tokio::test]
async fn a_configured_rule_is_not_unlimited_while_the_limiter_cannot_be_configured() {
    let limiter = Limiter::failing(ErrorKind::Config);
    let denied = limiter.scope(text_alone()).await.expect_err("no limit is known");
    assert_eq!((denied.name(), denied.source()), ("configured", Source::Policy));
    assert_eq!(limiter.unlimited_calls(), 0);
}
