//! The files of the page, which are parts of the program.

use axum::extract::OriginalUri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

const PAGE: &str = include_str!("page/index.html");

/// The files beside the page: name, type and content.
pub(crate) const FILES: [(&str, &str, &str); 5] = [
    ("/dashboard.js", "text/javascript; charset=utf-8", include_str!("page/dashboard.js")),
    ("/dashboard.css", "text/css; charset=utf-8", include_str!("page/dashboard.css")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("/uplot.js", "text/javascript; charset=utf-8", include_str!("page/uplot/uPlot.iife.min.js")),
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
