//! The task of an operator in an incident: from the customer who is denied to another limit for this one.

use std::time::Duration;

use limiter_testkit::LiveLimiters;
use rate_limited::{Limiter, SharedRules};
use serde_json::json;

use crate::dashboard::{Served, TOKEN};

const DRAFT: &str = "[[rules.\"user:{user_id}\".override]]\nmatch = { user_id = \"4711\" }\nlimit = \"50/10s\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_gets_another_limit_from_the_list_of_denied_keys() {
    let served = Served::start().await;
    let follower =
        Limiter::builder().url(served.server.url()).shared_rules().presence(false).connect().await.expect("a server");
    served.write_fleet(&["-", "-"]);
    let limiters = LiveLimiters::on(&served.server);
    limiters.add_activity("1 00000000000000ff web-1 10 shop\nr user:{user_id} 1000 d90+20\nd 0 user:@4711 90+20 0\n");
    let chromium = served.open().await;
    chromium.enter_token(TOKEN).await;
    chromium.wait_for_trust().await;

    chromium.click("user:@4711").await;
    chromium.wait_for_text(".verdict", "user:@4711").await;
    chromium.click("Change for this key…").await;
    chromium.wait_until(&format!("document.getElementById('toml')?.value === {}", json!(DRAFT))).await;
    let selected = "(() => { const area = document.activeElement; return area.value?.slice(area.selectionStart, area.selectionEnd); })()";
    chromium.wait_until(&format!("{selected} === '50/10s'")).await;
    let area = chromium.page.find_element("#toml").await.expect("the editor");
    area.type_str("500/10s").await.expect("typed");
    chromium.wait_for_text(".changes", "user_id = 4711 of user:{user_id}: 50/10s → 500/10s").await;
    chromium.wait_until("!document.querySelector('form button.primary').disabled").await;
    // Who makes the change must be written. Why is filled in.
    chromium.click("Publish").await;
    assert_eq!(chromium.evaluate("document.activeElement.placeholder").await, json!("ana"));
    assert_eq!(follower.shared_rules_version(), 0);
    chromium.fill(".publish-panel input[placeholder=ana]", "ana").await;
    chromium.click("Publish").await;
    while follower.shared_rules_version() != 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let published = SharedRules::new(&follower).read().await.expect("a text");
    let expected = (DRAFT.replace("50/10s", "500/10s"), "ana (dashboard)", "limit for user:@4711");
    assert_eq!((published.toml, &*published.who, &*published.why), expected);
    served.write_fleet(&["1", "1"]);
    chromium.wait_for_text(".outcome", "Version 1 is in force in 2 of 2 limiters after").await;

    // A name that no limiter has needs a tick.
    let misspelt = "[[rules.search.override]]\nmatch = { tenat = \"acme\" }\nlimit = \"5/min\"\n";
    chromium.fill("#toml", &format!("{DRAFT}\n{misspelt}")).await;
    chromium.wait_for_text(".effect-panel .warning", "did you mean tenant?").await;
    chromium.wait_until("!document.querySelector('.consent').hidden").await;
    assert_eq!(chromium.evaluate("document.querySelector('form button.primary').disabled").await, json!(true));
    chromium.evaluate("document.getElementById('anyway').click()").await;
    assert_eq!(chromium.evaluate("document.querySelector('form button.primary').disabled").await, json!(false));
    chromium.click("Undo my changes").await;

    // A text that is no key leads to the key that is meant.
    chromium.view("#/key", "Key").await;
    chromium.wait_for_text(".verdict", "user:@4711").await;
    chromium.fill("main input", "4711").await;
    chromium.click("Show").await;
    chromium.wait_for_text(".answer .warning", "No rule has the key 4711").await;
    chromium.click("user:@4711").await;
    chromium.wait_for_text(".verdict", "user:@4711").await;
    chromium.wait_for_text(".limit", "500/10s").await;
    chromium.close(&served.url, "/api/events", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_store_nothing_old_is_shown_as_present() {
    let mut served = Served::start().await;
    let limiter = Limiter::builder().url(served.server.url()).presence(false).connect().await.expect("a server");
    let rules = SharedRules::new(&limiter);
    rules.publish(DRAFT, rate_limited::Change::default()).await.expect("published");
    served.write_fleet(&["1"]);
    let chromium = served.open().await;
    chromium.enter_token(TOKEN).await;
    chromium.wait_for_trust().await;
    chromium.wait_for_text(".tiles", "v1").await;
    served.server.kill();
    chromium.wait_for_text("#failure", "The store fails. ").await;
    chromium.wait_for_text("#failure", "Rates and counts are those of ").await;
    chromium.wait_until("'stale' in document.documentElement.dataset").await;
    chromium.wait_for_text(".tiles li:last-child", "Shared rules–not known").await;
    let text = chromium.evaluate("document.getElementById('failure').textContent").await;
    assert_eq!(text.as_str().expect("a text").matches("cannot connect").count(), 1, "{text}");
    chromium.view("#/limiters", "Limiters").await;
    chromium.wait_for_text("main [role=alert]", "Which limiters live is not known").await;
    let says_none = "document.querySelector('main').innerText.includes('has written a heartbeat')";
    assert_eq!(chromium.evaluate(says_none).await, json!(false));
    served.server.restart();
    chromium.wait_until("document.getElementById('failure').hidden").await;
    chromium.close(&served.url, "/api/events", &["/api/limiters"]).await;
}
