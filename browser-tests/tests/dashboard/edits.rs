//! Edits in the page: in force within 2 s, mistakes at their lines, conflicts with both texts, rollback.

use std::time::{Duration, Instant};

use rate_limited::{Change, Limiter, SharedRules};
use serde_json::json;

use crate::dashboard::{Served, TOKEN};

const FIRST: &str = "# Quotas.\n[rules.user]\nlimit = \"5/10s\"\n";
const SECOND: &str = "# Quotas.\n[rules.user]\nlimit = \"9/10s\"\n";

fn change(version: u64) -> Change {
    Change { based_on: version, who: "ben".to_owned(), why: "quotas".to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_is_in_force_within_two_seconds() {
    let served = Served::start().await;
    let follower =
        Limiter::builder().url(served.server.url()).shared_rules().presence(false).connect().await.expect("a server");
    let rules = SharedRules::new(&follower);
    rules.publish(FIRST, change(0)).await.expect("published");
    served.write_fleet(&["1", "1"]);
    let chromium = served.open().await;
    chromium.enter_token(TOKEN).await;
    chromium.wait_for_trust().await;
    chromium.view("#/edit", "Edit the shared rules").await;
    chromium.wait_until(&format!("document.getElementById('toml').value === {}", json!(FIRST))).await;

    chromium.fill("#toml", &FIRST.replace("limit", "limt")).await;
    chromium.wait_for_text("main [role=alert]", "line 3, column 1").await;
    chromium.wait_for_text(".gutter .wrong", "3").await;
    assert_eq!(chromium.evaluate("document.querySelector('form button.primary').disabled").await, json!(true));
    chromium.fill("#toml", &FIRST.replace("5/10s", "5/min")).await;
    chromium.wait_for_text(".effect-panel", "starts new counts").await;
    chromium.fill("#toml", SECOND).await;
    chromium.wait_for_text(".diff .added", "9/10s").await;
    chromium.wait_until("!document.querySelector('form button.primary').disabled").await;
    chromium.sign().await;
    let began = Instant::now();
    chromium.evaluate("document.querySelector('form button.primary').click()").await;
    while follower.shared_rules_version() != 2 {
        assert!(began.elapsed() < Duration::from_secs(2), "not in force within 2 s");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    chromium.wait_for_text(".outcome", "in force in 0 of 2 limiters").await;
    served.write_fleet(&["2", "2"]);
    chromium.wait_for_text(".outcome", "in force in 2 of 2 limiters after").await;

    chromium.view("#/history", "History").await;
    chromium.wait_until("document.querySelectorAll('.versions > li').length === 3").await;
    chromium.evaluate("document.querySelectorAll('.versions button')[1].click()").await;
    chromium.wait_for_text(".versions .diff .added", "5/10s").await;
    chromium.evaluate("document.querySelector('.versions form button').click()").await;
    chromium.wait_until("document.querySelectorAll('.versions > li').length === 4").await;
    assert_eq!(rules.read().await.expect("a text").toml, FIRST);
    served.write_fleet(&["3", "3"]);
    chromium.wait_for_text(".outcome", "the text of version 1, is in force in 2 of 2 limiters").await;
    chromium.wait_for_text(".outcome", "By ana.").await;
    chromium.wait_until("document.activeElement.className === 'outcome'").await;

    // The time before the first version is a state to go back to.
    chromium.evaluate("document.querySelectorAll('.versions button')[3].click()").await;
    chromium.wait_for_text(".versions form button", "Back to none").await;
    chromium.evaluate("document.querySelector('.versions form button').click()").await;
    chromium.wait_for_text(".outcome", "a text without rules").await;
    assert_eq!(rules.read().await.expect("a text").toml, "# No rules.\n");
    chromium.close(&served.url, "/api/events", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_shows_both_texts() {
    let served = Served::start().await;
    let limiter = Limiter::builder().url(served.server.url()).presence(false).connect().await.expect("a server");
    let rules = SharedRules::new(&limiter);
    rules.publish(FIRST, change(0)).await.expect("published");
    let chromium = served.open().await;
    chromium.enter_token(TOKEN).await;
    chromium.wait_for_trust().await;
    chromium.view("#/edit", "Edit the shared rules").await;
    chromium.wait_until(&format!("document.getElementById('toml').value === {}", json!(FIRST))).await;
    let mine = FIRST.replace("5/10s", "7/10s");
    chromium.fill("#toml", &mine).await;
    chromium.wait_until("!document.querySelector('form button.primary').disabled").await;
    chromium.sign().await;
    rules.publish(SECOND, change(1)).await.expect("published");
    chromium.evaluate("document.querySelector('form button.primary').click()").await;
    chromium.wait_for_text("main h2", "Conflict: version 2").await;
    let texts =
        chromium.evaluate("[...document.querySelectorAll('.columns pre.text')].map((node) => node.textContent)").await;
    assert_eq!(texts, json!([SECOND, mine]));
    assert_eq!(rules.read().await.expect("a text").toml, SECOND);
    // The text is kept, and is published on top of the other one.
    chromium.evaluate("[...document.querySelectorAll('main button')].find((button) => button.textContent.startsWith('Keep')).click()").await;
    chromium.wait_until("!document.querySelector('form button.primary').disabled").await;
    chromium.evaluate("document.querySelector('form button.primary').click()").await;
    chromium.wait_for_text(".outcome", "Version 3 is published").await;
    assert_eq!(rules.read().await.expect("a text").toml, mine);
    chromium.close(&served.url, "/api/events", &["/api/text/publish"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_alone_reaches_the_key_of_a_customer() {
    let served = Served::start().await;
    served.write_fleet(&["-"]);
    let chromium = served.open().await;
    let press = async |key: &str| {
        let body = chromium.page.find_element("body").await.expect("a body");
        body.press_key(key).await.expect("a key");
    };
    let focused =
        async || chromium.evaluate("document.activeElement.textContent.trim() || document.activeElement.id").await;
    for expected in ["Skip to the content", "Rules", "Key", "Limiters", "Edit", "History", "Enter token"] {
        press("Tab").await;
        assert_eq!(focused().await, json!(expected));
    }
    press("Enter").await;
    chromium.wait_until("document.activeElement.id === 'token'").await;
    chromium.page.find_element("#token").await.expect("a field").type_str(TOKEN).await.expect("typed");
    press("Enter").await;
    chromium.wait_for_trust().await;
    chromium.evaluate("document.querySelector('nav a[href=\"#/key\"]').focus()").await;
    press("Enter").await;
    chromium
        .wait_until("document.activeElement.tagName === 'H1' && document.activeElement.textContent === 'Key'")
        .await;
    press("Tab").await;
    let field = chromium.page.find_element("main input").await.expect("a field");
    field.type_str("user:@42").await.expect("typed");
    press("Enter").await;
    chromium.wait_for_text(".verdict", "Each rule allows the next call.").await;
    chromium.close(&served.url, "/api/events", &[]).await;
}
