//! The answers to single purchases.

use std::sync::Barrier;
use std::thread;

use limiter_testkit::RedisServer;
use serde_json::{Value, json};

use crate::client::{Answer, buy, get, order, order_with_request, send};
use crate::program::{Program, eventually};

/// A service without buyers of its own, whose first sale is open.
fn open_sale(server: &RedisServer, options: &[&str]) -> Program {
    let program = Program::start(server, &[&["--buyers", "0", "--opens-in", "1ms"], options].concat());
    eventually("the opening", || get(program.address, "/state").body.contains(r#""state":"open""#).then_some(()));
    program
}

/// Checks that an answer took a permit.
fn check_admitted(answer: &Answer) {
    assert!(answer.field("ratelimit").is_some() && answer.field("ratelimit-policy").is_some(), "{answer:?}");
}

#[test]
fn an_item_has_a_number_and_a_grade() {
    let server = RedisServer::start();
    let program = open_sale(&server, &["--product-limit", "100/s"]);
    for number in 1..=10 {
        let answer = buy(program.address, "watch", &order(&format!("b{number}")));
        let grade = match number {
            7 => "gold",
            2 | 5 => "silver",
            _ => "bronze",
        };
        assert_eq!(answer.json(), json!({ "result": "bought", "grade": grade, "number": number }));
        assert_eq!((answer.status, answer.field("cache-control")), (200, Some("no-store")));
        check_admitted(&answer);
    }
}

#[test]
fn two_buyers_with_one_id_get_one_item() {
    let server = RedisServer::start();
    let program = open_sale(&server, &[]);
    let barrier = Barrier::new(2);
    let mut results = thread::scope(|scope| {
        let buyers = ["r1", "r2"].map(|request| {
            let (barrier, address) = (&barrier, program.address);
            scope.spawn(move || {
                barrier.wait();
                buy(address, "watch", &order_with_request("b1", request))
            })
        });
        buyers.map(|buyer| buyer.join().expect("an answer"))
    });
    results.sort_by_key(|answer| answer.status);
    let [first, second] = &results;
    assert_eq!((first.result(), second.result()), ((200, "bought".into()), (409, "bought_already".into())));
    assert_eq!(second.json()["same_request"], false);
    assert_eq!(get(program.address, "/state").json()["bought"].as_u64().map(|bought| bought <= 1), Some(true));
}

#[test]
fn a_request_that_is_sent_again_finds_out_that_it_bought() {
    let server = RedisServer::start();
    let program = open_sale(&server, &["--buyer-limit", "100/s"]);
    let order = order_with_request("b1", "r1");
    assert_eq!(buy(program.address, "watch", &order).status, 200);
    let again = buy(program.address, "watch", &order);
    assert_eq!(again.status, 409);
    let expected = json!({ "result": "bought_already", "grade": "bronze", "number": 1, "same_request": true });
    assert_eq!(again.json(), expected);
    // Without an id no two requests are the same.
    assert_eq!(buy(program.address, "watch", &crate::client::order("b2")).status, 200);
    assert_eq!(buy(program.address, "watch", &crate::client::order("b2")).json()["same_request"], false);
}

#[test]
fn a_purchase_before_the_opening_learns_the_time() {
    let server = RedisServer::start();
    let program = Program::start(&server, &["--buyers", "0", "--opens-in", "1h"]);
    let answer = buy(program.address, "watch", &order("b1"));
    assert_eq!(answer.result(), (425, "not_open".into()));
    let opens_in_ms = answer.json()["opens_in_ms"].as_u64().expect("a number");
    assert!((1..=3_600_000).contains(&opens_in_ms), "{answer:?}");

    // The opening is moved: the sorted set is the only place that has it.
    let keys = server.keys_with(":openings");
    server.command(&["ZADD", &keys[0], "XX", "1", "watch"]);
    assert_eq!(buy(program.address, "watch", &order("b1")).status, 200);
    let state = || get(program.address, "/state").json()["sales"][0]["state"].clone();
    eventually("the state", || (state() == "open").then_some(()));
}

#[test]
fn buyers_after_the_last_item_come_too_late() {
    let server = RedisServer::start();
    let program = open_sale(&server, &["--items", "3", "--buyer-limit", "1000/h", "--product-limit", "1000/h"]);
    let address = program.address;
    assert_eq!(buy(address, "watch", &order_with_request("b1", "r1")).status, 200);
    let answer = buy(address, "watch", &order("b2"));
    assert_eq!(answer.result(), (410, "sold_out".into()));
    eventually("the state", || (get(address, "/state").json()["sales"][0]["state"] == "sold_out").then_some(()));
    // From memory now, without a permit, and with the same results.
    let answer = eventually("an answer without a permit", || {
        Some(buy(address, "watch", &order("b2"))).filter(|answer| answer.field("ratelimit").is_none())
    });
    assert_eq!(answer.result(), (410, "sold_out".into()));
    let again = buy(address, "watch", &order_with_request("b1", "r1"));
    assert_eq!((again.result(), &again.json()["same_request"]), ((409, "bought_already".into()), &json!(true)));
    assert_eq!(buy(address, "watch", &order("b1")).json()["same_request"], false);
    // An operator adds items: the sale goes on.
    server.command(&["SET", &server.keys_with("watch:stock")[0], "1", "KEEPTTL"]);
    eventually("another item", || (buy(address, "watch", &order("b2")).status == 200).then_some(()));
}

#[test]
fn a_denied_purchase_gets_the_degrade_answer() {
    let server = RedisServer::start();
    for (rule, option) in [("buyer", "--buyer-limit"), ("product", "--product-limit")] {
        let program = open_sale(&server, &[option, "1/h"]);
        check_admitted(&buy(program.address, "watch", &order("b1")));
        let denied = buy(program.address, "watch", &order("b1"));
        assert_eq!(denied.result(), (429, "degraded".into()));
        let millis = denied.json()["retry_after_ms"].as_u64().expect("a number");
        let seconds = denied.field("retry-after").and_then(|text| text.parse().ok());
        assert_eq!(seconds, Some(millis.div_ceil(1_000)), "{denied:?}");
        assert!(denied.field("ratelimit").is_some_and(|field| field.starts_with(&format!("\"{rule}\";r=0;t="))));
        assert_eq!(denied.field("ratelimit-policy"), Some(&*format!("\"{rule}\";q=1;w=3600")));
        // Another buyer has another quota. A product has one for all.
        let other = buy(program.address, "watch", &order("b2"));
        assert_eq!(other.status, if rule == "buyer" { 200 } else { 429 });
    }
}

#[test]
fn bad_requests_are_refused_and_take_no_permit() {
    let server = RedisServer::start();
    let program = open_sale(&server, &["--buyer-limit", "1/h", "--product-limit", "1/h"]);
    let address = program.address;
    let long = "b".repeat(65);
    let bodies = [
        String::new(),
        "{".to_owned(),
        "[1]".to_owned(),
        r#"{"buyer":"b1"}"#.to_owned(),
        r#"{"buyer":7,"club":"Lisbon"}"#.to_owned(),
        order(&long).to_string(),
        order("").to_string(),
        order("b1\u{0}").to_string(),
        order_with_request("b1", &long).to_string(),
        json!({ "buyer": "b1", "club": "<script>" }).to_string(),
        json!({ "buyer": "b1", "club": "L".repeat(33) }).to_string(),
        json!({ "buyer": "b1", "club": "Lisbon", "more": "x".repeat(1_024) }).to_string(),
    ];
    for body in &bodies {
        let answer = send(address, "POST /sales/watch/buy", body);
        assert_eq!(answer.result(), (400, "bad_request".into()), "{body}");
        assert!(answer.json()["message"].as_str().is_some_and(|message| !message.contains('\n')), "{answer:?}");
    }
    assert_eq!(buy(address, "car", &order("b1")).result(), (404, "unknown_sale".into()));
    assert_eq!(buy(address, &long, &order("b1")).result(), (400, "bad_request".into()));
    assert_eq!(buy(address, "%ff", &order("b1")).status, 400);
    assert_eq!(send(address, "GET /sales/watch/buy", "").status, 405);
    assert_eq!(buy(address, "watch", &order("b1")).status, 200);
}

#[test]
fn purchases_fail_while_redis_is_away() {
    let mut server = RedisServer::start();
    let program = open_sale(&server, &[]);
    let address = program.address;
    server.kill();
    let answer = buy(address, "watch", &order("b1"));
    assert_eq!(answer.result(), (503, "unavailable".into()));
    assert_eq!((answer.field("retry-after"), answer.field("ratelimit")), (Some("1"), None));
    assert_eq!(get(address, "/sales/watch/leaderboard").result(), (503, "unavailable".into()));
    // The page remains, and shows the failure.
    let state = || get(address, "/state").json();
    let is_shown = |state: &Value| state["limiter"] != "up" && state["failed"] != 0;
    let state = eventually("the failure", || Some(state()).filter(is_shown));
    assert_eq!((&state["bought"], state["failed"].as_u64()), (&json!(0), Some(1)), "{state}");
    server.restart();
    // Its data are lost, and so are the sales.
    eventually("the end of the sales", || {
        (buy(address, "watch", &order("b1")).result() == (404, "unknown_sale".into())).then_some(())
    });
}
