//! Tests of the metrics, with a recorder that keeps every series.

#[expect(dead_code, reason = "no test here has a variable")]
#[path = "../integration/child_process.rs"]
mod child_process;
mod dashboards;
mod process;
mod recorder;
mod recorders;
mod rules;

use rate_limited::{Key, Limit};

fn key(name: &str) -> Key {
    Key::new(name)
}

fn limit(text: &str) -> Limit {
    text.parse().expect("a limit")
}
