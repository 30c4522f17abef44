//! Layers whose rule blocks keys, or is postpaid: the settings of the rule that the request of a layer has itself.

use rate_limited::tower::{Everyone, RateLimitLayer};
use rate_limited::{Key, Limiter, Rule, RuleSet};

use super::{Served, counted, field, limit, request_of, send, statuses};
use crate::support::with_every_limiter;

with_every_limiter!(a_denial_of_a_layer_begins_the_block_of_its_rule, a_layer_follows_a_rule_that_is_postpaid,);

async fn a_denial_of_a_layer_begins_the_block_of_its_rule(limiter: Limiter) {
    let rule = Rule::new().limit(limit("2/s")).block("1min".parse().expect("a block"));
    limiter.set_rules(RuleSet::new().rule("api", rule)).expect("valid");
    let layer = || RateLimitLayer::new("api", limit("9/1m")).key(Everyone).limiter(limiter.clone());
    let services = [layer(), layer().plan(|_| Some("none"))].map(|layer| counted(&layer, &Served::default()));
    assert_eq!(statuses(&services[0], [0; 3].map(|_| request_of("192.0.2.1"))).await, [200, 200, 429]);
    // The window would be over after a second.
    for service in &services {
        let denied = send(service, request_of("192.0.2.1")).await;
        let retry_after: u64 = field(&denied, "retry-after")[0].parse().expect("seconds");
        assert!((2..=60).contains(&retry_after), "{retry_after}");
    }
    limiter.named("api").reset(&Key::new("api"), &limit("2/s")).await.expect("the store answers");
    assert_eq!(statuses(&services[0], [request_of("192.0.2.1")]).await, [200]);
}

async fn a_layer_follows_a_rule_that_is_postpaid(limiter: Limiter) {
    limiter.set_rules(RuleSet::new().rule("api", Rule::new().postpaid(true))).expect("valid");
    let layer = RateLimitLayer::new("api", limit("2/1h")).key(Everyone).limiter(limiter.clone());
    let service = counted(&layer, &Served::default());
    // Nothing charges them.
    assert_eq!(statuses(&service, [0; 3].map(|_| request_of("192.0.2.1"))).await, [200; 3]);
    let left = limiter.peek(&Key::new("api"), &limit("2/1h")).await.expect("the store answers").remaining();
    assert_eq!(left, 2);
}
