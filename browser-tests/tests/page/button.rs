//! The button "Buy one" and its answers.

use limiter_testkit::RedisServer;
use serde_json::Value;

use crate::chromium::Chromium;
use crate::sale::{Sale, empty_stock, open};
use crate::view::card;

/// The browser logs each answer that is no success.
const BUY: [&str; 2] = ["/sales/watch/buy", "/sales/camera/buy"];

#[tokio::test(flavor = "multi_thread")]
async fn the_button_shows_each_answer() {
    let mut server = RedisServer::builder().tcp().start();
    // No permit comes back within the test.
    let options = ["--buyers", "0", "--opens-in", "1h", "--buyer-limit", "3/h"];
    let sale = Sale::start(&server, &options).await;
    let chromium = Chromium::open(&sale.url()).await;
    chromium.wait_for_word("watch", "Scheduled").await;

    let (answer, text) = chromium.buy("watch").await;
    assert!(answer == "not_open" && text.starts_with("Not open yet. It opens in "), "{answer}: {text}");
    open(&server, "watch");
    chromium.wait_for_word("watch", "Open").await;
    assert_eq!(chromium.buy("watch").await, ("bought".into(), "Bought: number 1, bronze for Lisbon.".into()));
    let (answer, text) = chromium.buy("watch").await;
    assert_eq!((&*answer, &*text), ("bought_already", "You have one already: number 1, bronze."));
    let (answer, text) = chromium.buy("watch").await;
    assert!(answer == "degraded" && text.starts_with("Too many calls. Try again in "), "{answer}: {text}");

    open(&server, "camera");
    chromium.wait_for_word("camera", "Open").await;
    empty_stock(&server, "watch");
    chromium.visit(&sale.url()).await;
    chromium.wait_for_word("watch", "Sold out").await;
    assert_eq!(chromium.buy("watch").await, ("sold_out".into(), "Sold out.".into()));
    // The service keeps in memory that the watch is sold out.
    server.kill();
    assert_eq!(chromium.buy("camera").await, ("unavailable".into(), "Redis is away. Try again later.".into()));
    chromium.end(&sale.url(), &BUY).await;
}

async fn press(chromium: &Chromium, key: &str) {
    let body = chromium.page.find_element("body").await.expect("a body");
    body.press_key(key).await.expect("a key");
}

async fn focused(chromium: &Chromium) -> Value {
    chromium.evaluate("document.activeElement.textContent").await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_reaches_and_presses_the_buttons() {
    let server = RedisServer::builder().tcp().start();
    let sale = Sale::start(&server, &["--buyers", "0", "--opens-in", "1h"]).await;
    let chromium = Chromium::open(&sale.url()).await;
    chromium.wait_for_state(&sale).await;
    open(&server, "watch");
    chromium.wait_for_word("watch", "Open").await;
    press(&chromium, "Tab").await;
    assert_eq!(focused(&chromium).await, "Buy one: Watch");
    press(&chromium, "Enter").await;
    assert_eq!(chromium.answer("watch").await.0, "bought");
    // The new row of the table has not moved the focus.
    chromium.wait_until(&format!("{}.querySelector('tbody').rows.length === 1", card("watch"))).await;
    for name in ["Watch", "Camera", "Bicycle"] {
        assert_eq!(focused(&chromium).await, format!("Buy one: {name}"));
        press(&chromium, "Tab").await;
    }
    chromium.wait_for_state(&sale).await;
    chromium.end(&sale.url(), &BUY).await;
}
