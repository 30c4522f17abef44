//! What the documentation lets the user of Redis do is enough for everything, and each permission of it is needed.

use std::time::Duration;

use futures_util::future::try_join_all;
use limiter_testkit::{Cluster, RedisServer, slot_of};
use rate_limited::{Algorithm, Builder, Decision, Error, ErrorKind, Key, Layout, Limit, Limiter, OnError};

use crate::support::{key, limit};

const PAGE: &str = include_str!("../../docs/operations.md");
const ALL: [Algorithm; 5] = [
    Algorithm::SlidingWindow,
    Algorithm::FixedWindow,
    Algorithm::SlidingCounter,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
];

/// The rules that the page gives a user.
pub(crate) fn documented(user: &str) -> Vec<&'static str> {
    let start = format!("ACL SETUSER {user} on >password ");
    let rules = PAGE.lines().find_map(|line| line.strip_prefix(&start)).expect("a line for this user");
    rules.split(' ').collect()
}

/// Has the server allow the user these and nothing else, from now on.
fn allow(server: &RedisServer, rules: &[&str]) {
    let mut command = vec!["ACL", "SETUSER", "app", "reset", "on", ">pw"];
    command.extend(rules);
    assert_eq!(server.command(&command).text(), "OK");
}

fn url_on(url: &str) -> Builder {
    Limiter::builder().url(url).deadline(Duration::from_secs(5)).on_error(OnError::Raise)
}

fn guarded() -> RedisServer {
    RedisServer::builder().tcp().user_with_rules("app", "pw", "-@all").start()
}

/// Every operation, with every algorithm that this layout has.
async fn everything(builder: Builder, layout: Layout) -> Result<(), Error> {
    let limiter = builder.connect().await?;
    // More instants in a window than are written anew for one more.
    let many = limit("1000/1h").with_layout(layout)?;
    for _ in 0..40 {
        let _ = limiter.check(&key("long"), &many).await?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for algorithm in ALL {
        let Ok(limit) = limit("5/1h").with_algorithm(algorithm).with_layout(layout) else { continue };
        every_operation(&limiter, &limit).await?;
    }
    Ok(())
}

async fn every_operation(limiter: &Limiter, limit: &Limit) -> Result<(), Error> {
    let (a, b) = (key("a"), Key::new("b:").part("{}"));
    let Decision::Allowed(first) = limiter.check(&a, limit).await? else { panic!("five are allowed") };
    limiter.refund(&first).await?;
    let _ = limiter.check_n(&a, limit, 2).await?;
    let _ = limiter.wait(&b, limit, Duration::from_millis(1)).await?;
    let together = limiter.check_all(&[(&a, limit, 1), (&b, limit, 1)]).await?;
    if let Decision::Allowed(both) = together {
        limiter.refund(&both).await?;
    }
    let _ = limiter.peek(&a, limit).await?;
    // So many at once that several keys share a call.
    let keys: Vec<_> = (0..64).map(|number| key(&format!("k{number}"))).collect();
    try_join_all(keys.iter().map(|key| limiter.check(key, limit))).await?;
    // Which trims what is over, where that is done.
    let brief = Limit::new(5, Duration::from_millis(2))?.with_layout(limit.layout())?;
    let _ = limiter.check(&key("brief"), &brief).await?;
    let _ = limiter.check(&key("brief"), &limit_of_a_second(&brief)?).await?;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let _ = limiter.check(&key("brief"), &brief).await?;
    limiter.reset(&a, limit).await
}

/// The same set, which lives longer by it.
fn limit_of_a_second(limit: &Limit) -> Result<Limit, Error> {
    Limit::new(5, Duration::from_secs(1))?.with_layout(limit.layout())
}

async fn is_enough_and_no_more(user: &str, url: impl Fn(&RedisServer) -> String, layout: Layout) {
    let (server, rules) = (guarded(), documented(user));
    allow(&server, &rules);
    everything(url_on(&url(&server)), layout).await.unwrap_or_else(|error| panic!("{user}: {error:?}"));
    for (place, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.starts_with(['+', '~'])) {
        server.command(&["FLUSHALL"]);
        let mut fewer = rules.clone();
        fewer.remove(place);
        allow(&server, &fewer);
        let error = everything(url_on(&url(&server)), layout).await.expect_err(rule);
        assert!(!matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "without {rule}: {error:?}");
    }
}

#[tokio::test]
async fn one_server_allows_what_is_documented() {
    is_enough_and_no_more("limiter", RedisServer::url, Layout::Compact).await;
}

#[tokio::test]
async fn another_database_needs_to_be_selected() {
    is_enough_and_no_more("database", |server| server.url() + "/1", Layout::Compact).await;
}

#[tokio::test]
async fn sorted_sets_need_commands_of_their_own() {
    is_enough_and_no_more("zset", RedisServer::url, Layout::Zset).await;
}

/// A user whose keys are hashed, or of another prefix, needs nothing else.
#[tokio::test]
async fn keys_stay_below_the_prefix() {
    let (server, rules) = (guarded(), documented("limiter"));
    allow(&server, &rules);
    everything(url_on(&server.url()).hash_keys([7; 32]), Layout::Compact).await.expect("allowed");
    everything(url_on(&server.url()).prefix("other"), Layout::Compact).await.expect_err("another prefix");
    let other: Vec<_> = rules.into_iter().map(|rule| if rule == "~rl:*" { "~other:*" } else { rule }).collect();
    allow(&server, &other);
    everything(url_on(&server.url()).prefix("other"), Layout::Compact).await.expect("allowed");
}

#[tokio::test]
async fn a_cluster_allows_what_is_documented() {
    let cluster = Cluster::builder().masters_only().user_with_rules("app", "pw", "-@all").start();
    let rules = documented("cluster");
    let allow_everywhere =
        |rules: &[&str]| cluster.masters().into_iter().for_each(|node| allow(cluster.server(node), rules));
    let without = |rule: &str| rules.iter().copied().filter(|other| *other != rule).collect::<Vec<_>>();
    assert!(rules.starts_with(&documented("limiter")), "what one server needs, and more");

    allow_everywhere(&without("+cluster|slots"));
    let error = url_on(&cluster.url()).connect().await.expect_err("who has which slot is a secret");
    assert!(!matches!(error.kind(), ErrorKind::Timeout), "{error:?}");

    allow_everywhere(&rules);
    everything(url_on(&cluster.url()), Layout::Compact).await.expect("allowed");
    let limiter = url_on(&cluster.url()).connect().await.expect("allowed");
    let (key, limit) = (key("moving"), limit("9/1h"));
    let slot = slot_of(b"moving");
    let to = cluster.masters().into_iter().find(|master| *master != cluster.master_of(slot)).expect("another");
    let migration = cluster.begin_migration(slot, to);
    assert!(limiter.check(&key, &limit).await.expect("asked where it is going").is_allowed());
    allow_everywhere(&without("+asking"));
    limiter.check(&key, &limit).await.expect_err("may not ask there");
    migration.finish();
}
