//! The limits of the service, as its clients see them.

use std::sync::Barrier;
use std::thread;

use limiter_testkit::RedisServer;

use crate::client::{Answer, Connection, get};
use crate::instance::Instance;

/// Checks the fields and the body of a denial by this rule.
fn check_denial(answer: &Answer, rule: &str) {
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(answer.field("content-type").as_deref(), Some("application/problem+json"), "{answer:?}");
    assert_eq!(answer.field("cache-control").as_deref(), Some("no-store"), "{answer:?}");
    let seconds = answer.field("retry-after").expect("one number");
    assert!(seconds.parse::<u64>().expect("one number") >= 1, "{answer:?}");
    // That of the handler is before that of the middleware.
    let quota = answer.field("ratelimit").expect("a quota");
    assert!(quota.starts_with(&format!(r#""{rule}";r=0;t={seconds}"#)), "{answer:?}");
    assert!(answer.body.contains(&format!(r#""status":429,"violated-policies":["{rule}"]"#)), "{answer:?}");
}

#[test]
fn two_instances_admit_exactly_the_limit_of_each_user() {
    const USERS: usize = 6;
    const MAX: usize = 5; // of `report`
    let server = RedisServer::start();
    let instances = [(); 2].map(|()| Instance::start(&server));
    let barrier = Barrier::new(USERS * MAX * 3);
    let answers: Vec<_> = thread::scope(|scope| {
        let (instances, barrier) = (&instances, &barrier);
        let calls = (0..USERS * MAX * 3).map(|number| {
            scope.spawn(move || {
                let (user, address) = (number % USERS, instances[number / USERS % 2].address);
                let mut connection = Connection::open(address);
                barrier.wait();
                (user, connection.get(&format!("/users/{user}/report"), "any"))
            })
        });
        calls.collect::<Vec<_>>().into_iter().map(|call| call.join().expect("an answer")).collect()
    });
    let mut allowed = [0; USERS];
    for (user, answer) in answers {
        match answer.status {
            200 => allowed[user] += 1,
            _ => check_denial(&answer, "report"),
        }
    }
    assert_eq!(allowed, [MAX; USERS]);
}

#[test]
fn answers_have_the_fields_of_all_limits_that_decided() {
    let server = RedisServer::start();
    let service = Instance::start(&server);
    let allowed = get(service.address, "/users/7/report", "7");
    assert_eq!((allowed.status, &*allowed.body), (200, "a long report for user 7\n"));
    assert_eq!(allowed.field("ratelimit-policy").as_deref(), Some(r#""address";q=300;w=60"#));
    let quota = allowed.field("ratelimit").expect("a quota");
    assert!(quota.starts_with(r#""address";r=299;t="#), "{quota}");
    assert_eq!((allowed.field("retry-after"), allowed.field("cache-control")), (None, None));
    for _ in 0..4 {
        get(service.address, "/users/7/report", "7");
    }
    let denied = get(service.address, "/users/7/report", "7");
    check_denial(&denied, "report");
    assert_eq!(denied.field("ratelimit-policy").as_deref(), Some(r#""report";q=5;w=3600, "address";q=300;w=60"#));
}

#[test]
fn the_middleware_denies_beyond_the_limit_of_the_address() {
    let server = RedisServer::start();
    let service = Instance::start(&server);
    let mut connection = Connection::open(service.address);
    // A path without a handler counts too. The limit is 300: a slow machine may see more than one window.
    let denied = (0..10_000).map(|_| connection.get("/", "7")).find(|answer| answer.status != 404);
    let denied = denied.expect("a denial");
    check_denial(&denied, "address");
    assert_eq!(denied.field("ratelimit-policy").as_deref(), Some(r#""address";q=300;w=60"#));
}

#[test]
fn a_user_beyond_the_limit_gets_the_fallback() {
    let server = RedisServer::start();
    let service = Instance::start(&server);
    let quotes: Vec<_> = (0..4).map(|_| get(service.address, "/quote", "7").body).collect();
    assert_eq!(quotes[..3], ["a fresh quote for user 7\n"; 3]);
    assert_eq!(quotes[3], "the quote of today\n");
    assert_eq!(get(service.address, "/quote", "8").body, "a fresh quote for user 8\n");
}

#[test]
fn each_rule_has_its_policy_while_redis_is_down() {
    let mut server = RedisServer::start();
    let service = Instance::start_with(&server, &[]);
    assert_eq!(get(service.address, "/quote", "7").status, 200);
    server.kill();
    for _ in 0..6 {
        let quote = get(service.address, "/quote", "7");
        assert_eq!((quote.status, &*quote.body), (200, "a fresh quote for user 7\n"));
        // The permits left are unknown.
        assert_eq!(quote.field("ratelimit"), None);
        let report = get(service.address, "/users/7/report", "7");
        assert_eq!((report.status, report.field("retry-after").as_deref()), (503, Some("1")), "{report:?}");
        assert!(report.body.contains("#temporary-reduced-capacity"), "{report:?}");
        assert_eq!(report.field("ratelimit"), None);
    }
}
