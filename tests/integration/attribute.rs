//! Tests of the attribute on both stores. Accepted forms and messages are tested in `ui/`.

mod configured;
/// Included here so that clippy checks it.
#[path = "../ui/pass/lints.rs"]
mod lints;
mod permit;
mod settle;
mod size;

use std::fmt;
use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Denied, Error, Key, Limiter, ManualClock, rate_limited};

use crate::support::builder_for;

#[rate_limited(key = "getId", window = "10s", max = 5, fallback = degrade_fn)]
async fn get_id(id: u64) -> String {
    format!("id {id}")
}

async fn degrade_fn(id: u64) -> String {
    format!("degraded {id}")
}

#[tokio::test]
async fn annotated_function_runs_at_most_5_times_in_any_10_s() {
    let clock = ManualClock::new();
    let memory = Limiter::builder().clock(clock.clone()).build().expect("builds");
    let redis = builder_for(RedisServer::shared()).clock(clock.clone()).connect().await.expect("connects");
    for limiter in [memory, redis] {
        limiter
            .scope(async {
                for id in 0..8 {
                    let expected = if id < 5 { format!("id {id}") } else { format!("degraded {id}") };
                    assert_eq!(get_id(id).await, expected);
                }
                clock.advance(Duration::from_millis(9_999));
                assert_eq!(get_id(8).await, "degraded 8");
                clock.advance(Duration::from_millis(1));
                assert_eq!(get_id(9).await, "id 9");
            })
            .await;
    }
}

#[test]
fn expansion_triggers_no_lint() {
    lints::main();
}

/// One decision by two rules on both stores: a denial takes no permit, and each rule has its own fallback.
#[tokio::test]
async fn several_rules_take_all_permits_or_none() {
    #[rate_limited(key = "rules:{user}", name = "user", limits = ["2/1m", "3/1h"],
        fallback = denied.limit().to_string())]
    #[rate_limited(key = "rules", name = "all", limit = "5/1m", cost = cost, when = user != 0,
        fallback = "all".to_owned())]
    async fn run(user: u64, cost: u32) -> String {
        "ran".to_owned()
    }

    let clock = ManualClock::new();
    let memory = Limiter::builder().clock(clock.clone()).build().expect("builds");
    let redis = builder_for(RedisServer::shared()).clock(clock.clone()).connect().await.expect("connects");
    for limiter in [memory, redis] {
        let calls = async {
            assert_eq!((run(1, 4).await, run(1, 2).await), ("ran".into(), "all".into()));
            assert_eq!((run(1, 1).await, run(1, 1).await), ("ran".into(), "2/min".into()));
            assert_eq!((run(0, 9).await, run(2, 1).await), ("ran".into(), "all".into()));
            clock.advance(Duration::from_secs(60));
            assert_eq!((run(1, 1).await, run(1, 1).await), ("ran".into(), "3/h".into()));
        };
        limiter.scope(calls).await;
    }
}

#[derive(Debug, PartialEq)]
enum Failure {
    Busy { name: String },
    Limiter,
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Self {
        Self::Busy { name: denied.name().to_owned() }
    }
}

impl From<Error> for Failure {
    fn from(_: Error) -> Self {
        Self::Limiter
    }
}

struct Service {
    limiter: Limiter,
    calls: u32,
}

impl Service {
    #[rate_limited(key = "{tenant}/{user}", limit = "1/1m", limiter = self.limiter, on_error = raise)]
    fn sync(&mut self, tenant: &str, user: impl fmt::Display) -> Result<u32, Failure> {
        self.calls += 1;
        Ok(self.calls)
    }

    #[rate_limited(key = Key::new("own"), name = "own", window = Duration::from_secs(60), max = 1 + 1,
        limiter = &self.limiter, fallback = |denied| Err(denied.into()))]
    async fn with_expressions(&self) -> Result<u32, Failure> {
        Ok(self.calls)
    }
}

#[tokio::test]
async fn methods_use_the_limiter_of_the_attribute() {
    for limiter in [Limiter::memory(), builder_for(RedisServer::shared()).connect().await.expect("connects")] {
        let mut service = Service { limiter, calls: 0 };
        assert_eq!(service.sync("acme", 7), Ok(1));
        assert_eq!(service.sync("acme", 7), Err(Failure::Busy { name: "{tenant}/{user}".to_owned() }));
        assert_eq!(service.sync("acme", 8), Ok(2));
        assert_eq!(service.sync("acm", "e7"), Ok(3));
        for expected in [Ok(3), Ok(3), Err(Failure::Busy { name: "own".to_owned() })] {
            assert_eq!(service.with_expressions().await, expected);
        }
    }
}

/// Tests each policy with a limiter whose server is down.
#[tokio::test]
async fn each_function_applies_its_own_failure_policy() {
    #[rate_limited(key = "a", limit = "1/1m", fallback = "denied", on_error = open)]
    async fn open() -> &'static str {
        "ran"
    }
    #[rate_limited(key = "a", limit = "1/1m", fallback = "denied", on_error = closed)]
    async fn closed() -> &'static str {
        "ran"
    }
    #[rate_limited(key = "b", limit = "1/1m", fallback = "denied", on_error = standby)]
    async fn standby() -> &'static str {
        "ran"
    }
    #[rate_limited(key = "a", limit = "1/1m", on_error = raise)]
    async fn raise() -> Result<(), Failure> {
        Ok(())
    }
    #[rate_limited(key = "a", limit = "1/1m", fallback = "denied", on_error = handle)]
    async fn handled() -> &'static str {
        "ran"
    }
    async fn handle(error: Error) -> &'static str {
        if error.is_transient() { "handled" } else { "not transient" }
    }
    #[rate_limited(key = "a", limit = "1/1m", fallback = "denied",
        on_error = if error.is_transient() { "expression" } else { "?" })]
    async fn expression() -> &'static str {
        "ran"
    }
    #[rate_limited(key = "c", limit = "1/1m", fallback = "denied")]
    async fn default() -> &'static str {
        "ran"
    }

    let server = RedisServer::start();
    let limiter = builder_for(&server).connect().await.expect("connects");
    drop(server);
    limiter
        .scope(async {
            for _ in 0..2 {
                assert_eq!(open().await, "ran");
                assert_eq!(closed().await, "denied");
                assert_eq!(raise().await, Err(Failure::Limiter));
                assert_eq!(handled().await, "handled");
                assert_eq!(expression().await, "expression");
            }
            assert_eq!((standby().await, standby().await), ("ran", "denied"));
            assert_eq!((default().await, default().await), ("ran", "denied"));
        })
        .await;
}

/// An invalid limit is a failure of the limiter. It never means "unlimited".
#[test]
fn invalid_limit_at_run_time_is_a_failure() {
    #[rate_limited(key = "a", window = Duration::ZERO, max = 5, fallback = "denied")]
    fn no_window() -> &'static str {
        "ran"
    }
    #[rate_limited(key = "a", window = "10s", max = max, fallback = "denied", on_error = |error| {
        assert_eq!(error.kind(), rate_limited::ErrorKind::InvalidLimit);
        "handled"
    })]
    fn no_permits(max: u32) -> &'static str {
        "ran"
    }
    Limiter::memory().scope_sync(|| {
        assert_eq!(no_window(), "denied");
        assert_eq!(no_permits(0), "handled");
        assert_eq!(no_permits(1), "ran");
    });
}

/// The example of the README, which the doc test compiles but does not run.
#[tokio::test]
async fn readme_example_degrades_the_sixth_call() {
    #[rate_limited(key = "getId", window = "10s", max = 5, fallback = "degraded")]
    async fn get_id() -> &'static str {
        "id"
    }

    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).build().expect("builds");
    limiter
        .scope(async {
            for _ in 0..5 {
                assert_eq!(get_id().await, "id");
            }
            assert_eq!(get_id().await, "degraded");
            clock.advance(Duration::from_secs(10));
            assert_eq!(get_id().await, "id");
        })
        .await;
}
