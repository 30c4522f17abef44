//! The contents of the page, as a reader sees them.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;

use crate::chromium::{Chromium, WAIT_TIMEOUT, eventually};
use crate::sale::Sale;

/// The stream of the page.
const STREAM: &str = "/events";

/// The page has the first event of its stream.
const READY: &str = "document.getElementById('clock').dataset.event > 0";

impl Chromium {
    /// Starts a browser, and opens the page.
    pub(crate) async fn open(url: &str) -> Self {
        Self::launch(url, READY).await
    }

    /// Opens the page again, as a new visitor.
    pub(crate) async fn visit(&self, url: &str) {
        self.go_to(url, READY).await;
    }

    /// Closes the browser. Asserts that the page had no error but on these paths, and no request to another host.
    pub(crate) async fn end(self, url: &str, may_fail: &[&str]) {
        self.close(url, STREAM, may_fail).await;
    }

    /// Returns the texts of the page in the form of `GET /state`.
    pub(crate) async fn shown(&self) -> Value {
        self.evaluate(include_str!("shown.js")).await
    }

    /// Waits until the page shows what `GET /state` returns. Returns it.
    pub(crate) async fn wait_for_state(&self, sale: &Sale) -> Value {
        let until = Instant::now() + WAIT_TIMEOUT;
        loop {
            let (shown, state) = (self.shown().await, sale.get("/state").await);
            if shown == state {
                return state;
            }
            assert!(Instant::now() < until, "the page shows {shown:#}, the state is {state:#}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a sale is in this state, as a word.
    pub(crate) async fn wait_for_word(&self, sale: &str, word: &str) {
        self.wait_until(&format!("{} === {word:?}", text_of(sale, "state"))).await;
    }

    /// Presses the button of a sale. Returns the name of the answer and its text.
    pub(crate) async fn buy(&self, sale: &str) -> (String, String) {
        let card = card(sale);
        // Not by the mouse: the page may move the button before the click arrives.
        let press =
            format!("{card}.querySelector('output').dataset.answer = 'none'; {card}.querySelector('button').click()");
        self.evaluate(&press).await;
        self.answer(sale).await
    }

    /// Waits for the answer to a press of the button. Returns its name and its text.
    pub(crate) async fn answer(&self, sale: &str) -> (String, String) {
        let answer = format!("{}.querySelector('output')", card(sale));
        let answer = format!("[{answer}.dataset.answer, {answer}.textContent.replaceAll('\\u00a0', ' ')]");
        eventually("an answer", async || match self.evaluate(&answer).await {
            Value::Array(parts) if parts[0] != "none" => Some((string(&parts[0]), string(&parts[1]))),
            _ => None,
        })
        .await
    }

    /// Asserts that each visible text has a contrast of at least 4.5 to 1. Returns the number of texts.
    pub(crate) async fn assert_contrast(&self) -> usize {
        let texts = self.evaluate(include_str!("contrast.js")).await;
        let texts = texts.as_array().expect("a list");
        for text in texts {
            assert!(text["contrast"].as_f64().expect("a number") >= 4.5, "{text}");
        }
        texts.len()
    }
}

/// An expression of a sale's part of the page.
pub(crate) fn card(sale: &str) -> String {
    format!("document.querySelector('[data-sale={sale}]')")
}

/// An expression of a text of a sale.
pub(crate) fn text_of(sale: &str, field: &str) -> String {
    format!("{}.querySelector('[data-field={field}]').textContent", card(sale))
}

fn string(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
