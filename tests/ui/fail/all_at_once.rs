//! Every mistake is reported in one compile: 8 in one attribute.

use rate_limited::rate_limited;

#[rate_limited(
    key = "user:{}",
    nmae = "user",
    name = "",
    window = "10",
    max = 0,
    max = 1,
    fallback = || None,
    on_error = closd,
)]
async fn search(user: &str) -> Option<String> {
    Some(user.to_owned())
}

fn main() {
    drop(search("a"));
}
