//! Receipts after failures of the server, which may have lost the permits.

use super::{connect, kind, receipt};
use crate::deadlines::eventually;
use crate::settles::{left, take};
use crate::support::{builder_for, key, limit};

use std::time::Duration;

use limiter_testkit::{RedisServer, unique};
use rate_limited::Algorithm::FixedWindow;
use rate_limited::{ErrorKind, ManualClock};

/// It cannot know of a failure before it was connected. It gives nothing back, and charges what is above.
#[tokio::test]
async fn a_process_that_was_connected_after_the_call_gives_nothing_back() {
    let (server, clock, prefix) = (RedisServer::start(), ManualClock::new(), unique("receipts"));
    let pass = || clock.advance(Duration::from_millis(1));
    let limit = limit("20/1h").with_algorithm(FixedWindow);
    let maker = connect(builder_for(&server).prefix(&prefix), &clock).await;
    let (less, more) = (key("less"), key("more"));
    pass();
    let calls = [take(&maker, &less, &limit, 5).await, take(&maker, &more, &limit, 5).await];
    let [of_less, of_more] = [receipt(&maker, &less, &calls[0]), receipt(&maker, &more, &calls[1])];
    pass();
    let late = connect(builder_for(&server).prefix(&prefix), &clock).await;
    assert_eq!(late.settle_receipt(&less, &of_less, 1).await.expect("settled").remaining(), 15);
    assert_eq!(late.settle_receipt(&more, &of_more, 9).await.expect("settled").remaining(), 11);
    assert_eq!(kind(maker.settle_receipt(&less, &of_less, 1).await), Some(ErrorKind::Settled), "it is used");
    pass();
    // It would know of a failure since then.
    let allowed = take(&maker, &less, &limit, 5).await;
    late.refund_receipt(&less, &receipt(&maker, &less, &allowed)).await.expect("refunded");
    assert_eq!(left(&maker, &less, &limit).await, 15);
}

/// A server that restarts empty would give back permits of other calls.
#[tokio::test]
async fn a_server_that_has_failed_since_the_call_gives_nothing_back() {
    let (mut server, clock, prefix) = (RedisServer::start(), ManualClock::new(), unique("receipts"));
    let limit = limit("20/1h").with_algorithm(FixedWindow);
    let maker = connect(builder_for(&server).prefix(&prefix), &clock).await;
    let other = connect(builder_for(&server).prefix(&prefix), &clock).await;
    clock.advance(Duration::from_millis(1));
    let key = key("a");
    let calls = [take(&maker, &key, &limit, 5).await, take(&maker, &key, &limit, 5).await];
    let receipts = calls.map(|allowed| receipt(&maker, &key, &allowed));
    clock.advance(Duration::from_millis(1));
    server.restart();
    for limiter in [&maker, &other] {
        eventually("connected", async || limiter.charge(&key, &limit, 0).await.is_ok()).await;
    }
    maker.charge(&key, &limit, 8).await.expect("charged");
    assert_eq!(other.settle_receipt(&key, &receipts[0], 0).await.expect("settled").remaining(), 12);
    assert_eq!(maker.settle_receipt(&key, &receipts[1], 7).await.expect("settled").remaining(), 10);
}
