//! The layer on Redis.

use limiter_testkit::RedisServer;
use rate_limited::tower::{Everyone, RateLimitLayer};
use rate_limited::{Key, OnError};
use tokio::task::JoinSet;

use super::{Served, counted, field, limit, request_of, send, statuses};
use crate::support::{Subject, builder_for};

#[tokio::test]
async fn layers_of_several_limiters_share_one_quota_by_redis() {
    let subject = Subject::redis().await;
    let layer = RateLimitLayer::new("api", limit("3/1m")).limiter(subject.limiter.clone());
    let service = counted(&layer, &Served::default());
    let four = [0; 4].map(|_| request_of("192.0.2.1"));
    assert_eq!(statuses(&service, four).await, [200, 200, 200, 429]);
    let denied = send(&service, request_of("192.0.2.1")).await;
    assert_eq!(field(&denied, "retry-after"), ["60"]);
    assert_eq!(field(&denied, "ratelimit"), [r#""api";r=0;t=60"#]);
}

#[tokio::test]
async fn a_limit_holds_for_requests_that_come_at_once() {
    let subject = Subject::redis().await;
    let layer = RateLimitLayer::new("api", limit("50/1h")).limiter(subject.limiter.clone()).key(Everyone);
    let served = Served::default();
    let service = counted(&layer, &served);
    let mut requests = JoinSet::new();
    for _ in 0..200 {
        let service = service.clone();
        requests.spawn(async move { send(&service, request_of("192.0.2.1")).await.status().as_u16() });
    }
    let statuses = requests.join_all().await;
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 50);
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 150);
    assert_eq!(served.count(), 50);
}

#[tokio::test]
async fn refunds_go_to_the_store() {
    let subject = Subject::redis().await;
    let layer = RateLimitLayer::new("api", limit("1/1m")).limiter(subject.limiter.clone()).refund_if(|_, _| true);
    let service = counted(&layer, &Served::default());
    assert_eq!(statuses(&service, [0; 3].map(|_| request_of("192.0.2.1"))).await, [200; 3]);
    let key = Key::new("api").text(":ip:").part("192.0.2.1");
    assert_eq!(subject.limiter.peek(&key, &limit("1/1m")).await.expect("decides").remaining(), 1);
}

/// A permit that was taken before a failure is not given back to a store that may have lost it.
#[tokio::test]
async fn a_refund_after_the_store_is_gone_leaves_the_answer() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).on_error(OnError::Closed).connect().await.expect("the store is there");
    let layer = RateLimitLayer::new("api", limit("9/1m")).limiter(limiter);
    let kill = std::sync::Mutex::new(Some(server));
    let layer = layer.refund_if(move |_, _| {
        drop(kill.lock().expect("no panic").take());
        true
    });
    let service = counted(&layer, &Served::default());
    let response = send(&service, request_of("192.0.2.1")).await;
    assert_eq!(response.status(), 200);
    assert!(field(&response, "ratelimit")[0].starts_with(r#""api";r=8;t="#));
}
