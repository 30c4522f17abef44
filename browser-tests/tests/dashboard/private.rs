//! Nothing private without the token, and texts of others are texts.

use serde_json::json;

use crate::dashboard::{HOSTILE, Served, TOKEN};

#[tokio::test(flavor = "multi_thread")]
async fn without_the_token_the_page_shows_nothing_private() {
    let served = Served::start().await;
    served.write_fleet(&["-", "-"]);
    served.write_hostile();
    let chromium = served.open().await;
    chromium.wait_for_text(".tiles", "Limiters2").await;
    for (view, title) in [
        ("#/", "Rules"),
        ("#/key", "Key"),
        ("#/limiters", "Limiters"),
        ("#/edit", "Edit the shared rules"),
        ("#/history", "History"),
    ] {
        chromium.view(view, title).await;
        chromium.wait_for_text("main", "only with the token").await;
        assert_eq!(chromium.evaluate("document.body.innerText.includes('web-1')").await, json!(false), "{view}");
    }
    chromium.enter_token("wrong-wrong-wrong-wrong").await;
    chromium.wait_for_text("#token-problem", "the token is wrong").await;
    chromium.evaluate("document.getElementById('token-cancel').click()").await;
    chromium.enter_token(TOKEN).await;
    chromium.wait_for_trust().await;
    chromium.view("#/limiters", "Limiters").await;
    chromium.wait_for_text("main", "web-1 (4711)").await;
    let places = "[location.href, document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.documentElement.outerHTML]";
    assert_eq!(chromium.evaluate(&format!("{places}.some((text) => text.includes({TOKEN:?}))")).await, json!(false));
    chromium.evaluate("document.getElementById('token-button').click()").await;
    chromium.wait_for_text("main", "only with the token").await;
    chromium.close(&served.url, "/api/events", &["/api/events"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_in_a_key_is_text() {
    let served = Served::start().await;
    served.write_hostile();
    let chromium = served.open().await;
    chromium.enter_token(TOKEN).await;
    chromium.wait_for_trust().await;
    let is_shown = format!("document.querySelector('main').innerText.includes({})", json!(HOSTILE));
    chromium.wait_until(&is_shown).await;
    chromium.view(&format!("#/rule/{}", urlencoded(HOSTILE)), HOSTILE).await;
    chromium.wait_until("document.querySelectorAll('main .panel button.link').length > 0").await;
    chromium.evaluate("document.querySelector('main .panel button.link').click()").await;
    chromium.wait_for_text("main h1", "Key").await;
    chromium.wait_for_text("main", "must be encoded").await;
    let scripts = chromium.evaluate("[...document.scripts].map((script) => script.getAttribute('src'))").await;
    assert_eq!(scripts, json!(["./uplot.js", "./dashboard.js"]));
    assert_ne!(chromium.evaluate("document.title").await, json!("stolen"));
    assert_eq!(chromium.evaluate("location.hash").await, json!("#/key"));
    chromium.close(&served.url, "/api/events", &["/api/key"]).await;
}

fn urlencoded(text: &str) -> String {
    let escape =
        |byte: u8| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}
