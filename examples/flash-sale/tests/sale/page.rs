//! The page and its stream of events.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};

use limiter_testkit::RedisServer;
use serde_json::Value;

use crate::client::{get, open};
use crate::program::Program;

/// An open stream of events.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(address: SocketAddr) -> Self {
        Self(BufReader::new(open(address, "GET /events", "")))
    }

    /// Returns the state in the next event.
    fn next(&mut self) -> Value {
        let (mut line, mut name) = (String::new(), String::new());
        loop {
            line.clear();
            assert!(self.0.read_line(&mut line).expect("text") > 0, "the stream ended");
            if let Some(event) = line.strip_prefix("event: ") {
                event.trim().clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                assert_eq!(name, "state");
                return serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
            }
        }
    }
}

/// Returns the names of the members, sorted: their order depends on a feature of `serde_json`.
fn names(value: &Value) -> Vec<&str> {
    let mut names: Vec<_> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn events_have_the_state_at_once_and_then_again_and_again() {
    let server = RedisServer::start();
    let program = Program::start(&server, &["--buyers", "0", "--items", "10", "--opens-in", "1h"]);
    let mut events = Events::open(program.address);
    let (first, second) = (events.next(), events.next());
    assert!(second["now_ms"].as_u64() > first["now_ms"].as_u64(), "{first} {second}");
    for state in [first, get(program.address, "/state").json()] {
        let mut expected = ["now_ms", "sales", "bought", "degraded", "failed", "limiter"].to_vec();
        expected.extend(["bought_per_second", "degraded_per_second"]);
        expected.sort_unstable();
        assert_eq!(names(&state), expected);
        assert_eq!(state["limiter"], "up");
        let sales = state["sales"].as_array().expect("sales");
        let ids: Vec<_> = sales.iter().map(|sale| sale["id"].as_str().expect("text")).collect();
        assert_eq!(ids, ["watch", "camera", "bicycle"]);
        for sale in sales {
            assert_eq!(names(sale), ["id", "items", "leaderboard", "left", "name", "opens_at_ms", "state"]);
            assert_eq!((&sale["state"], &sale["items"]), (&Value::from("scheduled"), &sale["left"]));
            assert!(sale["opens_at_ms"].as_u64() > state["now_ms"].as_u64(), "{state}");
        }
        assert_eq!(sales.iter().filter_map(|sale| sale["items"].as_u64()).sum::<u64>(), 10);
    }
}

#[test]
fn a_client_that_disconnects_ends_its_stream() {
    let server = RedisServer::start();
    let mut program = Program::start(&server, &["--buyers", "0"]);
    let mut pages = [Events::open(program.address), Events::open(program.address)];
    pages.iter_mut().for_each(|page| drop(page.next()));
    program.wait_for("two pages", |line| line == "2 pages open\n");
    drop(pages);
    program.wait_for("no page", |line| line == "0 pages open\n");
    // The service goes on.
    Events::open(program.address).next();
}

#[test]
fn the_page_is_html() {
    let server = RedisServer::start();
    let program = Program::start(&server, &["--buyers", "0"]);
    let page = get(program.address, "/");
    assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.body.starts_with("<!doctype html>"), "{}", page.body);
}
