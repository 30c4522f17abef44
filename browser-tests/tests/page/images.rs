//! Images of the page in the middle of a sale, for the documentation.

use std::path::Path;
use std::time::Duration;
use std::{env, fs};

use chromiumoxide::page::ScreenshotParams;
use limiter_testkit::RedisServer;

use crate::chromium::Chromium;
use crate::sale::{Sale, open_in};
use crate::view::card;

const MAX_IMAGE_BYTES: usize = 200_000;

/// The file, the scheme and the size of each image.
const IMAGES: [(&str, &str, i64, i64); 2] =
    [("flash-sale.png", "light", 1280, 900), ("flash-sale-dark.png", "dark", 360, 800)];

#[tokio::test(flavor = "multi_thread")]
async fn images_of_the_page_are_small_files() {
    let directory = env::var_os("RATE_LIMITED_SCREENSHOTS");
    // A longer sale fills the chart of images that are kept.
    let (items, limit, pause) = if directory.is_some() { ("1500", "35/s", 24) } else { ("90", "20/s", 6) };
    let server = RedisServer::builder().tcp().start();
    let options = ["--buyers", "2000", "--items", items, "--product-limit", limit, "--opens-in", "5s"];
    let sale = Sale::start(&server, &options).await;
    // One sale ends, one runs, and one waits.
    open_in(&server, "camera", Duration::from_secs(pause));
    open_in(&server, "bicycle", Duration::from_secs(4 * pause));
    let chromium = Chromium::open(&sale.url()).await;
    chromium.wait_for_word("watch", "Sold out").await;
    let number = |field| format!("{}.querySelector('[data-field={field}]').value", card("camera"));
    chromium.wait_until(&format!("{} < 0.7 * {}", number("left"), number("items"))).await;
    chromium.buy("camera").await;

    for (name, scheme, width, height) in IMAGES {
        chromium.resize(width, height).await;
        chromium.prefer(scheme).await;
        let image = chromium.page.screenshot(ScreenshotParams::builder().build()).await.expect("an image");
        assert!(image.starts_with(b"\x89PNG") && image.len() < MAX_IMAGE_BYTES, "{name}: {} bytes", image.len());
        if let Some(directory) = &directory {
            fs::write(Path::new(directory).join(name), image).expect("the directory exists");
        }
    }
    chromium.end(&sale.url(), &["/sales/camera/buy"]).await;
}
