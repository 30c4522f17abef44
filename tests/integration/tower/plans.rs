//! The plans of a layer's requests: by a function, and by an async one.

use http::request::Parts;
use rate_limited::tower::{Header, Missing, RateLimitLayer};
use rate_limited::{Rule, RuleSet};

use super::{Served, counted, limit, limiter, request, statuses};

/// The header with the plan of these requests.
const PLAN: &str = "x-plan";

fn plan_of(parts: &Parts) -> Option<String> {
    Some(parts.headers.get(PLAN)?.to_str().ok()?.to_owned())
}

#[tokio::test]
async fn a_request_has_the_limit_of_its_plan_and_keeps_its_count() {
    let layer = || RateLimitLayer::new("planned", limit("1/h")).key(Header::new("x-customer")).missing(Missing::Shared);
    // An async function may wait, so that the request is decided in its future.
    let later = |parts: &Parts| {
        let plan = plan_of(parts);
        async move {
            tokio::task::yield_now().await;
            plan
        }
    };
    for layer in [layer().plan(plan_of), layer().plan_async(later), layer().plan(|_| None::<&str>).plan(plan_of)] {
        let (limiter, _) = limiter();
        let plans =
            RuleSet::new().plan("free", Rule::new().limit(limit("2/h"))).plan("pro", Rule::new().limit(limit("4/h")));
        limiter.set_rules(plans.rule("planned", Rule::new().plans(["free", "pro"]))).expect("valid");
        let service = counted(&layer.limiter(limiter), &Served::default());
        let send = async |customer: &str, plan: &str| {
            let headers = [("x-customer", customer), (PLAN, plan)];
            let requests = (0..6).map(|_| request("192.0.2.1:1", "/", &headers));
            statuses(&service, requests).await.into_iter().filter(|status| *status == 200).count()
        };
        assert_eq!(send("a", "free").await, 2);
        assert_eq!(send("a", "pro").await, 2, "two were used before");
        assert_eq!((send("b", "pro").await, send("c", "gold").await, send("d", "").await), (4, 1, 1));
        let without_key = (0..6).map(|_| request("192.0.2.1:1", "/", &[(PLAN, "free")]));
        assert_eq!(statuses(&service, without_key).await, [200, 200, 429, 429, 429, 429]);
    }
}
