//! The limits of the service, as its clients see them.

use std::sync::Arc;
use std::time::Duration;

use limiter_testkit::RedisServer;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt;

use crate::instance::Instance;
use crate::shop::quotes_client::QuotesClient;
use crate::shop::{Answer, Goods};

type Called = Result<Response<Answer>, Status>;

async fn client(service: &Instance) -> QuotesClient<Channel> {
    QuotesClient::connect(format!("http://{}", service.address)).await.expect("the service listens")
}

fn of_user(user: usize) -> Request<Goods> {
    let mut request = Request::new(Goods { name: "bread".to_owned() });
    request.metadata_mut().insert("user", user.to_string().parse().expect("ASCII"));
    request
}

fn field<'a>(result: &'a Called, name: &str) -> Option<&'a str> {
    let metadata = result.as_ref().map_or_else(Status::metadata, Response::metadata);
    metadata.get(name).map(|value| value.to_str().expect("ASCII"))
}

/// Checks the status of a denial by this rule.
fn check_denial(result: &Called, rule: &str) {
    let status = result.as_ref().expect_err("a denial");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains(&format!("`{rule}`")), "{status:?}");
    let delay = status.get_details_retry_info().expect("details").retry_delay.expect("a delay");
    assert!(Duration::ZERO < delay && delay <= Duration::from_millis(60_001), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_admit_exactly_the_limit_of_each_user() {
    const USERS: usize = 10;
    const MAX: usize = 3; // of `quote`
    let server = RedisServer::start();
    let instances = [(); 2].map(|()| Instance::start(&server));
    let clients = [client(&instances[0]).await, client(&instances[1]).await];
    let barrier = Arc::new(Barrier::new(USERS * MAX * 3));
    let mut calls = JoinSet::new();
    for number in 0..USERS * MAX * 3 {
        let (user, mut client) = (number % USERS, clients[number / USERS % 2].clone());
        let barrier = Arc::clone(&barrier);
        calls.spawn(async move {
            barrier.wait().await;
            (user, client.quote(of_user(user)).await)
        });
    }
    let mut allowed = [0; USERS];
    for (user, result) in calls.join_all().await {
        match &result {
            Ok(_) => allowed[user] += 1,
            Err(_) => check_denial(&result, "quote"),
        }
    }
    assert_eq!(allowed, [MAX; USERS]);
}

#[tokio::test]
async fn answers_have_the_fields_of_the_layer() {
    let server = RedisServer::start();
    let service = Instance::start(&server);
    let mut client = client(&service).await;
    for count in 1..=4 {
        let result = client.quote(of_user(7)).await;
        assert_eq!(field(&result, "ratelimit-policy"), Some(r#""address";q=300;w=60"#));
        let quota = field(&result, "ratelimit").expect("a quota");
        assert!(quota.starts_with(&format!(r#""address";r={};t="#, 300 - count)), "{quota}");
        match count {
            4 => check_denial(&result, "quote"),
            _ => assert_eq!(result.expect("a permit").get_ref().text, "a quote of bread for user 7"),
        }
    }
}

#[tokio::test]
async fn the_layer_denies_beyond_the_limit_of_the_address() {
    let server = RedisServer::start();
    let service = Instance::start(&server);
    let mut client = client(&service).await;
    // The limit is 300: a slow machine may see more than one window.
    for _ in 0..10_000 {
        let result = client.stock(of_user(7)).await;
        if result.is_err() {
            return check_denial(&result, "address");
        }
    }
    panic!("no denial");
}

#[tokio::test]
async fn each_rule_has_its_policy_while_redis_is_down() {
    let mut server = RedisServer::start();
    let service = Instance::start_with(&server, &[]);
    let mut client = client(&service).await;
    assert!(client.stock(of_user(7)).await.is_ok());
    server.kill();
    for _ in 0..4 {
        let stock = client.stock(of_user(7)).await;
        // The permits left are unknown.
        assert_eq!(field(&stock, "ratelimit"), None);
        assert_eq!(stock.expect("the layer is open").get_ref().text, "there is bread");
        let status = client.quote(of_user(7)).await.expect_err("the method is closed");
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        let retry_info = status.get_details_retry_info().expect("details");
        assert_eq!(retry_info.retry_delay, Some(Duration::from_secs(1)));
    }
}
