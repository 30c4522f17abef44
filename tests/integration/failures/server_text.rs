//! Tests of server text in errors and logs: control characters are escaped, and long text is cut.

use std::error::Error as StdError;

use rate_limited::{Error, Limiter, OnError};

use crate::fake_server::{FakeServer, ScriptReply};
use crate::support::{key, limit};

/// The most characters of a server's text that an error may repeat.
const MAX_REPEATED_CHARS: usize = 200;
/// The most characters of the limiter's own text around them.
const MAX_OWN_CHARS: usize = 300;

/// Returns the text of an error and of each of its causes.
fn texts(error: &Error) -> Vec<String> {
    let mut texts = vec![error.to_string()];
    let mut source = error.source();
    while let Some(cause) = source {
        texts.push(cause.to_string());
        source = cause.source();
    }
    texts
}

/// Control sequences: bold red text, a bell, a window title, C1 codes and a change of the writing direction.
const CONTROL_SEQUENCES: &str = "\x1b[1;31mred\x07 \x1b]0;title\x07 \u{9b}31m \u{202e}desrever \x00\x7f";

/// Asserts that an error repeats a server's text at most `times` times, shortened and with control characters escaped.
fn assert_redacted(error: &Error, times: usize) {
    for text in texts(error) {
        let is_control = |letter: char| letter.is_control() || ('\u{202a}'..='\u{202e}').contains(&letter);
        assert!(!text.contains(is_control), "{text:?}");
        assert!(
            text.chars().count() <= times * MAX_REPEATED_CHARS + MAX_OWN_CHARS,
            "{} characters: {text:?}",
            text.chars().count()
        );
    }
}

#[tokio::test]
async fn server_errors_are_escaped_and_shortened() {
    let long = |letter: &str| letter.repeat(10_000);
    let replies = [
        format!("-ERR {CONTROL_SEQUENCES}\r\n"),
        format!("-{CONTROL_SEQUENCES} says no\r\n"),
        format!("-SOMETHING{CONTROL_SEQUENCES} new\r\n"),
        format!("-ERR {}\r\n", long("a")),
        format!("-ERR {}\r\n", long("é")),
        format!("-ERR {}\r\n", long("\x1b")),
        format!("-{} a\r\n", long("A")),
        format!("-{}\r\n", long("a")),
        "!25\r\nERR one line\nand another\r\n".to_owned(),
        format!("*2\r\n:1000000000000000\r\n-ERR {CONTROL_SEQUENCES}{}\r\n", long("a")),
    ];
    for reply in replies {
        let reply_start: String = reply.chars().take(40).collect();
        let fake = FakeServer::with_script_reply(ScriptReply::Bytes(reply.clone().leak()));
        let builder = fake.limiter().on_error(OnError::Raise);
        let limiter = builder.connect().await.expect("HELLO succeeds");
        let error = limiter.check(&key("a"), &limit("5/10s")).await.expect_err(&reply_start);
        assert_redacted(&error, 1);
        // The same text as reply to HELLO.
        let fake = FakeServer::with_hello_reply(&reply);
        if let Err(error) = Limiter::connect(&fake.url()).await {
            assert_redacted(&error, 1);
        }
    }
}

#[tokio::test]
async fn addresses_from_sentinels_are_escaped_and_shortened() {
    for host in [CONTROL_SEQUENCES.to_owned(), "a".repeat(10_000)] {
        let answer = format!("*2\r\n${}\r\n{host}\r\n$4\r\n6379\r\n", host.len());
        let sentinel = FakeServer::sentinel(&answer);
        let url = format!("redis-sentinel://{}/mymaster", sentinel.address());
        let error = Limiter::connect(&url).await.expect_err("no host");
        // Once in the error of the sentinels, and once in that of the attempt to connect.
        assert_redacted(&error, 2);
    }
}
