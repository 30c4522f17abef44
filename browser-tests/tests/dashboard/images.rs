//! Sizes, colours and images of the page, for the documentation.

use std::path::Path;
use std::time::Duration;
use std::{env, fs};

use chromiumoxide::page::ScreenshotParams;
use rate_limited::{Change, Limiter, SharedRules};
use serde_json::json;

use crate::chromium::Chromium;
use crate::dashboard::{Served, TOKEN, load};

const MAX_IMAGE_BYTES: usize = 200_000;

const TEXT: &str = "# Agreed with the warehouse in May.\n[rules.search]\nlimit = \"900/min\" # per tenant\n\n\
    [rules.\"user:{user_id}\"]\nlimit = \"50/10s\"\n\n[[rules.\"user:{user_id}\".override]]\nmatch = { user_id = 1003 }\nlimit = \"500/10s\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn the_views_fit_into_small_windows_and_are_readable_in_both_schemes() {
    let served = Served::start().await;
    let limiter = Limiter::builder().url(served.server.url()).presence(false).connect().await.expect("a server");
    let rules = SharedRules::new(&limiter);
    let change = |based_on, why: &str| Change { based_on, who: "ana@web-1".to_owned(), why: why.to_owned() };
    rules.publish(&TEXT.replace("50/10s", "100/10s"), change(0, "quotas of May")).await.expect("published");
    rules.publish(TEXT, change(1, "INC-731: the database is slow")).await.expect("published");
    served.write_fleet(&["2", "2", "1", "2"]);
    let load = tokio::spawn(load(served.server.url()));
    let chromium = served.open().await;
    chromium.enter_token(TOKEN).await;
    chromium.wait_for_trust().await;
    // A longer load fills the charts of images that are kept.
    let seconds = if env::var_os("RATE_LIMITED_SCREENSHOTS").is_some() { 45 } else { 3 };
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    for (name, hash, title, ready) in [
        ("rules", "#/", "Rules", "document.querySelector('main').innerText.includes('user:@42')"),
        (
            "rule",
            "#/rule/user%3A%7Buser_id%7D",
            "user:{user_id}",
            "document.querySelectorAll('canvas').length === 1 && document.querySelectorAll('dl').length === 1",
        ),
        ("key", "#/key", "Key", "true"),
        ("limiters", "#/limiters", "Limiters", "document.querySelector('main').innerText.includes('web-4')"),
        ("edit", "#/edit", "Edit the shared rules", "document.getElementById('toml').value.length > 100"),
        ("history", "#/history", "History", "document.querySelectorAll('.versions > li').length === 3"),
    ] {
        chromium.view(hash, title).await;
        chromium.wait_until(ready).await;
        match name {
            "key" => {
                chromium.fill("main input", "user:@42").await;
                chromium.evaluate("document.querySelector('main form button').click()").await;
                chromium.wait_for_text(".verdict", "user:@42").await;
            }
            "edit" => {
                chromium.fill("#toml", &TEXT.replace("900/min", "500/h")).await;
                chromium.wait_for_text(".warning", "starts new counts").await;
            }
            "history" => {
                chromium.evaluate("document.querySelectorAll('.versions button')[1].click()").await;
                chromium.wait_for_text(".versions .diff .added", "100/10s").await;
            }
            _ => {}
        }
        show(&chromium, name).await;
    }
    load.abort();
    chromium.close(&served.url, "/api/events", &[]).await;
}

/// Checks a view in each size and scheme, and keeps images of it.
async fn show(chromium: &Chromium, name: &str) {
    for (width, height) in [(1280, 800), (360, 780)] {
        chromium.resize(width, height).await;
        let widths = chromium.evaluate("[document.scrollingElement.scrollWidth, innerWidth]").await;
        assert!(widths[0].as_u64() <= widths[1].as_u64() && widths[1] == width, "{name}: {widths}");
        for scheme in ["light", "dark"] {
            chromium.prefer(scheme).await;
            let texts = chromium.evaluate(include_str!("../page/contrast.js")).await;
            let weak: Vec<_> =
                texts.as_array().expect("a list").iter().filter(|text| text["contrast"].as_f64() < Some(4.5)).collect();
            assert!(weak.is_empty(), "{name}, {scheme}: {weak:#?}");
            let unlabelled = "[...document.querySelectorAll('main input, main textarea, main button, main a, main progress')]
                .filter((node) => !(node.labels?.length || node.ariaLabel || node.textContent.trim())).map((node) => node.outerHTML)";
            assert_eq!(chromium.evaluate(unlabelled).await, json!([]), "{name}");
            let image = chromium.page.screenshot(ScreenshotParams::builder().build()).await.expect("an image");
            assert!(image.starts_with(b"\x89PNG") && image.len() < MAX_IMAGE_BYTES, "{name}: {} bytes", image.len());
            if let Some(directory) = env::var_os("RATE_LIMITED_SCREENSHOTS") {
                let file = format!("dashboard-{name}-{width}-{scheme}.png");
                fs::write(Path::new(&directory).join(file), image).expect("the directory exists");
            }
        }
    }
    chromium.resize(1280, 800).await;
}
