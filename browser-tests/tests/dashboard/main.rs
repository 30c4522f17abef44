//! Tests of the page of limiter-dashboard: Chromium, a server of the page, and a Redis server of each test.

#[path = "../page/chromium.rs"]
mod chromium;
mod dashboard;
mod drill;
mod edits;
mod images;
mod private;
