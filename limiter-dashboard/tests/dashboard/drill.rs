//! The task of an operator in an incident: a customer is denied, and gets another limit.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use limiter_dashboard::Dashboard;
use limiter_testkit::{LiveLimiters, RedisServer};
use rate_limited::{Change, Limiter, SharedRules};
use serde_json::{Value, json};

use crate::support::{bearer, first_state, get, limiter, post, router, send};

const USER: &str = "user:{user_id}";
const INVENTORY: &str = concat!(
    r#"{"rule":"user:{user_id}","keys":["user:{user_id}"],"limits":["5/10s"],"mode":"enforce","origin":"attribute"}"#,
    "\n",
    r#"{"rule":"search:{ip}","keys":["search:{ip}"],"limits":["100/min"],"mode":"enforce","origin":"attribute"}"#,
    "\n",
    r#"{"rule":"orders","keys":["order:{tenant}:{id}"],"limits":["9/s"],"mode":"enforce","origin":"attribute"}"#,
);

const OVERRIDE: &str = "[[rules.\"user:{user_id}\".override]]\nmatch = { user_id = \"4711\" }\nlimit = \"5/10s\"\n";

/// Returns a dashboard beside three limiters that live.
async fn beside_limiters(server: &RedisServer) -> Router {
    LiveLimiters::on(server).beat(INVENTORY, &["-", "-", "-"]);
    router(server).await
}

fn selected(draft: &Value) -> String {
    let toml = draft["toml"].as_str().expect("a text").replace("\r\n", "\n");
    let units: Vec<u16> = toml.encode_utf16().collect();
    let place = |at: usize| usize::try_from(draft["select"][at].as_u64().expect("a place")).expect("small");
    String::from_utf16(&units[place(0)..place(1)]).expect("a text")
}

#[tokio::test]
async fn a_draft_has_the_override_of_the_key_with_its_limit_selected() {
    let server = RedisServer::start();
    let router = beside_limiters(&server).await;
    let draft = async |body: Value| post(&router, "/api/text/draft", &body).await;
    let first = draft(json!({ "rule": USER, "key": "user:@4711" })).await.ok();
    assert_eq!((&first["version"], &first["toml"]), (&json!(0), &json!(OVERRIDE)));
    assert_eq!(selected(&first), "5/10s");
    // It is added to the text of the editor, and changes nothing in the store.
    let mine = "# Gr\u{fc}\u{df}e \u{1f600}\r\n[rules.\"user:{user_id}\"]\r\nlimit = \"6/10s\"\r\n";
    let second = draft(json!({ "rule": USER, "key": "user:@4711", "toml": mine })).await.ok();
    assert_eq!(second["toml"], json!(format!("{mine}\r\n{}", OVERRIDE.replace('\n', "\r\n"))));
    assert_eq!(selected(&second), "5/10s");
    let rule = draft(json!({ "rule": USER, "toml": mine })).await.ok();
    assert_eq!((selected(&rule), &rule["toml"]), ("6/10s".to_owned(), &json!(mine)));
    assert_eq!(get(&router, "/api/text").await.ok()["version"], json!(0));
    for wrong in [
        json!({ "key": "user:@4711" }),
        json!({ "rule": USER, "key": "a b" }),
        json!({ "rule": USER, "key": "search:@1" }),
        json!({ "rule": "unknown", "key": "user:@4711" }),
        json!({ "rule": USER, "toml": "[" }),
    ] {
        assert_eq!(draft(wrong.clone()).await.status, StatusCode::UNPROCESSABLE_ENTITY, "{wrong}");
    }
}

/// The limit in force for the key may be that of an override of more keys.
#[tokio::test]
async fn a_draft_has_the_limit_in_force_for_the_key() {
    let server = RedisServer::start();
    let router = beside_limiters(&server).await;
    let partners = "[[rules.\"user:{user_id}\".override]]\nmatch = { user_id = \"47*\" }\nlimit = \"50/10s\"\n";
    let rules = SharedRules::new(&limiter(&server).await);
    rules.publish(partners, Change::default()).await.expect("published");
    LiveLimiters::on(&server).beat(INVENTORY, &["1", "1", "1"]);
    let draft = post(&router, "/api/text/draft", &json!({ "rule": USER, "key": "user:@4711" })).await.ok();
    assert_eq!(selected(&draft), "50/10s", "{draft}");
}

#[tokio::test]
async fn the_effect_says_for_whom_which_limit_changes() {
    let server = RedisServer::start();
    let router = beside_limiters(&server).await;
    let effect = async |toml: &str| post(&router, "/api/text/check", &json!({ "toml": toml })).await.ok();
    let one = effect(&OVERRIDE.replace("5/10s", "100/10s")).await;
    let expected = json!([{ "keys": "`user_id` = 4711 of `user:{user_id}`", "before": "5/10s", "after": "100/10s", "starts_new_counts": false }]);
    assert_eq!((&one["changes"], &one["warnings"], &one["notes"]), (&expected, &json!([]), &json!([])));
    let all = effect("[rules.\"user:{user_id}\"]\nlimit = \"100/10s\"\n").await;
    assert_eq!(all["changes"][0]["keys"], json!("all keys of `user:{user_id}`"));
    // The window of the source is that of the limiters.
    let window = effect("[rules.\"user:{user_id}\"]\nlimit = \"100/min\"\n").await;
    assert_eq!(window["changes"][0]["starts_new_counts"], json!(true));
    assert!(window["notes"][0].as_str().is_some_and(|note| note.ends_with("from 10 s to 1 min")), "{window}");
}

#[tokio::test]
async fn a_misspelt_name_is_published_with_a_consent_alone() {
    let server = RedisServer::start();
    let router = beside_limiters(&server).await;
    let wrong_part = "[[rules.orders.override]]\nmatch = { tenat = \"acme\" }\nlimit = \"50/s\"\n".to_owned();
    let wrong_key = OVERRIDE.replace("match = { user_id = \"4711\" }", "key = \"user:4711\"");
    let wrong_rule = "[rules.\"user:{userid}\"]\nlimit = \"9/10s\"\n".to_owned();
    for (toml, meant) in [(&wrong_part, "tenant"), (&wrong_key, "user:@4711"), (&wrong_rule, USER)] {
        let effect = post(&router, "/api/text/check", &json!({ "toml": toml })).await.ok();
        assert_eq!(effect["warnings"][0]["suggestion"], json!(meant), "{effect}");
        let answer = post(&router, "/api/text/publish", &json!({ "toml": toml, "if_version": 0 })).await;
        assert_eq!((answer.status, &answer.json()["needs_consent"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!(true)));
    }
    let unknown = "[rules.userlimit]\nlimit = \"9/10s\"\n";
    let effect = post(&router, "/api/text/check", &json!({ "toml": unknown })).await.ok();
    let warning = &effect["warnings"][0];
    assert!(warning["message"].as_str().is_some_and(|text| text.contains("`userlimit`")), "{effect}");
    assert_eq!((&warning["suggestion"], &warning["line"]), (&json!(null), &json!(1)));
    // Rules may be published before a deploy.
    post(&router, "/api/text/publish", &json!({ "toml": unknown, "if_version": 0 })).await.ok();
    let anyway = json!({ "toml": wrong_part, "if_version": 1, "anyway": true });
    assert_eq!(post(&router, "/api/text/publish", &anyway).await.ok()["version"], json!(2));
    // The later of two changes is a conflict, whatever its names.
    let late = post(&router, "/api/text/publish", &json!({ "toml": wrong_rule, "if_version": 1 })).await;
    assert_eq!(late.status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn a_text_that_is_no_key_has_the_key_that_is_meant() {
    let server = RedisServer::start();
    let router = beside_limiters(&server).await;
    let ask = async |key: &str, rule: &str| post(&router, "/api/key", &json!({ "key": key, "rule": rule })).await;
    for typed in ["4711", "user:4711", "usr:@4711"] {
        let answer = ask(typed, "").await.ok();
        assert_eq!((&answer["rules"], &answer["suggestions"]), (&json!([]), &json!(["user:@4711"])), "{typed}");
    }
    let other = ask("203.0.113.9", USER).await;
    assert_eq!(
        (other.status, &other.json()["suggestions"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!(["user:@203.0.113.9"]))
    );
    assert_eq!(ask("user:@4711", "").await.ok()["suggestions"], json!([]));
}

#[tokio::test]
async fn a_rule_has_its_overrides_with_their_lines() {
    let server = RedisServer::start();
    let router = beside_limiters(&server).await;
    post(&router, "/api/text/publish", &json!({ "toml": format!("# Partners.\n{OVERRIDE}"), "if_version": 0 }))
        .await
        .ok();
    let rule = get(&router, "/api/rules/user:%7Buser_id%7D").await.ok();
    let expected = json!({ "list": [{ "line": 3, "keys": "`user_id` = 4711", "settings": "5/10s" }], "left_out": 0 });
    assert_eq!(rule["overrides"], expected);
}

#[tokio::test]
async fn keys_are_listed_by_the_denials_of_the_last_minute() {
    let server = RedisServer::start();
    let router = beside_limiters(&server).await;
    let limiters = LiveLimiters::on(&server);
    // A limiter that has ended has more denials, of another time.
    let past = SystemTime::now() - Duration::from_secs(100);
    let id = format!("{}-1", past.duration_since(UNIX_EPOCH).expect("after 1970").as_millis());
    let old = "1 00000000000000ee old 9 shop\nr user 1000 d900+900\nd 0 user:@old 900+900 0\n";
    server.command(&["XADD", &limiters.name("activity"), &id, "e", old]);
    limiters.add_activity("1 0000000000000001 web-1 11 shop\nr user 1000 d40+30\nd 0 user:@4711 30+20 0\n");
    let (session, state) = first_state(&router, &[("authorization", &bearer())]).await;
    let keys: Vec<_> =
        state["denied"].as_array().expect("a list").iter().map(|key| (&key["key"], &key["minute"])).collect();
    assert_eq!(keys[0], (&json!("user:@4711"), &json!(20)), "{state}");
    assert_eq!((keys[1], &state["active"]), ((&json!("user:@old"), &json!(0)), &json!(1)), "{state}");
    assert_eq!(session["has_token"], json!(true));
}

#[tokio::test]
async fn without_the_limiters_a_text_is_checked_and_published_all_the_same() {
    let server = RedisServer::start();
    let allow = ["ACL", "SETUSER", "reader", "on", ">reader-word", "-@all", "~rl:*", "%R~rl-rules:*"];
    let commands = ["+script|load", "+evalsha", "+time", "+get", "+mget", "+lrange"];
    server.command(&[&allow[..], &commands[..]].concat());
    let mut url = server.url();
    url.push_str(if url.contains('?') { "&user=reader&pass=reader-word" } else { "?user=reader&pass=reader-word" });
    let reader = Limiter::builder().url(&url).presence(false).connect().await.expect("a server");
    let dashboard = Dashboard::new(reader).token(crate::support::TOKEN).operator(server.url());
    let router = dashboard.router().expect("a router");
    let effect = post(&router, "/api/text/check", &json!({ "toml": OVERRIDE })).await.ok();
    assert!(effect["warnings"][0]["message"].as_str().is_some_and(|text| text.contains("not checked")), "{effect}");
    assert!(effect["mistake"].is_null() && effect["diff"].as_array().is_some_and(|lines| !lines.is_empty()));
    post(&router, "/api/text/publish", &json!({ "toml": OVERRIDE, "if_version": 0 })).await.ok();
    let without_token = Dashboard::new(limiter(&server).await).router().expect("a router");
    let (session, _) = first_state(&without_token, &[]).await;
    assert_eq!(session["has_token"], json!(false));
    assert_eq!(
        send(&without_token, "POST", "/api/text/draft", &[], Body::empty()).await.status,
        StatusCode::UNAUTHORIZED
    );
}

/// Each rule of a limiter got a block, which a packed one cannot have, so its keys had no answer.
#[tokio::test]
async fn the_key_of_a_packed_rule_has_its_state() {
    let server = RedisServer::start();
    let packed = r#"{"rule":"user:{user_id}","keys":["user:{user_id}"],"limits":["5/10s"],"mode":"enforce","origin":"file","packed":16384}"#;
    LiveLimiters::on(&server).beat(packed, &["-"]);
    let router = router(&server).await;
    let answer = post(&router, "/api/key", &json!({ "key": "user:@4711", "rule": "" })).await.ok();
    let limit = &answer["rules"][0]["limits"][0];
    assert_eq!((&limit["limit"], &limit["used"]), (&json!("5/10s"), &json!(0)), "{answer}");
    let toml = "[rules.\"user:{user_id}\"]\nblock = \"1h\"\n";
    let effect = post(&router, "/api/text/check", &json!({ "toml": toml })).await.ok();
    let warning = effect["warnings"][0]["message"].as_str().unwrap_or_default();
    assert!(warning.starts_with("`user:{user_id}` is packed beside `block`"), "{effect}");
    let toml = "[rules.\"user:{user_id}\"]\npacked = 32768\n";
    let effect = post(&router, "/api/text/check", &json!({ "toml": toml })).await.ok();
    assert_eq!(effect["changes"][0]["starts_new_counts"], json!(true), "{effect}");
    assert!(effect["notes"][0].as_str().is_some_and(|note| note.ends_with("from 16384 to 32768")), "{effect}");
}
