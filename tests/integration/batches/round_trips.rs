//! Tests of batches over a long round trip: a call does not wait for the replies to those before it.

use std::time::Duration;

use limiter_testkit::{Proxy, RedisServer};
use rate_limited::{Limiter, Source};

use super::{MAX_IN_FLIGHT_BATCHES, StartCall, denied};
use crate::deadlines::eventually;
use crate::support::{builder_for, poll_once};

const LONG_ROUND_TRIP: Duration = Duration::from_millis(60);

/// A limiter on a server whose replies take long.
async fn far_limiter(server: &RedisServer, proxy: &Proxy) -> Limiter {
    proxy.delay(LONG_ROUND_TRIP);
    builder_for(server).url(proxy.url()).connect().await.expect("the server is there")
}

#[tokio::test]
async fn calls_over_a_long_round_trip_are_sent_before_the_replies_to_earlier_ones() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let limiter = far_limiter(&server, &proxy).await;
    proxy.hold_replies();
    let (mut calls, before) = (Vec::new(), server.script_calls());
    for sent in 1..=5 * MAX_IN_FLIGHT_BATCHES {
        calls.extend(poll_once(vec![limiter.clone().start_call(("a", "1000/1h", 1))]).await);
        eventually("sent", async || server.script_calls() == before + sent).await;
    }
    proxy.pass();
    for (index, call) in (1..).zip(calls) {
        assert_eq!(call.await.expect("a decision").remaining(), 1_000 - index);
    }
}

/// More of them would be in flight than may be: the replies to some are held back.
#[tokio::test]
async fn batches_in_flight_over_a_long_round_trip_are_bounded() {
    const MAX_IN_FLIGHT: u64 = 128;
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let limiter = far_limiter(&server, &proxy).await;
    proxy.hold_replies();
    let (mut calls, before) = (Vec::new(), server.script_calls());
    for _ in 0..MAX_IN_FLIGHT {
        let sent = server.script_calls();
        calls.extend(poll_once(vec![limiter.clone().start_call(("a", "150/1h", 1))]).await);
        eventually("sent", async || server.script_calls() == sent + 1).await;
    }
    let rest: Vec<_> = (0..50).map(|_| limiter.clone().start_call(("a", "150/1h", 1))).collect();
    calls.extend(poll_once(rest).await);
    tokio::time::sleep(LONG_ROUND_TRIP).await;
    assert_eq!(server.script_calls(), before + MAX_IN_FLIGHT, "the rest waits");
    proxy.pass();
    let mut allowed = 0;
    for call in calls {
        let decision = call.await.expect("a decision");
        if decision.is_allowed() {
            allowed += 1;
        } else {
            assert_eq!(denied(&decision).source(), Source::Store);
        }
    }
    assert_eq!(allowed, 150);
}
