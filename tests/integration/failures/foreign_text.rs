//! Text of a server's own in errors and logs: nothing that a terminal or a log obeys, and not much of it.

use std::error::Error as StdError;

use rate_limited::{Error, Limiter, OnError};

use crate::fake::{Fake, Then};
use crate::support::{key, limit};

/// Characters of a server's text that an error may repeat.
const MOST: usize = 200;
/// The limiter's own words around them.
const OWN_WORDS: usize = 300;

/// The text of an error, and of each of its causes.
fn texts(error: &Error) -> Vec<String> {
    let mut texts = vec![error.to_string()];
    let mut source = error.source();
    while let Some(cause) = source {
        texts.push(cause.to_string());
        source = cause.source();
    }
    texts
}

/// Bytes that a terminal obeys, as bold red text, a bell, a title, an end of line and the direction of writing.
const OBEYED: &str = "\x1b[1;31mred\x07 \x1b]0;title\x07 \u{9b}31m \u{202e}desrever \x00\x7f";

/// Asserts that an error repeats a server's text at most so often, cut each time, and nothing that a terminal obeys.
fn assert_harmless(error: &Error, times: usize) {
    for text in texts(error) {
        let obeyed = |letter: char| letter.is_control() || ('\u{202a}'..='\u{202e}').contains(&letter);
        assert!(!text.contains(obeyed), "{text:?}");
        assert!(text.chars().count() <= times * MOST + OWN_WORDS, "{} characters: {text:?}", text.chars().count());
    }
}

#[tokio::test]
async fn errors_of_a_server_reach_nobody_raw_or_at_full_length() {
    let long = |letter: &str| letter.repeat(10_000);
    let replies = [
        format!("-ERR {OBEYED}\r\n"),
        format!("-{OBEYED} says no\r\n"),
        format!("-SOMETHING{OBEYED} new\r\n"),
        format!("-ERR {}\r\n", long("a")),
        format!("-ERR {}\r\n", long("é")),
        format!("-ERR {}\r\n", long("\x1b")),
        format!("-{} a\r\n", long("A")),
        format!("-{}\r\n", long("a")),
        "!25\r\nERR one line\nand another\r\n".to_owned(),
        format!("*2\r\n:1000000000000000\r\n-ERR {OBEYED}{}\r\n", long("a")),
    ];
    for reply in replies {
        let said: String = reply.chars().take(40).collect();
        let fake = Fake::answering(Then::Say(reply.clone().leak()));
        let builder = Limiter::builder().url(&fake.url()).on_error(OnError::Raise);
        let limiter = builder.connect().await.expect("it greets");
        let error = limiter.check(&key("a"), &limit("5/10s")).await.expect_err(&said);
        assert_harmless(&error, 1);
        // And what it says to a greeting.
        let fake = Fake::refusing(&reply);
        if let Err(error) = Limiter::connect(&fake.url()).await {
            assert_harmless(&error, 1);
        }
    }
}

#[tokio::test]
async fn addresses_that_a_server_gives_reach_nobody_raw_or_at_full_length() {
    for host in [OBEYED.to_owned(), "a".repeat(10_000)] {
        let answer = format!("*2\r\n${}\r\n{host}\r\n$4\r\n6379\r\n", host.len());
        let sentinel = Fake::sentinel(&answer);
        let url = format!("redis-sentinel://{}/mymaster", sentinel.address());
        let error = Limiter::connect(&url).await.expect_err("no host");
        // By the sentinels, and by the attempt to connect.
        assert_harmless(&error, 2);
    }
}
