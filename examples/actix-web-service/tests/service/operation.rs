//! The demonstration, wrong options, and the end of the service.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use limiter_testkit::stalls::Stalls;

use crate::client::Connection;
use crate::instance::{Instance, PATIENT, run};

#[test]
fn the_demonstration_ends_by_itself() {
    let server = RedisServer::start();
    for options in [&[][..], &["--redis", &server.url(), PATIENT[0], PATIENT[1]]] {
        let (code, text, errors) = run(options);
        assert_eq!(code, Some(0), "{text}\n{errors}");
        for shown in ["200 OK", "a fresh quote for user 8", "the quote of today", "429 Too Many Requests"] {
            assert!(text.contains(shown), "no {shown:?}:\n{text}");
        }
        assert!(text.contains("\nretry-after: ") && text.contains(r#""violated-policies":["report"]"#), "{text}");
        assert!(text.lines().count() < 40, "{text}");
    }
}

#[test]
fn the_demonstration_without_its_redis_shows_the_policies() {
    let (code, text, errors) = run(&["--redis", "redis://127.0.0.1:1"]);
    assert_eq!(code, Some(0), "{text}\n{errors}");
    assert!(text.contains("503 Service Unavailable") && text.contains("#temporary-reduced-capacity"), "{text}");
    assert!(text.contains("a fresh quote for user 7") && !text.contains("the quote of today"), "{text}");
}

#[test]
fn wrong_options_end_the_service_with_one_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = listener.local_addr().expect("an address").to_string();
    let in_use = format!("cannot listen on {taken}: ");
    let cases = [
        (["--listen", "nowhere"], 2, "invalid value 'nowhere' for '--listen <ADDRESS>'"),
        (["--deadline", "0"], 2, "invalid value '0' for '--deadline <MILLISECONDS>'"),
        (["--redis", "nowhere"], 1, "`url` must"),
        (["--listen", &*taken], 1, &*in_use),
    ];
    for (options, expected, message) in cases {
        let (code, text, errors) = run(&options);
        assert_eq!((code, &*text), (Some(expected), ""), "{options:?}: {errors}");
        assert!(errors.starts_with("error: ") && errors.contains(message), "{options:?}: {errors}");
        assert!(expected == 2 || errors.lines().count() == 1, "{options:?}: {errors}");
    }
}

#[test]
fn signals_end_the_service_with_an_idle_connection() {
    let server = RedisServer::start();
    for signal in ["INT", "TERM"] {
        let mut service = Instance::start(&server);
        let mut connection = Connection::open(service.address);
        assert_eq!(connection.get("/quote", signal).status, 200);
        let began = Instant::now();
        let stalls = Stalls::watch(began);
        service.signal(signal);
        assert!(service.end().success());
        let took = began.elapsed().saturating_sub(stalls.stall_time_since(began));
        assert!(took < Duration::from_secs(5), "{took:?} after {signal}");
    }
}
