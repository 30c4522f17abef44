//! A stream of events that breaks.

use limiter_testkit::{Address, Proxy, RedisServer};

use crate::chromium::Chromium;
use crate::sale::Sale;

const IS_SHOWN: &str = "!document.getElementById('trouble').hidden";
const IS_HIDDEN: &str = "document.getElementById('trouble').hidden";

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_stream_is_shown_and_opened_again() {
    let server = RedisServer::builder().tcp().start();
    let mut sale = Sale::start(&server, &["--buyers", "0", "--opens-in", "1h"]).await;
    // The network between page and service.
    let proxy = Proxy::forward_to(Address::Tcp(sale.address));
    let Address::Tcp(address) = proxy.address() else { panic!("a port") };
    let url = format!("http://{address}");
    let chromium = Chromium::open(&url).await;
    chromium.wait_for_state(&sale).await;
    assert_eq!(chromium.evaluate(IS_HIDDEN).await, true);

    proxy.cut();
    chromium.wait_until(IS_SHOWN).await;
    let text = chromium.evaluate("document.getElementById('trouble').textContent").await;
    let text = text.as_str().expect("a text");
    assert!(text.starts_with("The stream from the server is broken. The numbers are those of "), "{text}");
    assert_eq!(chromium.evaluate("document.getElementById('connection').textContent").await, "Disconnected");
    for scheme in ["light", "dark"] {
        chromium.prefer(scheme).await;
        chromium.assert_contrast().await;
    }

    proxy.pass();
    chromium.wait_until(IS_HIDDEN).await;
    assert_eq!(chromium.evaluate("document.getElementById('connection').textContent").await, "Live");
    chromium.wait_for_state(&sale).await;

    sale.kill();
    chromium.wait_until(IS_SHOWN).await;
    chromium.end(&url, &["/events"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_events_is_opened_again() {
    let server = RedisServer::builder().tcp().start();
    let sale = Sale::start(&server, &["--buyers", "0", "--opens-in", "1h"]).await;
    let proxy = Proxy::forward_to(Address::Tcp(sale.address));
    let Address::Tcp(address) = proxy.address() else { panic!("a port") };
    let url = format!("http://{address}");
    let chromium = Chromium::open(&url).await;
    chromium.wait_for_state(&sale).await;

    // The connection stays open, and nothing arrives.
    proxy.half_open();
    chromium.wait_until(IS_SHOWN).await;
    let text = chromium.evaluate("document.getElementById('trouble').textContent").await;
    assert!(text.as_str().expect("a text").starts_with("The stream from the server is silent. "), "{text}");
    proxy.pass();
    chromium.wait_until(IS_HIDDEN).await;
    chromium.wait_for_state(&sale).await;
    chromium.end(&url, &["/events"]).await;
}
