//! Tests of the documented permissions for shared rules: they suffice, and each of them is needed.

use limiter_testkit::{RedisServer, Reply};
use rate_limited::{Error, ErrorKind, Key, SharedRules};

use super::{builder, change, text};
use crate::acl::documented_rules;
use crate::deadlines::{eventually, once_connected};

fn allow(server: &RedisServer, user: &str, rules: &[&str]) {
    let mut command = vec!["ACL", "SETUSER", user, "reset", "on", ">pw"];
    command.extend(rules);
    assert_eq!(server.command(&command).text(), "OK");
}

fn url(server: &RedisServer, user: &str) -> String {
    server.url().replace("//", &format!("//{user}:pw@"))
}

/// The version, the text and the history.
fn stored(server: &RedisServer) -> (Reply, Reply) {
    let name = |name: &str| format!("rl-rules:{{rules}}:{name}");
    let present = server.command(&["MGET", &name("version"), &name("toml")]);
    (present, server.command(&["LRANGE", &name("history"), "0", "-1"]))
}

async fn run_every_operation(url: &str, text_of: u32) -> Result<(), Error> {
    let run = async || {
        let rules = SharedRules::new(&builder(url, "rl").build()?);
        let present = rules.read().await?;
        rules.publish(&text(text_of), change(present.version)).await?;
        rules.history(5).await?;
        Ok(())
    };
    once_connected(run).await
}

#[tokio::test]
async fn documented_permissions_of_an_operator_are_minimal() {
    let server = RedisServer::builder().tcp().start();
    let rules = documented_rules("operator");
    allow(&server, "operator", &rules);
    // The history is trimmed too.
    for max in 1..=101 {
        run_every_operation(&url(&server, "operator"), max).await.expect("allowed");
    }
    for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.starts_with(['+', '~'])) {
        let mut fewer = rules.clone();
        fewer.remove(index);
        allow(&server, "operator", &fewer);
        let before = stored(&server);
        let error = run_every_operation(&url(&server, "operator"), 1).await.expect_err(rule);
        assert_eq!(error.kind(), ErrorKind::Refused, "without {rule}: {error:?}");
        assert!(stored(&server) == before, "a change without {rule} is half made");
        // A limiter needs these too, to connect or to read.
        if !["+script|load", "+evalsha", "~rl-rules:*", "+mget"].contains(rule) {
            let needed =
                "the user needs `~rl-rules:* +script|load +evalsha +get +mget +set +lpush +ltrim +lrange +time`";
            assert!(error.to_string().ends_with(needed), "without {rule}: {error}");
        }
    }
}

/// Returns the permissions that the README gives a process, with the patterns of their keys.
fn readme_rules() -> Vec<&'static str> {
    let readme = include_str!("../../../README.md");
    let from = readme.find("- **Permissions**").expect("a line of permissions");
    let item = readme[from..].split("\n- **").next().unwrap_or_default();
    item.split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| code.starts_with(['+', '~', '%']))
        .flat_map(str::split_whitespace)
        .collect()
}

#[tokio::test]
async fn permissions_of_the_readme_suffice_for_shared_rules() {
    let server = RedisServer::builder().tcp().start();
    let operator = SharedRules::new(&builder(&server.url(), "rl").connect().await.expect("connects"));
    operator.publish(&text(5), change(0)).await.expect("published");
    let is_old = server.info("server").get("redis_version").is_some_and(|version| version.starts_with("6."));
    let rules = readme_rules().into_iter().map(|rule| if is_old { rule.trim_start_matches("%R") } else { rule });
    let rules: Vec<_> = ["-@all"].into_iter().chain(rules).collect();
    assert!(rules.contains(&"~rl:*"), "{rules:?}");
    allow(&server, "process", &rules);
    let limiter = builder(&url(&server, "process"), "rl").shared_rules().connect().await.expect("allowed");
    assert_eq!(limiter.shared_rules_version(), 1);
    let decision = limiter.check(&Key::new("a"), &"5/1h".parse().expect("a limit")).await;
    assert!(decision.expect("allowed").is_allowed());
}

#[tokio::test]
async fn documented_permissions_to_put_a_text_back_are_minimal() {
    let server = RedisServer::builder().tcp().start();
    let operator = SharedRules::new(&builder(&server.url(), "rl").connect().await.expect("connects"));
    let rules: Vec<_> = documented_rules("limiter").into_iter().chain(documented_rules("restore")).collect();
    let needed = documented_rules("restore").into_iter().filter(|rule| ["+lpush", "+lrange"].contains(rule));
    for missing in needed.map(Some).chain([None]) {
        let rules: Vec<_> = rules.iter().copied().filter(|rule| Some(*rule) != missing).collect();
        allow(&server, "process", &rules);
        let present = operator.read().await.expect("read").version;
        operator.publish(&text(5), change(present)).await.expect("published");
        let limiter = builder(&url(&server, "process"), "rl").shared_rules().connect().await.expect("allowed");
        server.command(&["FLUSHALL"]);
        eventually("tried", async || {
            limiter.shared_rules_error().is_some() || operator.read().await.is_ok_and(|present| present.version > 0)
        })
        .await;
        let is_back = stored(&server).0 != Reply::Array(vec![Reply::Nil, Reply::Nil]);
        assert_eq!(is_back, missing.is_none(), "without {missing:?}");
    }
}

#[tokio::test]
async fn documented_permissions_of_a_process_are_minimal() {
    let server = RedisServer::builder().tcp().start();
    let operator = SharedRules::new(&builder(&server.url(), "rl").connect().await.expect("connects"));
    operator.publish(&text(5), change(0)).await.expect("published");
    // Redis 6.2 has no permission to read alone.
    let is_old = server.info("server").get("redis_version").is_some_and(|version| version.starts_with("6."));
    let of_process: Vec<_> = documented_rules("limiter").into_iter().chain(documented_rules("rules")).collect();
    let of_process: Vec<_> =
        of_process.into_iter().map(|rule| if is_old { rule.trim_start_matches("%R") } else { rule }).collect();
    allow(&server, "process", &of_process);
    let follow = || builder(&url(&server, "process"), "rl").shared_rules().connect();
    let limiter = follow().await.expect("allowed");
    assert_eq!(limiter.shared_rules_version(), 1);
    for rule in of_process.iter().filter(|rule| rule.contains("rules:*")) {
        let fewer: Vec<_> = of_process.iter().copied().filter(|other| other != rule).collect();
        allow(&server, "process", &fewer);
        let error = follow().await.map(drop).expect_err(rule);
        assert_eq!(error.kind(), ErrorKind::Refused, "without {rule}: {error:?}");
        let needed = "for the shared rules the user needs `%R~rl-rules:* +get +mget`";
        assert!(error.to_string().ends_with(needed), "{error}");
    }
}
