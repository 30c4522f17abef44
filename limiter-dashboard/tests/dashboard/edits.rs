//! Edits of the shared rules: check, publication, conflict, history and rollback.

use axum::http::StatusCode;
use limiter_dashboard::Dashboard;
use limiter_testkit::RedisServer;
use rate_limited::{Limiter, SharedRules};
use serde_json::{Value, json};

use crate::support::{TOKEN, first_state, get, limiter, post, router};

const FIRST: &str = "# Quotas.\n[rules.user]\nlimit = \"5/10s\"\n";
const SECOND: &str = "# Quotas.\n[rules.user]\nlimit = \"9/10s\"\n";

fn change(toml: &str, version: u64) -> Value {
    json!({ "toml": toml, "if_version": version, "who": "ana", "why": "INC-731" })
}

#[tokio::test]
async fn a_text_is_published_and_in_force_within_two_seconds() {
    let server = RedisServer::start();
    let router = router(&server).await;
    let follower = Limiter::builder().url(server.url()).shared_rules().connect().await.expect("a server");
    assert_eq!(get(&router, "/api/text").await.ok()["version"], json!(0));
    assert_eq!(post(&router, "/api/text/publish", &change(FIRST, 0)).await.ok()["version"], json!(1));
    let began = std::time::Instant::now();
    while follower.shared_rules_version() != 1 {
        assert!(began.elapsed().as_secs() < 2, "not in force within 2 s");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let present = get(&router, "/api/text").await.ok();
    assert_eq!(
        (&present["toml"], &present["who"], &present["why"]),
        (&json!(FIRST), &json!("ana (dashboard)"), &json!("INC-731"))
    );
    let (_, state) = first_state(&router, &[]).await;
    assert_eq!(state["published"], json!(1));
    let rules = get(&router, "/api/rules").await.ok();
    assert_eq!(rules["rules"][0]["shared"], json!({ "line": 2, "overrides": 0, "mode": null, "limits": ["5/10s"] }));
}

#[tokio::test]
async fn a_conflict_has_both_texts_and_changes_nothing() {
    let server = RedisServer::start();
    let router = router(&server).await;
    post(&router, "/api/text/publish", &change(FIRST, 0)).await.ok();
    post(&router, "/api/text/publish", &change(SECOND, 1)).await.ok();
    let mine = FIRST.replace("5/10s", "7/10s");
    let answer = post(&router, "/api/text/publish", &change(&mine, 1)).await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    let conflict = answer.json();
    assert_eq!((&conflict["present"]["toml"], &conflict["yours"]), (&json!(SECOND), &json!(mine)));
    assert_eq!(conflict["present"]["version"], json!(2));
    assert!(
        conflict["diff"].as_array().is_some_and(|lines| lines.contains(&json!(["+", "limit = \"7/10s\""]))),
        "{conflict}"
    );
    assert_eq!(get(&router, "/api/text").await.ok()["toml"], SECOND);
    // A change must name its version.
    for version in [Value::Null, json!("1"), json!(-1), json!(1.5)] {
        let answer = post(&router, "/api/text/publish", &json!({ "toml": mine, "if_version": version })).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{version}");
    }
}

#[tokio::test]
async fn a_mistake_has_its_line_and_a_check_publishes_nothing() {
    let server = RedisServer::start();
    let router = router(&server).await;
    post(&router, "/api/text/publish", &change(FIRST, 0)).await.ok();
    let wrong = FIRST.replace("limit", "limt");
    let effect = post(&router, "/api/text/check", &json!({ "toml": wrong })).await.ok();
    assert_eq!((&effect["mistake"]["line"], &effect["mistake"]["column"]), (&json!(3), &json!(1)), "{effect}");
    let answer = post(&router, "/api/text/publish", &change(&wrong, 1)).await;
    assert_eq!((answer.status, &answer.json()["mistake"]["line"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!(3)));
    for text in ["", " \n", "shared = true\n", "[[[["] {
        let effect = post(&router, "/api/text/check", &json!({ "toml": text })).await.ok();
        assert!(effect["mistake"]["message"].is_string(), "{text}: {effect}");
    }

    let other_window = FIRST.replace("5/10s", "5/min");
    let effect = post(&router, "/api/text/check", &json!({ "toml": other_window })).await.ok();
    assert!(effect["mistake"].is_null() && effect["version"] == 1, "{effect}");
    assert!(effect["notes"][0].as_str().is_some_and(|note| note.starts_with("`user` starts new counts")), "{effect}");
    assert!(
        effect["diff"].as_array().is_some_and(|lines| lines.contains(&json!(["-", "limit = \"5/10s\""]))),
        "{effect}"
    );
    assert_eq!(get(&router, "/api/text").await.ok()["version"], json!(1));
    let long = json!({ "toml": SECOND, "if_version": 1, "who": "a".repeat(2000) });
    assert_eq!(post(&router, "/api/text/publish", &long).await.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn an_earlier_version_is_compared_and_published_again() {
    let server = RedisServer::start();
    let router = router(&server).await;
    post(&router, "/api/text/publish", &change(FIRST, 0)).await.ok();
    post(&router, "/api/text/publish", &change(SECOND, 1)).await.ok();
    let history = get(&router, "/api/history").await.ok();
    let versions: Vec<_> = history["versions"].as_array().expect("a list").iter().map(|one| &one["version"]).collect();
    assert_eq!(versions, [2, 1]);
    assert_eq!((&history["versions"][0]["added"], &history["versions"][1]["added"]), (&json!(1), &json!(3)));
    assert!(!history.to_string().contains("Quotas"), "{history}");
    let first = get(&router, "/api/history/1").await.ok();
    assert_eq!((&first["toml"], &first["present"]), (&json!(FIRST), &json!(2)));
    assert!(
        first["diff"].as_array().is_some_and(|lines| lines.contains(&json!(["-", "limit = \"9/10s\""]))),
        "{first}"
    );

    let back = |version: u64, if_version: u64| json!({ "version": version, "if_version": if_version, "who": "ben", "why": "over" });
    let conflict = post(&router, "/api/text/rollback", &back(1, 1)).await;
    assert_eq!((conflict.status, &conflict.json()["present"]["toml"]), (StatusCode::CONFLICT, &json!(SECOND)));
    assert_eq!(post(&router, "/api/text/rollback", &back(1, 2)).await.ok()["version"], json!(3));
    assert_eq!(get(&router, "/api/text").await.ok()["toml"], FIRST);
    assert_eq!(post(&router, "/api/text/rollback", &back(77, 3)).await.status, StatusCode::NOT_FOUND);
    assert_eq!(get(&router, "/api/history/77").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_first_publication_can_be_taken_back() {
    let server = RedisServer::start();
    let router = router(&server).await;
    post(&router, "/api/text/publish", &change(FIRST, 0)).await.ok();
    let none = get(&router, "/api/history/0").await.ok();
    assert_eq!((&none["version"], &none["present"]), (&json!(0), &json!(1)));
    let words = &none["changes"][0];
    assert_eq!((&words["before"], &words["after"]), (&json!("5/10s"), &json!("the limit of the source")), "{none}");
    let back = json!({ "version": 0, "if_version": 1, "who": "ben", "why": "a mistake" });
    assert_eq!(post(&router, "/api/text/rollback", &back).await.ok()["version"], json!(2));
    let present = get(&router, "/api/text").await.ok();
    assert_eq!((&present["toml"], &present["who"]), (&json!("# No rules.\n"), &json!("ben (dashboard)")));
    // The empty text of an editor is offered as this one.
    let empty = post(&router, "/api/text/check", &json!({ "toml": "" })).await.ok();
    assert_eq!((&empty["is_empty"], empty["mistake"].is_object()), (&json!(true), true));
}

#[tokio::test]
async fn without_an_operators_url_nothing_is_edited() {
    let server = RedisServer::start();
    let router = Dashboard::new(limiter(&server).await).token(TOKEN).router().expect("a router");
    assert_eq!(post(&router, "/api/text/publish", &change(FIRST, 0)).await.status, StatusCode::FORBIDDEN);
    let back = json!({ "version": 1, "if_version": 0 });
    assert_eq!(post(&router, "/api/text/rollback", &back).await.status, StatusCode::FORBIDDEN);
    assert_eq!(get(&router, "/api/text").await.ok()["version"], json!(0));
    let (session, _) = first_state(&router, &[("authorization", &crate::support::bearer())]).await;
    assert_eq!(session["editable"], json!(false));
}

#[tokio::test]
async fn an_operator_may_do_what_the_reader_may_not() {
    let server = RedisServer::start();
    server.command(&[
        "ACL",
        "SETUSER",
        "reader",
        "on",
        ">reader-word",
        "-@all",
        "~rl:*",
        "%R~rl-rules:*",
        "~rl-live:*",
        "+script|load",
        "+evalsha",
        "+time",
        "+get",
        "+mget",
        "+lrange",
        "+hgetall",
        "+zrange",
        "+xrevrange",
    ]);
    let mut url = server.url();
    url.push_str(if url.contains('?') { "&user=reader&pass=reader-word" } else { "?user=reader&pass=reader-word" });
    let reader = Limiter::builder().url(&url).presence(false).connect().await.expect("a server");
    let refused = SharedRules::new(&reader).publish(FIRST, rate_limited::Change::default()).await;
    assert_eq!(refused.expect_err("no right").kind(), rate_limited::ErrorKind::Refused);
    let dashboard = Dashboard::new(reader).token(TOKEN).operator(server.url());
    let router = dashboard.router().expect("a router");
    post(&router, "/api/text/publish", &change(FIRST, 0)).await.ok();
    assert_eq!(get(&router, "/api/text").await.ok()["toml"], FIRST);
    assert_eq!(get(&router, "/api/history").await.ok()["versions"][0]["version"], json!(1));
    let (_, state) = first_state(&router, &[]).await;
    assert_eq!((&state["failures"], &state["published"]), (&json!([]), &json!(1)), "{state}");
}
