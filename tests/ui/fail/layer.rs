use rate_limited::Limit;
use rate_limited::tower::RateLimitLayer;

fn refund_after_grpc(limit: Limit) {
    let _ = RateLimitLayer::new("api", limit).grpc().refund_if(|_, status| status != 401);
}

fn grpc_after_refund(limit: Limit) {
    let _ = RateLimitLayer::new("api", limit).refund_if(|_, status| status != 401).grpc();
}

fn key_that_is_none(limit: Limit) {
    let _ = RateLimitLayer::new("api", limit).key("address");
}

fn main() {}
