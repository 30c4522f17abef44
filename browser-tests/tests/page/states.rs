//! The states of a sale.

use limiter_testkit::RedisServer;

use crate::chromium::Chromium;
use crate::sale::{Sale, empty_stock, open};
use crate::view::text_of;

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_is_scheduled_then_open_then_sold_out() {
    let server = RedisServer::builder().tcp().start();
    let sale = Sale::start(&server, &["--buyers", "0", "--opens-in", "1h"]).await;
    let chromium = Chromium::open(&sale.url()).await;

    chromium.wait_for_word("watch", "Scheduled").await;
    // The countdown runs by itself: two of its texts differ.
    let countdown = text_of("watch", "countdown");
    chromium.wait_until(&format!("/^, in [0-5]\\d:[0-5]\\d$/.test({countdown})")).await;
    let first = chromium.evaluate(&countdown).await;
    chromium.wait_until(&format!("{countdown} !== {first}")).await;
    assert_eq!(chromium.evaluate(&text_of("watch", "opening")).await, "Opens at");

    open(&server, "watch");
    chromium.wait_for_word("watch", "Open").await;
    assert_eq!(chromium.evaluate(&text_of("watch", "opening")).await, "Opened at");
    assert_eq!(chromium.evaluate(&countdown).await, "");
    assert_eq!(chromium.evaluate("document.getElementById('announcement').textContent").await, "Watch: Open.");

    empty_stock(&server, "watch");
    chromium.wait_for_word("watch", "Sold out").await;
    assert_eq!(chromium.evaluate("document.getElementById('announcement').textContent").await, "Watch: Sold out.");
    assert_eq!(chromium.evaluate(&text_of("watch", "left")).await, "0");
    // The other sales have not changed.
    chromium.wait_for_word("camera", "Scheduled").await;
    chromium.wait_for_state(&sale).await;
    chromium.end(&sale.url(), &[]).await;
}
