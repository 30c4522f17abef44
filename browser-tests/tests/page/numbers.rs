//! The numbers and the leaderboards of a sale that runs.

use limiter_testkit::RedisServer;
use serde_json::{Value, json};

use crate::chromium::Chromium;
use crate::sale::{Sale, key};

const ITEMS: u64 = 300;

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// The medals of the clubs, as numbers to compare.
fn medals(leaderboard: &Value) -> Vec<[u64; 3]> {
    let rows = leaderboard.as_array().expect("rows").iter();
    rows.map(|row| ["gold", "silver", "bronze"].map(|grade| number(&row[grade]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_the_state_while_buyers_come_and_after_the_end() {
    let server = RedisServer::builder().tcp().start();
    let mut sale = Sale::start(&server, &["--buyers", "3000", "--items", &ITEMS.to_string(), "--opens-in", "3s"]).await;
    let chromium = Chromium::open(&sale.url()).await;
    for _ in 0..8 {
        let state = chromium.wait_for_state(&sale).await;
        assert!(number(&state["bought"]) <= ITEMS, "{state}");
        chromium.wait_until(&format!("document.getElementById('clock').dataset.event > {}", state["now_ms"])).await;
    }
    sale.wait_for_buyers().await;

    chromium.wait_until("document.getElementById('bought-per-second').textContent === '0'").await;
    let state = chromium.wait_for_state(&sale).await;
    // A call that fails, as its reply comes too late, may have bought.
    let [bought, failed] = ["bought", "failed"].map(|name| number(&state[name]));
    assert!(bought <= ITEMS && bought + failed >= ITEMS, "{state}");
    assert!(number(&state["degraded"]) > 0, "{state}");
    for shown in state["sales"].as_array().expect("sales") {
        let id = shown["id"].as_str().expect("an id");
        let left = server.command(&["GET", &key(&server, &format!(":{id}:stock"))]).text();
        let sold = server.command(&["HLEN", &key(&server, &format!(":{id}:buyers"))]).integer();
        assert_eq!((shown["left"].to_string(), sold), (left, shown["items"].as_i64().expect("a number")), "{shown}");
        assert_eq!(shown["state"], "sold_out");
    }
    chromium.end(&sale.url(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clubs_stand_in_the_order_of_the_service() {
    let server = RedisServer::builder().tcp().start();
    let mut sale = Sale::start(&server, &["--buyers", "600", "--items", &ITEMS.to_string()]).await;
    let chromium = Chromium::open(&sale.url()).await;
    sale.wait_for_buyers().await;
    let state = chromium.wait_for_state(&sale).await;
    for shown in state["sales"].as_array().expect("sales") {
        let id = shown["id"].as_str().expect("an id");
        let service = sale.get(&format!("/sales/{id}/leaderboard?top=10")).await;
        assert_eq!(shown["leaderboard"], service["leaderboard"], "{id}");
        let ranked = medals(&service["leaderboard"]);
        // The buyers' clubs are random, and some may have bought nothing.
        let clubs = server.command(&["ZCARD", &key(&server, &format!(":{id}:clubs"))]).integer();
        assert_eq!(i64::try_from(ranked.len()).expect("few"), clubs.min(10), "{ranked:?}");
        assert!(ranked.is_sorted_by(|above, below| above >= below), "{ranked:?}");
    }
    // Redis has another leader now, so the rows of the page move.
    let clubs = key(&server, ":watch:clubs");
    let last = server.command(&["ZRANGE", &clubs, "0", "0"]).array().remove(0).text();
    let best = server.command(&["ZREVRANGE", &clubs, "0", "0", "WITHSCORES"]).array().remove(1).text();
    let better: u64 = best.parse::<u64>().expect("a whole score") + 1;
    server.command(&["ZADD", &clubs, &better.to_string(), &last]);
    let leader = "document.querySelector('[data-sale=watch] tbody th').textContent";
    chromium.wait_until(&format!("{leader} === {}", json!(last))).await;
    chromium.wait_for_state(&sale).await;
    chromium.end(&sale.url(), &[]).await;
}
