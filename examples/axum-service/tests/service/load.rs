//! Load of many connections on two instances that share a Redis.

use std::sync::Arc;
use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use limiter_testkit::history::{Admission, Counts, Denial, Rule, check_denials, feasible};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::client::{Answer, Connection};
use crate::instance::Instance;
use crate::quota::{check_denial, check_fields};

const CONNECTIONS: usize = 64;

/// The rules of all requests, from the inner layer to the outer one.
const ALL_RULES: [&str; 3] = ["service", "user", "address"];

/// The time by which a permit may come back later than its window: limits count in whole milliseconds.
const SLACK: Duration = Duration::from_millis(2);

/// Returns a file with a limit for all and one for each user. No call gives up before the test does.
fn rules(service: &str, user: &str) -> String {
    format!(
        "defaults = {{ deadline = \"60s\", on_error = \"closed\" }}\n\
         rules = {{ service.limit = \"{service}\", user.limit = \"{user}\", address.limit = \"100000/h\" }}\n"
    )
}

/// Runs a client on each of the connections, half of them to each instance, all at once. Returns their results.
async fn on_all_connections<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    instances: &[Instance; 2],
    client: impl Fn(usize, [Connection; 2]) -> F,
) -> Vec<T> {
    let barrier = Arc::new(Barrier::new(CONNECTIONS));
    let mut clients = JoinSet::new();
    for number in 0..CONNECTIONS {
        let (near, far) = (&instances[number % 2], &instances[(number + 1) % 2]);
        let connections = [Connection::open(near.address).await, Connection::open(far.address).await];
        let (barrier, client) = (Arc::clone(&barrier), client(number, connections));
        clients.spawn(async move {
            barrier.wait().await;
            client.await
        });
    }
    clients.join_all().await
}

/// Returns the answer to a request of a user with an address of its own.
async fn quote(connection: &mut Connection, user: usize) -> Answer {
    let (user, address) = (format!("authorization: Bearer {user}"), format!("x-forwarded-for: 192.0.2.{user}"));
    connection.get("/quote", &[user.as_bytes(), address.as_bytes()]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_admit_exactly_the_limit_together() {
    const REQUESTS: usize = 20;
    const MAX: usize = 500;
    let server = RedisServer::start();
    let instances = [(); 2].map(|()| Instance::start(&server, &rules("500/h", "100000/h")));
    let answers = on_all_connections(&instances, |user, [mut near, _]| async move {
        let mut answers = Vec::with_capacity(REQUESTS);
        for _ in 0..REQUESTS {
            answers.push(quote(&mut near, user).await);
        }
        answers
    });
    let answers: Vec<_> = answers.await.into_iter().flatten().collect();
    let (allowed, denied): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!((allowed.len(), denied.len()), (MAX, CONNECTIONS * REQUESTS - MAX));
    for answer in allowed {
        check_fields(answer, &ALL_RULES);
        assert_eq!(answer.field("retry-after"), None);
    }
    for answer in denied {
        check_denial(answer, &ALL_RULES);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_window_of_two_instances_is_full_and_none_overflows() {
    const WINDOWS: u32 = 3;
    const MAX: u32 = 200;
    let window = Duration::from_secs(2);
    let server = RedisServer::start();
    let instances = [(); 2].map(|()| Instance::start(&server, &rules("200/2s", "100000/h")));
    let origin = Instant::now();
    let calls = on_all_connections(&instances, |user, [mut near, _]| async move {
        let mut calls = Vec::new();
        let mut start = origin.elapsed();
        while start < window * WINDOWS {
            let answer = quote(&mut near, user).await;
            calls.push((start, origin.elapsed(), answer));
            start = origin.elapsed();
        }
        calls
    });
    let (mut admissions, mut denials) = (Vec::new(), Vec::new());
    for (start, end, answer) in calls.await.into_iter().flatten() {
        if answer.status == 200 {
            check_fields(&answer, &ALL_RULES);
            admissions.push(Admission { start, end, cost: 1 });
        } else {
            check_denial(&answer, &ALL_RULES);
            denials.push(Denial { start, end, cost: 1 });
        }
    }
    let rule = Rule { counts: Counts::Wholly, window, max: MAX, holds: MAX, slack: SLACK };
    assert_eq!(feasible(&admissions, window, MAX), Ok(()));
    assert_eq!(check_denials(&admissions, &denials, &rule), Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_after_exactly_retry_after_gets_through() {
    let server = RedisServer::start();
    let instances = [(); 2].map(|()| Instance::start(&server, &rules("100000/s", "2/2s")));
    let answers = on_all_connections(&instances, |user, [mut near, mut far]| async move {
        let denied = loop {
            let answer = quote(&mut near, user).await;
            if answer.status != 200 {
                break answer;
            }
        };
        let seconds = check_denial(&denied, &["user", "address"]);
        sleep(Duration::from_secs(seconds)).await;
        // The other instance knows of the wait too.
        quote(&mut far, user).await
    });
    for answer in answers.await {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}
