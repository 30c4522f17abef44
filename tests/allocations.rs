//! Heap allocations of decisions in memory, in a separate program with a counting allocator.

use std::convert::Infallible;
use std::future::{poll_fn, ready};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::{Route, get};
use limiter_testkit::RedisServer;
use rate_limited::tower::{ClientIp, Header, RateLimitLayer};
use rate_limited::{
    Activity, Decision, Key, KeyMatch, Limit, Limiter, ManualClock, Mode, Rule, RuleSet, Source, rate_limited,
};
use tower::layer::layer_fn;
use tower::{Layer, Service, service_fn};

const CALLS: u64 = 10_000;

/// Returns a limiter in memory with a key that has been counted before, and its limit.
fn limiter_with_known_key(limit: &str) -> (Limiter, Key, Limit) {
    let (limiter, limit) = (Limiter::memory(), limit.parse().expect("a limit"));
    let key = Key::new("user:").part("01890a5d-ac96-774b-bcce-b302099a8057");
    // The log of runs grows to its full size.
    for _ in 0..CALLS {
        assert!(poll_ready(limiter.check_n(&key, &limit, 1)).is_ok());
    }
    (limiter, key, limit)
}

fn poll_ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the memory store is ready on the first poll"),
    }
}

/// Returns the number of allocations during `CALLS` calls, less the few by which a log of runs may grow meanwhile.
fn allocations(call: impl Fn()) -> u64 {
    let measured = measure(|| (0..CALLS).for_each(|_| call()));
    measured.count_total.saturating_sub(10)
}

#[test]
fn decision_on_a_known_key_does_not_allocate() {
    for (limit, allowed) in [("1000000000/10s", true), ("10/h", false)] {
        let (limiter, key, limit) = limiter_with_known_key(limit);
        let check = || assert_eq!(poll_ready(limiter.check(&key, &limit)).expect("answers").is_allowed(), allowed);
        assert_eq!(allocations(check), 0, "{limit}");
        let blocking = || assert_eq!(limiter.check_blocking(&key, &limit).expect("answers").is_allowed(), allowed);
        assert_eq!(allocations(blocking), 0, "{limit}, blocking");
    }
}

/// Keys take over the counters of others, whose texts are as long.
#[test]
fn activity_does_not_allocate() {
    // At one instant, a log of runs does not grow.
    let limiter = Limiter::builder().activity(Activity::new("test").top_keys(10)).clock(ManualClock::new());
    let limiter = limiter.build().expect("valid");
    let keys: Vec<_> = (0..500).map(|number| Key::new("user:").part(format_args!("{number:020}"))).collect();
    for limit in ["1000000000/10s", "1/h"] {
        let limit: Limit = limit.parse().expect("a limit");
        let check = || {
            for key in keys.iter().take(100).chain(&keys) {
                assert!(poll_ready(limiter.check(key, &limit)).is_ok());
            }
        };
        (0..20).for_each(|_| check());
        assert_eq!(measure(check).count_total, 0, "{limit}");
    }
}

#[tokio::test]
async fn decision_by_a_lease_does_not_allocate() {
    let server = RedisServer::start();
    let limiter = Limiter::builder().url(server.url()).leases(true).connect().await.expect("the server is there");
    let (key, limit): (_, Limit) = (Key::new("hot"), "1000000000/10s".parse().expect("a limit"));
    let (mut leased, mut allocating) = (0, 0);
    while leased < CALLS {
        let mut check = pin!(limiter.check(&key, &limit));
        let mut polled = Poll::Pending;
        let measured = measure(|| polled = check.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        let decision = match polled {
            Poll::Ready(decision) => decision,
            Poll::Pending => check.await,
        };
        if decision.expect("answers").into_result().expect("allowed").source() == Source::Lease {
            leased += 1;
            allocating += u64::from(measured.count_total > 0);
        }
    }
    // One call of each lease requests the next.
    assert!(allocating < CALLS / 10, "{allocating} of {CALLS} calls by a lease allocate");
}

#[test]
fn short_key_built_for_the_call_does_not_allocate() {
    let (limiter, _, limit) = limiter_with_known_key("1000000000/10s");
    let check = || {
        let key = Key::new("user:").part("01890a5d-ac96-774b-bcce-b302099a8057");
        assert!(poll_ready(limiter.check(&key, &limit)).expect("answers").is_allowed());
    };
    assert_eq!(allocations(check), 0);
}

#[test]
fn look_up_among_a_hundred_thousand_networks_does_not_allocate() {
    let networks = (0..100_000_u32).map(|index| format!("{}/{}", Ipv4Addr::from(index << 12), 20 + index % 3));
    let networks = KeyMatch::any_of([("ip", networks.collect::<Vec<_>>())]);
    let few = KeyMatch::parts([("ip", "2001:db8::/32"), ("path", "/api/*")]);
    let off = || Rule::new().mode(Mode::Off);
    let allocations_of = |rule: Rule, ip: &str, is_enforced: bool| {
        // At one instant, a log does not grow.
        let limiter = Limiter::builder().clock(ManualClock::new()).build().expect("a limiter in memory");
        limiter.set_rules(RuleSet::new().rule("{ip}:{path}", rule)).expect("valid");
        let (named, limit) = (limiter.named("{ip}:{path}"), "1000000000/10s".parse().expect("a limit"));
        let key = Key::new("").part(ip).text(":").part("/api/v1");
        let check = || {
            let allowed = poll_ready(named.check(&key, &limit)).expect("answers").into_result().expect("allowed");
            assert_eq!(allowed.is_enforced(), is_enforced, "{ip}");
        };
        (0..CALLS).for_each(|_| check());
        allocations(check)
    };
    let rule = Rule::new().overriding(networks, off()).overriding(few, off());
    for ip in ["10.1.2.3", "2001:db8:1:2::/64"] {
        assert_eq!(allocations_of(rule.clone(), ip, false), 0, "{ip}");
    }
    // No override matches.
    let ip = "255.1.2.3";
    let without = allocations_of(Rule::new().mode(Mode::Enforce), ip, true);
    assert_eq!(allocations_of(rule, ip, true), without, "as many as without overrides");
}

#[test]
fn plan_of_a_customer_does_not_allocate() {
    #[rate_limited(key = "planned", limit = "1000000000/10s", plan = plan, fallback = 0)]
    async fn limited(plan: Option<&str>) -> u32 {
        1
    }
    let limiter = Limiter::memory();
    let plan = |text: &str| Rule::new().limit(text.parse().expect("a limit"));
    let plans = RuleSet::new().plan("free", plan("900000000/10s")).plan("pro", plan("2000000000/10s"));
    limiter.set_rules(plans.rule("planned", Rule::new().plans(["free", "pro"]))).expect("valid");
    limiter.scope_sync(|| {
        for plan in [Some("pro"), Some("unknown"), None] {
            let call = || assert_eq!(poll_ready(limited(plan)), 1);
            (0..CALLS).for_each(|_| call());
            assert_eq!(allocations(call), 0, "{plan:?}");
        }
    });
}

#[test]
fn annotated_function_with_a_constant_key_does_not_allocate() {
    #[rate_limited(key = "constant", limit = "1000000000/10s", fallback = 0)]
    async fn limited() -> u32 {
        1
    }
    #[rate_limited(key = "blocking", limit = "1000000000/10s", fallback = 0)]
    fn blocking() -> u32 {
        1
    }
    Limiter::memory().scope_sync(|| {
        assert_eq!((poll_ready(limited()), blocking()), (1, 1));
        assert_eq!(allocations(|| assert_eq!(poll_ready(limited()), 1)), 0);
        assert_eq!(allocations(|| assert_eq!(blocking(), 1)), 0, "blocking");
    });
}

/// Returns the fewest allocations of one of a hundred requests. Others may also grow the log of runs, at any time.
fn allocations_of_request<S, B: Default>(mut service: S) -> u64
where
    S: Service<http::Request<B>, Error = Infallible>,
{
    let peer: SocketAddr = "192.0.2.1:4711".parse().expect("an address");
    let allocations = (0..100).map(|_| {
        let request = http::Request::builder().uri("/").header("x-api-key", "0123456789abcdef");
        let request = request.extension(ConnectInfo(peer)).body(B::default()).expect("a request");
        poll_ready(poll_fn(|context| service.poll_ready(context))).expect("infallible");
        measure(|| drop(poll_ready(service.call(request)).expect("infallible"))).count_total
    });
    allocations.min().expect("there are requests")
}

/// They are the value of one field and the permit in the extensions, for which the request's and the answer's maps may
/// grow. A router of axum allocates for any layer, so it is compared with a layer that does nothing. It boxes each body of
/// another type than its own, as the one that may hold slots.
#[test]
fn a_layer_allocates_at_most_four_times_a_request() {
    let service = service_fn(|request: http::Request<String>| {
        let answer = http::Response::builder().header("content-type", "text/plain").body(request.into_body());
        ready(Ok::<_, Infallible>(answer.expect("an answer")))
    });
    let router = || Router::new().route("/", get(|| async { "body" }));
    let no_op = router().layer(layer_fn(|service: Route| service));
    let layer = RateLimitLayer::new("api", "1000000000/10s".parse().expect("a limit")).limiter(Limiter::memory());
    let by_address_and_header = layer.clone().key((ClientIp::peer(), Header::new("x-api-key")));
    let bare = allocations_of_request::<_, String>(service);
    assert!(allocations_of_request::<_, String>(layer.layer(service)) <= bare + 4);
    assert!(allocations_of_request::<_, String>(by_address_and_header.layer(service)) <= bare + 4);
    let bare = allocations_of_request::<_, Body>(no_op);
    assert!(allocations_of_request::<_, Body>(router().layer(layer)) <= bare + 5);
}

/// Clones share a flag, which the first clone allocates.
#[test]
fn cloning_a_receipt_allocates_once() {
    let (limiter, key, limit) = limiter_with_known_key("1000000000/10s");
    let Ok(Decision::Allowed(allowed)) = poll_ready(limiter.check(&key, &limit)) else { panic!("there is room") };
    let cloned = measure(|| drop(allowed.clone()));
    assert_eq!(cloned.count_total, 1);
}
