//! Runs of many buyers, of which the program itself checks each answer.

use std::net::SocketAddr;

use limiter_testkit::RedisServer;

use crate::client::{buy, order};
use crate::program::{Program, number_before, run};

const NO_FAULTS: &str = "oversold 0, bought twice 0, above the limit 0, lost 0";

/// Buyers and items of a small run. The product's limit makes it last for some seconds.
const SMALL: [&str; 8] = ["--buyers", "500", "--items", "60", "--opens-in", "500ms", "--product-limit", "5/s"];

fn last_line(output: &str) -> &str {
    output.lines().next_back().unwrap_or_default()
}

#[test]
fn a_storm_sells_each_item_once() {
    let server = RedisServer::start();
    let output = run(&server.url(), &SMALL);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(last_line(&text), NO_FAULTS, "{text}");
    assert!(text.contains("\n60 of 60 items sold, in "), "{text}");
    assert!(number_before(" degrade answers\n", &text) > 0, "{text}");
    assert!(number_before(" buys in flight at most", &text) > 1, "{text}");
    // Nothing stays in Redis for ever, and a cluster would have all keys of the sales in one slot.
    let keys = server.keys();
    // A count may have expired since: it has -2 then, and a key that stays has -1.
    assert!(keys.iter().all(|key| server.pttl(key) != -1), "{keys:?}");
    let keys = server.keys_with("flash-sale:{");
    assert_eq!(keys.len(), 1 + 3 * 3, "{keys:?}");
    assert!(keys.iter().all(|key| key.split('}').next() == keys[0].split('}').next()), "{keys:?}");
}

#[test]
fn a_program_that_stays_serves_until_ctrl_c() {
    let server = RedisServer::start();
    let mut program = Program::start(&server, &["--buyers", "5", "--items", "6", "--opens-in", "500ms", "--stay"]);
    program.wait_for("the result", |line| line.trim() == NO_FAULTS);
    assert_eq!(buy(program.address, "watch", &order("visitor")).result(), (410, "sold_out".to_owned()));
    program.interrupt();
    assert_eq!(program.end().0, Some(0));
}

#[test]
fn with_fewer_buyers_than_items_each_buys_in_each_sale() {
    let server = RedisServer::start();
    let output = run(&server.url(), &["--buyers", "5", "--items", "60", "--opens-in", "500ms"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), last_line(&text)), (Some(0), NO_FAULTS), "{text}");
    assert!(text.contains("\n15 of 60 items sold, in "), "{text}");
}

/// Reads the output until some items are sold, and not all.
fn wait_for_sales(program: &mut Program) {
    program.wait_for("sold items", |line| line.contains(" items sold, ") && number_before(" of 60 ", line) > 0);
}

#[test]
fn a_redis_that_is_killed_and_restarted_sells_each_item_once() {
    let mut server = RedisServer::builder().setting("appendonly", "yes").setting("appendfsync", "always").start();
    let mut program = Program::start(&server, &SMALL);
    wait_for_sales(&mut program);
    server.kill();
    program.wait_for("failures", |line| line.contains(" failures, ") && number_before(" failures, ", line) > 0);
    server.restart();
    let (code, output) = program.end();
    assert_eq!((code, last_line(&output)), (Some(0), NO_FAULTS), "{output}");
    assert!(output.contains("\n60 of 60 items sold, in "), "{output}");
    let reasons = ["calls without an answer while Redis was away", "calls got 503 while the limiter could not decide"];
    assert!(reasons.iter().any(|reason| output.contains(reason)), "{output}");
}

#[test]
fn an_item_that_only_the_buyer_knows_is_a_fault() {
    let server = RedisServer::start();
    let mut program = Program::start(&server, &SMALL);
    wait_for_sales(&mut program);
    let keys = server.keys_with(":buyers");
    let buyers = server.command(&["HKEYS", &keys[0]]).array();
    let buyer = buyers.into_iter().next().expect("a buyer").text();
    server.command(&["HDEL", &keys[0], &buyer]);
    let (code, output) = program.end();
    assert_eq!(code, Some(1), "{output}");
    assert!(number_before(", above the limit", last_line(&output)) > 0, "{output}");
    assert!(!last_line(&output).ends_with("lost 0"), "{output}");
}

#[test]
fn a_redis_that_loses_the_sales_is_an_error_and_no_fault_of_the_buyers() {
    let server = RedisServer::start();
    let mut program = Program::start(&server, &SMALL);
    wait_for_sales(&mut program);
    server.command(&["FLUSHALL"]);
    let (code, output) = program.end();
    assert_eq!(code, Some(1), "{output}");
    assert!(!output.contains("bought twice"), "{output}");
}

#[test]
fn an_item_of_another_client_is_no_fault() {
    let server = RedisServer::start();
    let mut program = Program::start(&server, &SMALL);
    wait_for_sales(&mut program);
    let address: SocketAddr = program.address;
    while ["watch", "camera", "bicycle"].into_iter().all(|sale| buy(address, sale, &order("visitor")).status == 429) {}
    let (code, output) = program.end();
    assert_eq!((code, last_line(&output)), (Some(0), NO_FAULTS), "{output}");
}
