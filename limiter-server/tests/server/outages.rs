//! A store that fails: every call has an answer by its deadline.

use std::time::{Duration, Instant};

use limiter_server::Server;
use limiter_testkit::RedisServer;
use rate_limited::{Limiter, RuleSet};

use crate::support::{Connection, run};

/// The deadline of the store, and a time that a call never takes without it.
const DEADLINE: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_hangs_or_is_dead_costs_at_most_the_deadline() {
    let mut redis = RedisServer::start();
    let rules: RuleSet =
        "[rules.a]\nlimit = \"5/h\"\n[rules.raise]\nlimit = \"5/h\"\non_error = \"raise\"".parse().expect("rules");
    let limiter = Limiter::builder().url(redis.url()).rules(rules).deadline(DEADLINE).build().expect("valid");
    let mut connection = Connection::open(run(Server::new(limiter)).await).await;
    while connection.post("/v1/check", r#"{"rule":"a","cost":0}"#).await.json()["source"] != "store" {
        tokio::task::yield_now().await;
    }
    assert_eq!(connection.post("/v1/check", r#"{"rule":"a"}"#).await.json()["limits"][0]["remaining"], 4);
    redis.pause();
    let began = Instant::now();
    let standby = connection.post("/v1/check", r#"{"rule":"a"}"#).await;
    assert_eq!((standby.status, &standby.json()["source"]), (200, &"standby".into()));
    let raised = connection.post("/v1/check", r#"{"rule":"raise"}"#).await;
    assert_eq!(raised.problem(), (503, "undecided".to_owned()));
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    // The permits that this process was granted before still count.
    let statuses = [1, 1, 1, 1].map(|cost| format!(r#"{{"rule":"a","cost":{cost}}}"#));
    let mut allowed = 0;
    for body in statuses {
        allowed += u32::from(connection.post("/v1/check", &body).await.status == 200);
    }
    assert_eq!(allowed, 3);
    redis.resume();
    redis.kill();
    assert_eq!(connection.post("/v1/check", r#"{"rule":"raise"}"#).await.status, 503);
    let ready = connection.get("/readyz").await;
    assert_eq!(ready.status, 200, "it decides without its store: {ready:?}");
}
