//! Sizes and colours of the page.

use limiter_testkit::RedisServer;

use crate::chromium::Chromium;
use crate::sale::Sale;

#[tokio::test(flavor = "multi_thread")]
async fn the_page_fits_into_small_windows_and_is_readable_in_both_schemes() {
    let server = RedisServer::builder().tcp().start();
    let mut sale = Sale::start(&server, &["--buyers", "600", "--items", "300", "--opens-in", "3s"]).await;
    let chromium = Chromium::open(&sale.url()).await;
    chromium.wait_for_state(&sale).await;
    fits(&chromium).await;
    is_readable(&chromium).await;
    // All is sold then, and the leaderboards are full.
    sale.wait_for_buyers().await;
    chromium.wait_for_state(&sale).await;
    fits(&chromium).await;
    is_readable(&chromium).await;
    chromium.end(&sale.url(), &[]).await;
}

async fn fits(chromium: &Chromium) {
    for (width, height) in [(360, 800), (320, 600), (768, 1024), (1280, 900), (2560, 1300)] {
        chromium.resize(width, height).await;
        let widths = chromium.evaluate("[document.scrollingElement.scrollWidth, innerWidth]").await;
        assert!(widths[0].as_u64() <= widths[1].as_u64() && widths[1] == width, "{width}: {widths}");
        let wide = "[...document.querySelectorAll('main *')].filter((node) => node.scrollWidth > node.clientWidth + 1
            && node.clientWidth > 1 && getComputedStyle(node).overflowX !== 'visible').map((node) => node.outerHTML)";
        assert_eq!(chromium.evaluate(wide).await, serde_json::json!([]), "at {width}");
    }
}

async fn is_readable(chromium: &Chromium) {
    let mut backgrounds = Vec::new();
    for scheme in ["light", "dark"] {
        chromium.prefer(scheme).await;
        let texts = chromium.assert_contrast().await;
        assert!(texts >= 40, "{texts} texts");
        backgrounds.push(chromium.evaluate("getComputedStyle(document.body).backgroundColor").await);
    }
    assert_ne!(backgrounds[0], backgrounds[1]);
}
