//! The files of the page, which are parts of the program.

use axum::extract::OriginalUri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

const PAGE: &str = include_str!("page/index.html");

/// The type of scripts.
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files beside the page: name, type and content. `dashboard.js` imports the other modules.
pub(crate) const FILES: [(&str, &str, &str); 17] = [
    ("/dashboard.js", SCRIPT, include_str!("page/dashboard.js")),
    ("/elements.js", SCRIPT, include_str!("page/elements.js")),
    ("/feed.js", SCRIPT, include_str!("page/feed.js")),
    ("/token.js", SCRIPT, include_str!("page/token.js")),
    ("/tables.js", SCRIPT, include_str!("page/tables.js")),
    ("/chart.js", SCRIPT, include_str!("page/chart.js")),
    ("/drafts.js", SCRIPT, include_str!("page/drafts.js")),
    ("/effect.js", SCRIPT, include_str!("page/effect.js")),
    ("/rules.js", SCRIPT, include_str!("page/rules.js")),
    ("/key.js", SCRIPT, include_str!("page/key.js")),
    ("/limiters.js", SCRIPT, include_str!("page/limiters.js")),
    ("/edit.js", SCRIPT, include_str!("page/edit.js")),
    ("/history.js", SCRIPT, include_str!("page/history.js")),
    ("/dashboard.css", "text/css; charset=utf-8", include_str!("page/dashboard.css")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("/uplot.js", SCRIPT, include_str!("page/uplot/uPlot.iife.min.js")),
    ("/uplot.css", "text/css; charset=utf-8", include_str!("page/uplot/uPlot.min.css")),
];

/// Returns the page. Its files are relative to its own address, under any path.
pub(crate) async fn page(OriginalUri(uri): OriginalUri) -> Response {
    // `/limits` is a name in `/`, and `/limits/` is a place of its own.
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    let base = if last.is_empty() { "./".to_owned() } else { format!("./{}/", attribute(last)) };
    file("text/html; charset=utf-8", PAGE.replace("{base}", &base))
}

pub(crate) fn file(kind: &'static str, content: impl IntoResponse) -> Response {
    ([(CONTENT_TYPE, kind)], content).into_response()
}

/// Escapes a text for the value of an attribute of HTML.
fn attribute(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('\'', "&#39;").replace('<', "&lt;").replace('>', "&gt;")
}
