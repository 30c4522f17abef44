//! `settle` of other types than a function from a reference to what the body returned to a `u32`: one error each.

use rate_limited::rate_limited;

struct Answer {
    tokens: u64,
}

fn of_tokens(answer: &Answer) -> u64 {
    answer.tokens
}

fn of_text(_: &String) -> u32 {
    1
}

fn two(_: &u64, _: u64) -> u32 {
    1
}

#[rate_limited(key = "k", limit = "5/s", fallback = Answer { tokens: 0 }, settle = |answer| answer.tokens)]
fn closure_of_a_number() -> Answer {
    Answer { tokens: 1 }
}

#[rate_limited(key = "k", limit = "5/s", fallback = Answer { tokens: 0 }, settle = of_tokens)]
async fn function_of_a_number() -> Answer {
    Answer { tokens: 1 }
}

#[rate_limited(key = "k", limit = "5/s", fallback = 0, settle = of_text)]
fn of_another_type() -> u64 {
    1
}

#[rate_limited(key = "k", limit = "5/s", fallback = 0, settle = two)]
fn of_two_arguments() -> u64 {
    1
}

#[rate_limited(key = "k", limit = "5/s", fallback = 0, settle = |answer: &String| 1)]
async fn closure_of_another_type() -> u64 {
    1
}

#[rate_limited(key = "k", limit = "5/s", fallback = 0, settle = |answer| answer.tokens)]
fn no_such_field() -> u64 {
    1
}

#[rate_limited(key = "k", limit = "5/s", fallback = 0, settle = nope)]
fn no_such_function() -> u64 {
    1
}

#[rate_limited(key = "k", limit = "5/s", fallback = 0, settle = |_| text.len() as u32)]
async fn moved_into_the_body(text: String) -> usize {
    text.len()
}

#[rate_limited(key = "k", limit = "5/s", fallback = 0, settle = |_| text.len() as u32)]
fn moved_by_the_body(text: String) -> usize {
    drop(text);
    1
}

#[rate_limited(key = "k", limit = "5/s", fallback = String::new(), settle = |text| text.len())]
async fn closure_of_a_length() -> String {
    String::new()
}

#[rate_limited(key = "k", limit = "5/s", fallback = String::new(), settle = String::len)]
fn function_of_a_length() -> String {
    String::new()
}

fn main() {}
