//! The answers without the token have rates and counts alone.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::StatusCode;
use limiter_testkit::{LiveLimiters, RedisServer};
use serde_json::json;

use crate::support::{
    SECRET_HOST, SECRET_KEY, bearer, dashboard, first_state, get, limiter, next, open_stream, post, router, send,
    write_fleet,
};

const HOSTILE: &str = "<script>alert(1)</script>";

#[tokio::test]
async fn without_the_token_there_are_rates_and_counts() {
    let server = RedisServer::start();
    let router = router(&server).await;
    write_fleet(&server, &["-", "3"]);
    let (session, state) = first_state(&router, &[]).await;
    assert_eq!((&session["trusted"], &session["editable"]), (&json!(false), &json!(false)));
    let rule = &state["rules"][0];
    assert_eq!((&rule["rule"], &rule["denied"], &rule["all_denied"]), (&json!("user"), &json!(30.0), &json!(40)));
    assert_eq!(state["fleet"]["limiters"], json!(2));
    assert_eq!(state["fleet"]["versions"], json!([[null, 1], [3, 1]]));
    let rates = send(&router, "GET", "/api/rates/user", &[], Body::empty()).await;
    assert_eq!(rates.ok()["points"][0][2], json!(30.0));
    let all = format!("{session}{state}{}", rates.text);
    for secret in [SECRET_HOST, SECRET_KEY, "checkout", "secret"] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }

    let (session, state) = first_state(&router, &[("authorization", &bearer())]).await;
    assert_eq!((&session["trusted"], &session["editable"]), (&json!(true), &json!(true)));
    assert_eq!(state["denied"][0]["key"], SECRET_KEY);
    let limiters = get(&router, "/api/limiters").await.ok();
    assert_eq!(limiters["limiters"][1]["host"], SECRET_HOST);
    assert_eq!(limiters["limiters"][1]["rules_version"], json!(3));
}

#[tokio::test]
async fn a_failure_names_no_server_without_the_token() {
    let mut server = RedisServer::builder().tcp().start();
    let router = router(&server).await;
    let url = server.url();
    let host = url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
    server.kill();
    let (_, state) = first_state(&router, &[]).await;
    assert!(state["fleet"].is_null() && state["failures"].as_array().is_some_and(|all| all.len() == 3), "{state}");
    assert!(!state.to_string().contains(&host), "{host}: {state}");
    let failed = get(&router, "/api/text").await;
    assert_eq!(failed.status, StatusCode::SERVICE_UNAVAILABLE, "{}", failed.text);
}

#[tokio::test]
async fn the_state_of_a_key_is_that_of_the_command() {
    let server = RedisServer::start();
    let router = router(&server).await;
    write_fleet(&server, &["-"]);
    let limiter = limiter(&server).await;
    let (key, limit) = (rate_limited::Key::new("user:").part("secret-customer"), "5/h".parse().expect("a limit"));
    for _ in 0..6 {
        let _ = limiter.check(&key, &limit).await.expect("a decision");
    }
    let report = post(&router, "/api/key", &json!({ "key": "user:", "parts": ["secret-customer"] })).await.ok();
    assert_eq!(report["key"], SECRET_KEY);
    let rule = &report["rules"][0];
    assert_eq!((&rule["rule"], &rule["allowed"]), (&json!("user"), &json!(false)));
    assert_eq!((&rule["limits"][0]["used"], &rule["limits"][0]["remaining"]), (&json!(5), &json!(0)));
    assert!(rule["retry_after_ms"].as_u64().is_some_and(|millis| millis > 3_000_000), "{report}");
    assert_eq!(report["last_denials"][0]["denials"], json!(20));
    let other = post(&router, "/api/key", &json!({ "key": SECRET_KEY, "rule": "usr" })).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
    // Nothing is taken, and no limiter of the question is left.
    let again = post(&router, "/api/key", &json!({ "key": SECRET_KEY })).await.ok();
    assert_eq!(again["rules"][0]["limits"][0]["used"], json!(5));
}

#[tokio::test]
async fn hostile_texts_are_in_json_alone() {
    let server = RedisServer::start();
    let router = router(&server).await;
    let entry = format!("1 0000000000000001 {0} 10 {0}\nr {0} 1000 d9+9\nd 0 {0} 9+9 0\n", HOSTILE.replace('%', "%25"));
    LiveLimiters::on(&server).add_activity(&entry);
    let (_, state) = first_state(&router, &[("authorization", &bearer())]).await;
    assert_eq!((&state["rules"][0]["rule"], &state["denied"][0]["key"]), (&json!(HOSTILE), &json!(HOSTILE)));
    let path = "/api/rates/%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    let rates = get(&router, path).await;
    assert_eq!(rates.headers["content-type"], "application/json");
    assert_eq!(rates.ok()["rule"], HOSTILE);
    for path in ["/%3Cscript%3E", "/api/%3Cscript%3E", "/api/history/%3Cscript%3E"] {
        let answer = get(&router, path).await;
        assert!(!answer.text.contains("<script>"), "{path}: {}", answer.text);
    }
}

/// The sum of two such counts ended the page, and a browser shows no list with such a time.
#[tokio::test]
async fn forged_numbers_are_shown_up_to_a_bound() {
    let server = RedisServer::start();
    let router = router(&server).await;
    let (most, limiters) = (u64::MAX, LiveLimiters::on(&server));
    let member = |number: u64| format!("{number:016x} web {number} 0.1.0 {most} {number} up");
    limiters.beat_as("", &(0..300).map(member).collect::<Vec<_>>());
    // The denials of the stream are those of a time without a reading.
    let past = SystemTime::now() - Duration::from_secs(20);
    let past = past.duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    for number in [1, 2] {
        let entry = format!("1 {number:016x} web 1 name\nr a {most} a{most}+{most} d{most}+{most}\n");
        server.command(&["XADD", &limiters.name("activity"), &format!("{past}-{number}"), "e", &entry]);
    }
    let (_, state) = first_state(&router, &[]).await;
    assert_eq!(state["rules"][0]["all_denied"], json!(most));
    assert_eq!(
        (&state["fleet"]["limiters"], state["fleet"]["versions"].as_array().map(Vec::len)),
        (&json!(300), Some(100))
    );
    let list = get(&router, "/api/limiters").await.ok();
    assert_eq!(list["limiters"][0]["since"], json!(8_640_000_000_000_000_u64));
}

#[tokio::test]
async fn a_rule_is_found_by_the_name_that_activity_has() {
    let server = RedisServer::start();
    let router = router(&server).await;
    let long = "x".repeat(10_000);
    let line = format!(r#"{{"rule":"{long}","keys":["x"],"limits":["5/h"],"mode":"enforce","origin":"file"}}"#);
    LiveLimiters::on(&server).beat(&line, &["-"]);
    let of = async |name: &str| get(&router, &format!("/api/rules/{name}")).await.ok()["rule"].clone();
    assert_eq!(of(&long).await["limits"], json!(["5/h"]));
    assert_eq!(of(&rate_limited::ActivityLog::name_of_rule(&long)).await["limits"], json!(["5/h"]));
    assert_eq!(of("another").await, json!(null));
}

#[tokio::test]
async fn streams_have_a_bound_and_their_places_come_back() {
    let server = RedisServer::start();
    let router = router(&server).await;
    let mut streams = Vec::new();
    let refused = loop {
        match open_stream(&router, &[]).await {
            Ok((stream, ..)) => streams.push(stream),
            Err(status) => break status,
        }
        assert!(streams.len() <= 16, "no bound");
    };
    assert_eq!((refused, streams.len()), (StatusCode::SERVICE_UNAVAILABLE, 16));
    // Callers with the token have places of their own.
    let (mut trusted, ..) = open_stream(&router, &[("authorization", &bearer())]).await.expect("a place");
    assert!(next(&mut trusted).await.expect("a state").starts_with("event: state\n"));
    drop(streams);
    let until = Instant::now() + Duration::from_secs(20);
    while open_stream(&router, &[]).await.is_err() {
        assert!(Instant::now() < until, "the places have not come back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_reader_that_stands_still_loses_its_stream() {
    let server = RedisServer::start();
    let router = dashboard(&server).await.router().expect("a router");
    let mut streams = Vec::new();
    for _ in 0..16 {
        streams.push(open_stream(&router, &[]).await.expect("a place"));
    }
    assert!(open_stream(&router, &[]).await.is_err());
    // None of them takes an event any more.
    let until = Instant::now() + Duration::from_secs(40);
    while open_stream(&router, &[]).await.is_err() {
        assert!(Instant::now() < until, "a stalled reader keeps its place");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (stream, ..) = &mut streams[0];
    let mut left = 0;
    while next(stream).await.is_some() {
        left += 1;
    }
    assert!(left <= 2, "{left} events were kept for a stalled reader");
}
